"""The page of `backfill bench`: one self-contained HTML file, in the look of the web pages, without a script.

A figure for each setting that was swept: exchanges a second against its values, the others as configured, with the 95%
interval of each. Pictures are SVG drawn here, as in the report's page. Deliberately absent: a plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill.throughput.record import COLUMNS, rows_of
from backfill.web.look import escape, standalone_page

_CSS = """
.bench h2 { margin-top: var(--gap-5); margin-bottom: var(--gap-2); }
.bench .plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: var(--gap-4); }
.bench svg { display: block; width: 100%; max-width: 36rem; height: auto; }
.bench svg text { fill: var(--ink); font: 13px var(--sans); }
.bench svg .quiet { fill: var(--soft); font-size: 12px; }
.bench svg .axis { stroke: var(--line); stroke-width: 1; }
.bench svg .line { stroke: var(--series-0); stroke-width: 2; fill: none; }
.bench svg .spread { stroke: var(--series-0); stroke-width: 1.5; opacity: 0.6; }
.bench svg .dot { fill: var(--series-0); }
.bench svg .own { fill: var(--series-1); }
.bench .scroll { overflow-x: auto; }
.bench td, .bench th { white-space: nowrap; }
.bench td.number, .bench th.number { text-align: right; font-variant-numeric: tabular-nums; }
.bench .pick { background: var(--sunk); border-radius: var(--round); padding: var(--gap-3) var(--gap-4); }
"""
_LEGEND = (
    "Rates are of one engine; ± is the relative half width of their 95% interval. Hours are those of one GPU (of this "
    "machine where it has none) for a million exchanges, retries and claims included. Failed, invented, mangled, "
    "dropped and secrets are counted over first answers."
)
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BASE = 520, 270, 60, 500, 20, 220


@dataclass(frozen=True, slots=True)
class Point:
    """A value of an axis: its label, exchanges a second, and the half width of their interval."""

    label: str
    rate: float
    half: float
    own: bool


def page(record: Mapping[str, Any], axes: Mapping[str, Sequence[Point]]) -> str:
    """The whole page of a record and the points of each axis that has more than one."""
    plots = "".join(_plot(key, points) for key, points in axes.items() if len(points) > 1)
    asked = f"{record['config']}: first answers about {record['exchanges']:,} exchanges and {record['windows']:,} "
    asked += "windows of your own transcripts."
    asked += "" if record["finished"] else " Not finished: the same command goes on."
    parts = [
        "<h1>Throughput of an engine's settings</h1>",
        f'<p class="soft">{escape(asked)}</p>',
        _recommended(record["recommended"]),
        "<h2>Settings side by side</h2>",
        _table(rows_of(dict(record))),
        f'<p class="soft small">{escape(_LEGEND)}</p>',
        f'<h2>Exchanges a second</h2><div class="plots">{plots}</div>' if plots else "",
    ]
    return standalone_page("Throughput", f'<div class="bench">{"".join(parts)}</div>', css=_CSS)


def points_of(cells: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> dict[str, list[Point]]:
    """The points of every axis: the configuration itself, and the cells that differ from it in this setting alone.

    `own` has the configuration's own value of each axis.
    """
    base = next((cell for cell in cells if not cell["changes"] and not cell["failure"]), None)
    found: dict[str, list[tuple[Any, Point]]] = {}
    for key, value in own.items():
        if base is not None:
            found[key] = [(value, _point(value, base, own=True))]
    for cell in cells:
        if len(cell["changes"]) == 1 and not cell["failure"]:
            ((key, value),) = cell["changes"].items()
            found.setdefault(key, []).append((value, _point(value, cell, own=False)))
    return {key: [point for _, point in sorted(points, key=_by_value)] for key, points in found.items()}


def _by_value(item: tuple[Any, Point]) -> tuple[bool, float, str]:
    value = item[0]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return not number, float(value) if number else 0.0, str(value)


def _point(value: Any, cell: Mapping[str, Any], *, own: bool) -> Point:
    return Point(str(value), cell["exchanges_s"], cell["exchanges_s"] * cell["error"], own)


def _recommended(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return '<p class="soft">Nothing was measured.</p>'
    return (
        f'<div class="pick"><b>Recommended: {escape(found["name"])}</b><br>'
        f'<span class="soft">{escape(found["reason"])}.</span></div>'
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    kinds = ["", *["number"] * (len(COLUMNS) - 2), ""]
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for name, kind in zip(COLUMNS, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td class="{k}">{escape(v)}</td>' for v, k in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _plot(key: str, points: Sequence[Point]) -> str:
    """Evenly spaced values, for they are halves and doubles of each other or names; the ordinate begins at 0."""
    top = _rounded_up(max(point.rate + point.half for point in points))
    step = (_RIGHT - _LEFT) / len(points)
    xs = [_LEFT + step * (i + 0.5) for i in range(len(points))]
    ys = [_y(point.rate, top) for point in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    shapes = [
        f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_y(top * part, top):.1f}" y2="{_y(top * part, top):.1f}">'
        f'</line><text class="quiet" x="{_LEFT - 6}" y="{_y(top * part, top) + 4:.1f}" text-anchor="end">'
        f"{top * part:g}</text>"
        for part in (0, 0.5, 1)
    ]
    if all(_is_number(point.label) for point in points):
        shapes.append(f'<polyline class="line" points="{line}"></polyline>')
    for x, y, point in zip(xs, ys, points, strict=True):
        label = escape(_short(point.label))
        low, high = _y(max(0.0, point.rate - point.half), top), _y(point.rate + point.half, top)
        shapes.append(
            f'<line class="spread" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"></line>'
            f'<circle class="{"own" if point.own else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="5"></circle>'
            f'<text x="{x + 9:.1f}" y="{y - 7:.1f}">{point.rate:.3g}</text>'
            f'<text class="quiet" x="{x:.1f}" y="{_BASE + 18}" text-anchor="middle">{label}</text>'
        )
    shapes.append(f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BASE + 42}" text-anchor="middle">{escape(key)}</text>')
    label = f"Exchanges a second against {key}"
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'


def _y(rate: float, top: float) -> float:
    return _BASE - (_BASE - _TOP) * rate / top


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 4, 5 or 10 times a power of ten; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((power * step for step in (1, 2, 4, 5) if value <= power * step), power * 10)


def _is_number(label: str) -> bool:
    return label.replace(".", "", 1).isdigit()


def _short(label: str) -> str:
    return label if len(label) <= 22 else f"…{label[-21:]}"
