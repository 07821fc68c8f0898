"""The GPU check without a GPU: every part works at small sizes, and the script says plainly what it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
from bench import gpu_check
from bench.gpu_parts import PARTS, Limits, Line, limits

TOP = Limits(copy_bytes_s=1e9, matrix_flop_s=1e10)


def test_what_a_card_reaches_is_measured() -> None:
    top = limits("cpu")
    assert top.copy_bytes_s > 1e6
    assert top.matrix_flop_s > 1e6


@pytest.mark.parametrize("name", ["pool", "mask", "minhash", "index"])
def test_a_part_checks_itself_and_gives_lines(name: str) -> None:
    for line in PARTS[name]("cpu", TOP):
        assert line.value > 0
        assert line.share is None or line.share > 0
        assert line.against
        assert min(line.against.values()) > 0


@pytest.mark.slow
def test_the_embedding_part_agrees_with_its_peer() -> None:
    (line,) = PARTS["embedding"]("cpu", TOP)
    assert line.unit == "texts/s"


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, problem: str = "", gpu: bool = False) -> tuple[int, Path]:
    """The script with its parts replaced."""
    out = tmp_path / "result.json"
    parts = {"one": lambda device, top: [Line("one", 5.0, "GB/s", 0.5, "copy", {"peer": 2.0})]}
    if problem:
        parts["two"] = lambda device, top: (_ for _ in ()).throw(RuntimeError(problem))
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(gpu_check, "checks", lambda device: gpu_check.Outcome("checks"))
    monkeypatch.setattr(gpu_check, "limits", lambda device: TOP)
    monkeypatch.setattr(gpu_check, "has_gpu", lambda: gpu)
    monkeypatch.setattr("sys.argv", ["gpu_check", "--out", str(out)])
    return gpu_check.main(), out


def test_without_a_gpu_it_says_so_and_exits_77(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(monkeypatch, tmp_path)
    printed = capsys.readouterr().out
    assert code == gpu_check.NO_GPU == 77
    assert "NO GPU: no figure below is one of a GPU" in printed
    assert "50.0% of copy" in printed
    assert "2.00 x peer" in printed
    record = json.loads(out.read_text())
    assert record["card"] is None
    assert record["versions"]["torch"]
    assert record["parts"][1]["lines"][0]["value"] == 5.0


def test_a_part_that_fails_is_told_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(monkeypatch, tmp_path, problem="out of memory")
    assert code == 1
    assert "FAILED: two" in capsys.readouterr().out
    assert json.loads(out.read_text())["parts"][2]["problem"] == "RuntimeError: out of memory"


def test_past_the_time_parts_are_left_out_aloud() -> None:
    outcomes = list(gpu_check.run_parts("cpu", TOP, lambda: 0.0))
    assert [outcome.part for outcome in outcomes] == list(PARTS)
    assert all("past the time" in outcome.problem for outcome in outcomes)


def test_a_turn_of_vllm_that_dies_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["no json", '{"tokens_s": 100.0, "launches": 0}', '{"tokens_s": 300.0, "launches": 0}'])

    def ran(command: list[str], **names: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, f"log\n{next(answers)}\n", "")

    monkeypatch.setattr(subprocess, "run", ran)
    first, second, third = gpu_check.vllm_turns(lambda: 400.0)
    assert "JSONDecodeError" in first.problem
    assert (second.problem, second.lines[0].value) == ("", 100.0)
    assert third.lines[0].against == {"masks remembered": 3.0}
    assert "did not reach the GPU" in third.problem
