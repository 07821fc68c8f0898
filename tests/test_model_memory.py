"""Memory of a model from its files, and what is said where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill import model_memory as mm
from backfill.config import EngineConfig
from backfill.errors import ModelError
from backfill.model_memory import GIB, RUNTIME_BYTES, Device, check_fits, needed_bytes

WEIGHTS = 1_000_000
CONFIG = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
    "intermediate_size": 128,
    "torch_dtype": "bfloat16",
}
ENGINE = EngineConfig(kind="vllm", model="m", max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=256)


def model(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({k: v for k, v in {**CONFIG, **changes}.items() if v is not None}))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(WEIGHTS)
    return folder


def gpu(total_bytes: int, free_bytes: int | None = None) -> Device:
    return Device(0, "Card", "GPU-1", "550.1", total_bytes, total_bytes if free_bytes is None else free_bytes)


def test_sizes_by_hand(tmp_path: Path) -> None:
    memory = mm.model_memory(model(tmp_path), ENGINE, on_gpu=True)
    assert memory.weights_bytes == WEIGHTS
    assert memory.kv_token_bytes == 2 * 3 * 2 * 16 * 2
    assert memory.activation_bytes == max(256 * (2 * 128 + 2 * 64) * 2, 8 * 1000 * 4)
    assert needed_bytes(memory, ENGINE, on_gpu=True) == (
        WEIGHTS + memory.activation_bytes + RUNTIME_BYTES + 1024 * memory.kv_token_bytes
    )


def test_float32_doubles_what_is_stored_in_bfloat16(tmp_path: Path) -> None:
    wide = EngineConfig(kind="vllm", model="m", dtype="float32")
    assert mm.model_memory(model(tmp_path), wide, on_gpu=False).weights_bytes == 2 * WEIGHTS


def test_a_quantised_model_takes_what_its_files_take(tmp_path: Path) -> None:
    folder = model(tmp_path, quantization_config={"bits": 4}, torch_dtype="float32")
    assert mm.model_memory(folder, ENGINE, on_gpu=True).weights_bytes == WEIGHTS


def test_a_config_without_sizes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="how large the model is"):
        mm.model_memory(model(tmp_path, num_hidden_layers=None), ENGINE, on_gpu=True)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        mm.model_memory(tmp_path, ENGINE, on_gpu=True)


def test_what_fits_passes_and_the_unknown_is_not_judged(tmp_path: Path) -> None:
    check_fits(model(tmp_path), ENGINE, gpu=gpu(4 * GIB), free_bytes=None)
    check_fits(tmp_path, ENGINE, gpu=None, free_bytes=None)
    check_fits(tmp_path, ENGINE, gpu=None, free_bytes=8 * GIB)


def test_a_long_context_that_does_not_fit_gets_one_that_does(tmp_path: Path) -> None:
    long = EngineConfig(kind="vllm", model="m", max_model_len=50_000_000, max_num_seqs=8, max_num_batched_tokens=256)
    with pytest.raises(ModelError, match="does not fit") as refused:
        check_fits(model(tmp_path), long, gpu=gpu(4 * GIB), free_bytes=None)
    length = int(refused.value.hint.rsplit(" ", 1)[1])
    fitting = EngineConfig(kind="vllm", model="m", max_model_len=length, max_num_seqs=8, max_num_batched_tokens=256)
    check_fits(tmp_path, fitting, gpu=gpu(4 * GIB), free_bytes=None)


def test_a_model_that_is_too_large_is_told_what_size_fits(tmp_path: Path) -> None:
    folder = model(tmp_path)
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(30 * GIB)
    with pytest.raises(ModelError, match=r"weights 30\.0 GiB") as refused:
        check_fits(folder, ENGINE, gpu=gpu(24 * GIB), free_bytes=None)
    assert "billion parameters in bfloat16" in refused.value.hint


def test_memory_that_another_process_holds_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="another process holds the rest"):
        check_fits(model(tmp_path), ENGINE, gpu=gpu(24 * GIB, GIB), free_bytes=None)


def test_main_memory_counts_where_there_is_no_gpu(tmp_path: Path) -> None:
    greedy = EngineConfig(kind="vllm", model="m", kv_cache_gib=64)
    with pytest.raises(ModelError, match="main memory") as refused:
        check_fits(model(tmp_path), greedy, gpu=None, free_bytes=16 * GIB)
    assert "engine.kv_cache_gib" in refused.value.hint


def test_devices_are_what_the_driver_lists() -> None:
    assert mm._device("1, NVIDIA H200, GPU-abc, 550.54.15, 143771, 143000") == Device(
        1, "NVIDIA H200", "GPU-abc", "550.54.15", 143771 << 20, 143000 << 20
    )
    assert mm._device("No devices were found") is None
    assert mm._device("0, Card, GPU-x, 550, [N/A], [N/A]") is None


@pytest.mark.parametrize(
    ("chosen", "kept"), [(None, [0, 1]), ("1", [1]), ("GPU-b", [1]), ("GPU-b,0", [1, 0]), ("MIG-x", []), ("", [])]
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, chosen: str | None, kept: list[int]) -> None:
    two = [Device(0, "A", "GPU-a1", "1", 1, 1), Device(1, "B", "GPU-b2", "1", 1, 1)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert [device.index for device in mm.visible_devices(two)] == kept


LISTING = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-b8a6b6e5-0000-1111-2222-333344445555)
  MIG 2g.20gb     Device  0: (UUID: MIG-5c89852c-d268-51a3-8c2a-7b6a4c2e9d10)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-6c89852c-d268-51a3-8c2a-7b6a4c2e9d11)
  MIG 3g.40gb     Device  2: (UUID: MIG-GPU-b8a6b6e5/3/0)
"""


