"""The benchmark's own arithmetic: exponents, plots, and that every line names tests that exist."""

from __future__ import annotations

import csv
import importlib
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.errors import ModelError
from bench import batch, budget, growth, plots
from bench.fit import fit
from bench.lines import LINES
from tests.conftest import ROOT


@settings(deadline=None)
@given(st.floats(-1, 3), st.floats(0.01, 100), st.lists(st.integers(1, 10**6), min_size=3, max_size=9, unique=True))
def test_a_power_law_gives_its_exponent(exponent: float, factor: float, sizes: list[int]) -> None:
    found = fit([(size, factor * size**exponent) for size in sizes])
    assert found.exponent == pytest.approx(exponent, abs=1e-6)
    assert found.low <= found.exponent <= found.high
    assert found.high - found.low == pytest.approx(0, abs=1e-4)


def test_scatter_widens_the_interval() -> None:
    points = [(10.0, 1.0), (10.0, 1.3), (100.0, 9.0), (100.0, 12.0), (1000.0, 95.0), (1000.0, 118.0)]
    found = fit(points)
    # By hand: slope over log10 is (mean of the last two) less (mean of the first two), halved.
    assert found.exponent == pytest.approx(0.984, abs=0.002)
    assert found.low < 0.93 < 1.03 < found.high
    assert found.n == 6


@pytest.mark.parametrize("points", [[(1, 1), (2, 2)], [(2, 1), (2, 2), (2, 3)], [(1, 1), (2, 2), (3, 0)]])
def test_what_has_no_exponent_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"exponent|positive"):
        fit(points)


def test_a_fixed_share_makes_the_exponent_smaller() -> None:
    assert fit([(n, 50 + n) for n in (10, 100, 1000)]).exponent < 0.8


@pytest.mark.parametrize("name", LINES)
def test_a_line_has_a_benchmark_and_tests_of_the_same_thing(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").run)
    assert LINES[name]
    assert all((ROOT / path).exists() for path in LINES[name])


def test_plots_are_drawn_and_stand_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the dev extra has it")
    points = [plots.Point("query-size", "<b>ours</b>", 10.0**i, 2.0 * i + j) for i in (3, 4, 5) for j in (0, 1)]
    points += [plots.Point("throughput-batch", "demo", x, x**0.5) for x in (1, 4, 16)]
    assert plots.draw(points, tmp_path) == str(tmp_path / "index.html")
    for name in plots.PLOTS:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    html = (tmp_path / "index.html").read_text()
    assert html.count("data:image/png;base64,") == 2
    assert "<b>ours" not in html
    assert "img-src data:" in html
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert len(rows) == len(points)
    first = {name: (tmp_path / f"{name}.png").read_bytes() for name in plots.PLOTS}
    plots.draw(points, tmp_path)
    assert first == {name: (tmp_path / f"{name}.png").read_bytes() for name in plots.PLOTS}


def test_points_of_other_plots_are_kept(tmp_path: Path) -> None:
    batch = [plots.Point("throughput-batch", "demo", x, x**0.5) for x in (1.0, 4.0)]
    size = [plots.Point("query-size", "query", x, x) for x in (1000.0, 10_000.0)]
    plots.draw(batch, tmp_path)
    plots.draw(size, tmp_path)
    plots.draw([plots.Point("throughput-batch", "demo", 1.0, 3.0), *batch[1:]], tmp_path)
    kept = plots.kept(tmp_path)
    assert [point for point in kept if point.plot == "query-size"] == size
    assert [(point.x, point.y) for point in kept if point.plot == "throughput-batch"] == [(1.0, 3.0), (4.0, 2.0)]


def test_batches_are_measured_by_turns_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Running:
        engine = None

        def asked_s(self, n: int, width: int) -> float:
            asked.append((n, width))
            return float(n / width**0.5)

    drawn: list[plots.Point] = []
    monkeypatch.setattr(batch, "demo", lambda folder: Running())
    monkeypatch.setattr(batch, "end_demo", lambda folder: None)
    monkeypatch.setattr(plots, "draw", drawn.extend)
    result = batch.run(quick=True)
    assert asked == [(4, 1), (4, 2), (4, 4), (8, 8), (16, 16), (32, 32)]
    assert result.value == pytest.approx(32**0.5)
    assert result.ratio == pytest.approx(32**0.5)
    assert [(point.plot, point.x) for point in drawn] == [("throughput-batch", width) for width in batch.WIDTHS]


def test_the_quick_run_is_planned_within_twelve_minutes() -> None:
    required = {"scan", "distill", "overhead", "extractive", "mask", "tokens", "embed", "bm25", "vectors", "query",
                "merge", "size", "growth"}  # fmt: skip
    assert required <= set(budget.QUICK_S) <= set(LINES)
    assert budget.SETUP_S + sum(budget.planned().values()) <= budget.ENOUGH_S
    assert budget.planned(2.0)["scan"] == 2 * budget.QUICK_S["scan"]


def test_all_goes_on_after_a_line_that_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = importlib.import_module("bench.__main__")
    asked: dict[str, float | None] = {}

    def run_line(command: list[str], budget_s: float | None) -> tuple[dict[str, object] | None, str]:
        asked[" ".join(command[2:])] = budget_s
        if "mask" in command:
            return None, "cut after its budget of 75 s"
        return {"name": command[3], "ratio": 0.5, "met": "scan" not in command}, ""

    monkeypatch.setattr(runner, "run_line", run_line)
    monkeypatch.setattr(sys, "argv", ["bench", "all", "--quick", "--no-record", "--slack", "2"])
    assert runner.main() == 1
    out, said = capsys.readouterr()
    assert "planned, at most 1424 s: set-up 90, scan 56," in out
    assert "by hand: batch" in out
    assert said == "mask: cut after its budget of 75 s\n"
    assert asked["bench growth --quick --no-record"] == 2 * budget.QUICK_S["growth"]
    assert "bench batch --quick --no-record" not in asked
    summary = json.loads(out.splitlines()[-1])
    assert (summary["value"], summary["met"]) == (len(budget.QUICK_S) - 2, False)
    assert "mask" not in summary["peers"]


RECORD = '{"name": "x", "value": 1, "unit": "s", "peers": {}, "limit": "", "ratio": 1, "goal": "", "met": true}'


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"print('working'); print('{RECORD}'); import sys; print('a last word', file=sys.stderr)", ""),
        ("print('nothing')", "without a result"),
        (f"print('{RECORD}'); raise SystemExit(1)", "exit code 1"),
    ],
)
def test_a_line_is_run_in_a_process_of_its_own(script: str, why: str) -> None:
    said: list[str] = []
    record, told = budget.run_line([sys.executable, "-c", script], 60, said.append)
    assert (record is None) is bool(why)
    assert why in told
    assert said


