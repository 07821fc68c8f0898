"""Plots of what `bench.growth` and `bench.batch` measured: PNG files, and one page that shows them, in `bench/plots`.

The points are kept as a table beside them, so that anyone can draw them anew (`python -m bench.plots`); who measures
one plot leaves the points of the others as they are. Needs matplotlib (the `dev` extra); where it is missing the table
alone is written.
"""

from __future__ import annotations

import csv
import statistics
from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backfill.web.look import escape, standalone_page
from bench.harness import machine

FOLDER = Path(__file__).with_name("plots")


class Point(NamedTuple):
    """One measurement of a plot."""

    plot: str
    series: str
    x: float
    y: float


# (title, abscissa, ordinate)
PLOTS = {
    "throughput-batch": ("Throughput against batch", "requests in flight", "exchanges/s"),
    "query-size": ("Query time against size", "exchanges in the bundle", "CPU ms a query"),
}


def draw(points: Sequence[Point], folder: Path = FOLDER) -> str:
    """Writes `points.csv`, a PNG for each plot and `index.html`; returns in words what was written.

    Points of plots that `points` says nothing of are taken from the `points.csv` that is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = {point.plot for point in points}
    points = [*points, *(point for point in kept(folder) if point.plot not in told)]
    with (folder / "points.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        writer.writerows((plot, series, f"{x:g}", f"{y:.4g}") for plot, series, x, y in points)
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return f"{folder / 'points.csv'}; matplotlib, which would draw them, is not installed"
    mpl.use("Agg")
    of_plot = {name: [point for point in points if point.plot == name] for name in PLOTS}
    drawn = {name: _png(name, found, folder / f"{name}.png") for name, found in of_plot.items() if found}
    (folder / "index.html").write_text(page(drawn, points), encoding="utf-8")
    return str(folder / "index.html")


def kept(folder: Path = FOLDER) -> list[Point]:
    """The points of earlier measurements; none where there is no table."""
    path = folder / "points.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Point(row["plot"], row["series"], float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]


def _png(name: str, points: Sequence[Point], path: Path) -> bytes:
    """Medians joined by lines, every run a dot."""
    from matplotlib.figure import Figure

    title, abscissa, ordinate = PLOTS[name]
    figure = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for series, found in _by_series(points).items():
        medians = sorted((x, statistics.median(ys)) for x, ys in found.items())
        (line,) = axes.plot(*zip(*medians, strict=True), marker="o", label=series)
        dots = [(x, y) for x, ys in found.items() for y in ys]
        axes.scatter(*zip(*dots, strict=True), s=8, alpha=0.5, color=line.get_color())
    axes.set(title=title, xlabel=abscissa, ylabel=ordinate, xscale="log")
    axes.set_xticks(sorted({point.x for point in points}), [f"{x:,.0f}" for x in sorted({p.x for p in points})])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    # Without the version of the library in it, equal points give equal files.
    figure.savefig(path, metadata={"Software": None})
    return path.read_bytes()


def page(drawn: dict[str, bytes], points: Sequence[Point]) -> str:
    """A page that stands alone: pictures inside, the points below each."""
    parts = ["<h1>Benchmarks</h1>", f'<p class="soft">{escape(machine())}</p>']
    for name, image in drawn.items():
        title, abscissa, ordinate = PLOTS[name]
        data = b64encode(image).decode()
        rows = "".join(
            f"<tr><td>{escape(series)}</td><td>{x:,.0f}</td><td>{statistics.median(ys):.3g}</td></tr>"
            for series, found in _by_series([p for p in points if p.plot == name]).items()
            for x, ys in sorted(found.items())
        )
        parts.append(
            f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
            f"<table><tr><th></th><th>{escape(abscissa)}</th><th>{escape(ordinate)}, median</th></tr>{rows}</table>"
        )
    return standalone_page("Benchmarks", "".join(parts)).replace(
        "default-src 'none';", "default-src 'none'; img-src data:;"
    )


def _by_series(points: Sequence[Point]) -> dict[str, dict[float, list[float]]]:
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        found[point.series][point.x].append(point.y)
    return found


if __name__ == "__main__":
    print(draw([]))