def tool_that_says(folder: Path, listing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nvidia-smi` on the PATH with one GPU of 80 GB and what `-L` says."""
    tool = folder / "nvidia-smi"
    gpu = "0, NVIDIA H100 80GB HBM3, GPU-b8a6b6e5-0000-1111-2222-333344445555, 550.54.15, 81559, 81000"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && cat <<'X' || echo '{gpu}'\n{listing}X\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def whole_model(folder: Path) -> Path:
    (folder / "tokenizer.json").write_text("{}")
    return model(folder)


@pytest.mark.parametrize(
    ("chosen", "sizes"),
    [
        ("MIG-6c89852c-d268-51a3-8c2a-7b6a4c2e9d11", [10]),
        ("MIG-5c89852c,MIG-GPU-b8a6b6e5/3/0", [20, 40]),
        ("MIG-00000000-d268-51a3-8c2a-7b6a4c2e9d11", []),
    ],
)
def test_mig_slices_are_as_large_as_their_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, sizes: list[int]
) -> None:
    tool_that_says(tmp_path, LISTING, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert [device.total_bytes // 10**9 for device in mm.visible_devices(mm.devices())] == sizes


def test_a_slice_that_is_too_small_is_refused_and_an_unknown_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool_that_says(tmp_path, LISTING, monkeypatch)
    large = EngineConfig(kind="vllm", model=str(whole_model(tmp_path)), max_model_len=1 << 25)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-6c89852c-d268-51a3-8c2a-7b6a4c2e9d11")
    with pytest.raises(ModelError, match=r"MIG 1g\.10gb\+me"):
        mm.check_engine_fits(large)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00000000-d268-51a3-8c2a-7b6a4c2e9d11")
    mm.check_engine_fits(large)


def test_a_job_without_a_gpu_runs_on_main_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool_that_says(tmp_path, LISTING, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    monkeypatch.setattr(mm, "available_bytes", lambda: GIB)
    with pytest.raises(ModelError, match="main memory"):
        mm.check_engine_fits(EngineConfig(kind="vllm", model=str(whole_model(tmp_path)), kv_cache_gib=64))