def test_a_line_that_hangs_is_cut_with_its_children(tmp_path: Path) -> None:
    child = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    said: list[str] = []
    began = time.monotonic()
    record, why = budget.run_line([sys.executable, "-c", child], 3, said.append)
    assert record is None
    assert why == "cut after its budget of 3 s"
    assert time.monotonic() - began < 60
    deadline = time.monotonic() + 20
    while Path(f"/proc/{said[0]}/stat").exists() and time.monotonic() < deadline:
        # One that nobody waits for stays as a zombie.
        if Path(f"/proc/{said[0]}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    assert time.monotonic() < deadline, "the child lives on"


def test_a_plot_without_points_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the dev extra has it")
    plots.draw([plots.Point("throughput-batch", "demo", x, x**0.5) for x in (1, 4)], tmp_path)
    assert [path.name for path in tmp_path.glob("*.png")] == ["throughput-batch.png"]
    assert (tmp_path / "index.html").read_text().count("<img") == 1


def test_what_cannot_run_here_is_left_out_of_the_growth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path) -> growth.Cost:
        raise ModelError("no engine for this machine")

    lines = (
        growth.Line("linear", "things", (1, 2, 4), (1, 2, 4), lambda folder: float, of="bytes"),
        growth.Line("distill", "exchanges", (1, 2, 4), (1, 2, 4), refused),
        growth.Line("steep", "things", (1, 2, 4), (1, 2, 4), lambda folder: lambda n: n**2.0, of="bytes"),
    )
    monkeypatch.setattr(growth, "LINES", lines)
    monkeypatch.setattr(plots, "draw", lambda points: "nothing")
    result = growth.run(quick=True)
    assert "distill is left out: no engine" in capsys.readouterr().out
    assert result.peers == {"linear": pytest.approx(1.0), "steep": pytest.approx(2.0)}
    assert (result.met, result.value) == (False, pytest.approx(2.0))
    monkeypatch.setattr(growth, "LINES", lines[:2])
    assert growth.run(quick=True).met is None
    monkeypatch.setattr(growth, "LINES", lines[:1])
    assert growth.run(quick=True).met is True


@pytest.mark.parametrize(
    ("points", "goal", "missed"),
    [
        ([(1, 1), (10, 10), (100, 100)], 1.15, False),
        ([(1, 1), (10, 20), (100, 400)], 1.15, True),
        ([(1, 1), (10, 30), (100, 250)], 1.15, False),  # 1.2, but one of three runs may be chance
        ([(1, 1), (10, 2.5), (100, 5)], 0.5, False),
        ([(1, 1), (10, 4), (100, 16)], 0.5, True),
    ],
)
def test_a_line_misses_its_goal_when_the_interval_says_so(
    points: list[tuple[float, float]], goal: float, missed: bool
) -> None:
    line = growth.Line("any", "things", (1, 10, 100), (1, 10, 100), lambda folder: float, goal)
    assert growth._missed(line, fit(points)) is missed
