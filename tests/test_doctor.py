"""`backfill doctor` and `prefetch`: each fault is found, with what to do; nothing is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backfill import doctor
from backfill.cli import main
from backfill.config import Config, EmbedderConfig, EngineConfig
from backfill.doctor import Finding
from backfill.model_memory import GIB, Device
from tests import fake_encoder
from tests.conftest import ROOT


def card(driver: str = "550.54.15", free_bytes: int = 23 * GIB) -> Device:
    return Device(0, "Card", "GPU-1", driver, 24 * GIB, free_bytes)


def levels(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.check, finding.level) for finding in found]


def test_a_driver_older_than_the_build_is_an_error() -> None:
    *_, last = doctor.check_gpus([card("470.82.01")], "12.8")
    assert (last.check, last.level) == ("driver", "error")
    assert "525.60.13" in last.fix
    assert "cuda-compat-12-8" in last.fix
    assert levels(list(doctor.check_gpus([card("580.65.06")], "12.8"))) == [("gpu", "ok"), ("driver", "ok")]
    assert list(doctor.check_gpus([card("580.65.05")], "13.0"))[-1].level == "error"
    assert list(doctor.check_gpus([card("580.65.06")], "13.0"))[-1].fix == ""
    unknown = list(doctor.check_gpus([card("999.1")], "14.0"))[-1]
    assert (unknown.level, "CUDA 14.0" in unknown.text) == ("warning", True)


@pytest.mark.parametrize(
    ("driver", "cuda", "own"), [("550.54.15", "12.8", "570.26"), ("580.82.07", "13.2", "595.45.04")]
)
def test_a_driver_older_than_the_release_s_own_runs_it_with_less(driver: str, cuda: str, own: str) -> None:
    last = list(doctor.check_gpus([card(driver)], cuda))[-1]
    assert last.level == "ok"
    assert "minor version compatibility" in last.text
    assert own in last.fix


def test_a_release_s_own_driver_runs_the_release() -> None:
    for release, driver in doctor.OWN_DRIVER.items():
        least = doctor.LEAST_DRIVER[release.partition(".")[0]]
        assert doctor._numbers(driver) >= doctor._numbers(least)
        assert list(doctor.check_gpus([card(driver)], release))[-1].fix == ""


def test_what_a_driver_runs_is_said_before_anything_is_installed() -> None:
    *_, last = doctor.check_gpus([card("550.54.15")], None)
    assert "no build for CUDA 13, only up to CUDA 12" in last.text
    assert "580.65.06" in last.fix
    assert "for CUDA 12" in last.fix
    assert "backfill[gpu]" in list(doctor.check_gpus([card("590.10")], None))[-1].fix
    assert list(doctor.check_gpus([card("390.10")], None))[-1].fix == "update the driver to 580.65.06 or later"


def test_memory_that_something_holds_is_said() -> None:
    held, _ = doctor.check_gpus([card(free_bytes=GIB)], "12.8")
    assert held.level == "warning"
    assert "1.0 GiB of 24.0 GiB free" in held.text


def test_a_gpu_without_a_cuda_build_and_the_reverse() -> None:
    assert levels(list(doctor.check_gpus([card()], None)))[-1] == ("driver", "warning")
    assert levels(list(doctor.check_gpus([], "12.8")))[-1] == ("gpu", "warning")
    assert levels(list(doctor.check_gpus([], None))) == [("gpu", "ok")]


@pytest.mark.parametrize(("version", "level"), [((3, 9), "error"), ((3, 11), "ok"), ((3, 14), "warning")])
def test_pythons(version: tuple[int, int], level: str) -> None:
    assert [finding.level for finding in doctor.check_python(version)] == [level]


def test_packages_that_must_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0" if name.startswith("faiss") else "")
    assert [f.text for f in doctor.check_versions() if f.level == "error"] == [
        "faiss-cpu and faiss-gpu are both installed"
    ]


def test_little_memory_is_said() -> None:
    assert levels(list(doctor.check_memory(GIB))) == [("memory", "warning")]
    assert levels(list(doctor.check_memory(8 * GIB))) == [("memory", "ok")]


def test_a_slow_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_write_speed", lambda folder: (3.0, 900.0))
    *_, speed = doctor.check_disk(tmp_path / "not" / "yet")
    assert speed.level == "warning"
    assert "local disk" in speed.fix


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> tuple[float, float]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "_write_speed", refuse)
    assert levels(list(doctor.check_disk(tmp_path)))[-1] == ("disk", "error")


def test_a_write_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TRIAL_BYTES", 1 << 20)
    mb_s, fsync_ms = doctor._write_speed(tmp_path)
    assert mb_s > 0
    assert fsync_ms > 0
    assert list(tmp_path.iterdir()) == []


def test_a_clock_before_this_was_written_is_an_error(tmp_path: Path) -> None:
    assert levels(list(doctor.check_clock(tmp_path, 1e9))) == [("clock", "error")]


def test_models_that_are_not_here_are_named(tmp_path: Path) -> None:
    config = Config(
        engine=EngineConfig(kind="vllm", model="/no/such/model"), embedder=EmbedderConfig(model="package:x")
    )
    found = list(doctor.check_models(config))
    assert levels(found) == [("models", "error"), ("models", "error")]
    assert "/no/such/model" in found[0].text
    assert all(finding.fix for finding in found)


def test_the_cuda_release_is_read_without_torch() -> None:
    code = "import sys; from backfill.doctor import torch_cuda; torch_cuda(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_it_runs_where_nothing_heavy_is_installed(tmp_path: Path) -> None:
    heavy = ("numpy", "torch", "pyarrow", "transformers", "vllm", "ray", "onnxruntime", "faiss", "tokenizers")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy}))\n"
        f"from backfill import doctor; doctor.TRIAL_BYTES = 1 << 20\n"
        f"from backfill.cli import main; sys.exit(main(['doctor', '--folder', {str(tmp_path)!r}, '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    lacking = [f["text"] for f in json.loads(done.stdout)["findings"] if f["check"] == "packages"]
    assert any("torch" in text and "not installed" in text for text in lacking)


def test_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TRIAL_BYTES", 1 << 20)
    code = main(["doctor", "--folder", str(tmp_path), "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == int(not record["ok"])
    assert {"python", "packages", "gpu", "memory", "disk", "clock"} <= {f["check"] for f in record["findings"]}


def test_prefetch_names_what_it_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text("engine: {kind: extractive}\n")
    assert main(["prefetch", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == {}
    path.write_text("engine: {kind: vllm, model: /no/such/model}\n")
    assert main(["prefetch", str(path)]) == 1
    assert "/no/such/model" in capsys.readouterr().err
