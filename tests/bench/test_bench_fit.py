"""The benchmark's own arithmetic: exponents, plots, and that every line names tests that exist."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import plots
from bench.fit import fit
from bench.lines import LINES
from tests.conftest import ROOT


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
