"""Batch and lengths are chosen from the model and the memory, and what a configuration says stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backfill.config import EngineConfig
from backfill.engines.sizing import MAX_SEQS_CPU, MAX_SEQS_GPU, MIN_SEQS, chosen, sized
from backfill.model_memory import GIB, Device

# 2 x 32 layers x 8 heads x 128 x 2 bytes: 128 KiB of keys and values a token in 16 bits.
MODEL = {
    "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 128000,
    "num_key_value_heads": 8, "intermediate_size": 14336, "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
}  # fmt: skip


def gpu(gib: int) -> Device:
    return Device(0, "GPU", "GPU-0", "1", gib * GIB, gib * GIB)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(16 * GIB)  # sparse: 8 billion parameters of 2 bytes
    return tmp_path


def test_a_large_gpu_gets_large_batches_and_a_small_one_what_fits(model: Path) -> None:
    config = EngineConfig(kind="vllm", model="m")
    large, why = chosen(config, model, gpu(140))
    small, _ = chosen(config, model, gpu(24))
    assert large.max_num_batched_tokens == 16384
    assert small.max_num_batched_tokens == 8192
    # 140 GiB x 0.9 - 16 of weights - about 3 of activations and runtime, over 2,048 tokens of 128 KiB a sequence.
    assert 400 <= large.max_num_seqs <= 440
    assert MIN_SEQS <= small.max_num_seqs <= 16
    assert {c.name for c in why} == {"engine.max_num_batched_tokens", "engine.max_num_seqs"}
    assert all(c.reason for c in why)


def test_a_cpu_is_bounded_by_its_cache_and_by_what_helps(model: Path) -> None:
    config = EngineConfig(kind="vllm", model="m", dtype="bfloat16")
    roomy, _ = chosen(EngineConfig(kind="vllm", model="m", dtype="bfloat16", kv_cache_gib=64.0), model, None)
    tight, _ = chosen(config, model, None)
    assert (roomy.max_num_seqs, tight.max_num_seqs) == (MAX_SEQS_CPU, MIN_SEQS)
    assert roomy.max_num_batched_tokens == 0


def test_what_the_configuration_says_stays(model: Path) -> None:
    config = EngineConfig(kind="vllm", model="m", max_num_seqs=7, max_num_batched_tokens=99, max_model_len=1000)
    assert chosen(config, model, gpu(80)) == (config, ())


def test_a_model_that_reads_less_shortens_the_length(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**MODEL, "max_position_embeddings": 2048}))
    small, why = chosen(EngineConfig(kind="vllm", model="m", max_num_seqs=8), model, gpu(80))
    assert small.max_model_len == 2048
    assert why[0].reason == "the model reads no more"


def test_a_tiny_model_runs_as_many_as_help(model: Path) -> None:
    tiny = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 300}
    (model / "config.json").write_text(json.dumps(tiny))
    (model / "model.safetensors").write_bytes(b"0" * 1000)
    assert chosen(EngineConfig(kind="vllm", model="m"), model, gpu(80))[0].max_num_seqs == MAX_SEQS_GPU


def test_other_engines_and_models_that_are_not_here_pass() -> None:
    other = EngineConfig(kind="openai", model="m")
    assert sized(other) == (other, ())
    missing, why = sized(EngineConfig(kind="vllm", model="/no/such/model"))
    assert (missing.max_num_seqs, why) == (MAX_SEQS_CPU, ())
