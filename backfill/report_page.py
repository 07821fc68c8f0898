"""The page of `backfill report`: one self-contained HTML file, in the look of the web pages, without a script.

All figures are those of the record (`report.report_of`); pictures are SVG drawn here, coloured by the look's tokens, so
light and dark follow the reader's system. Deliberately absent: a plotting library, whose pages are megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backfill.web.look import escape, standalone_page

_CSS = """
.report h2 { margin-top: var(--gap-5); margin-bottom: var(--gap-2); }
.report svg { display: block; width: 100%; height: auto; }
.report svg text { fill: var(--ink); font: 13px var(--sans); }
.report svg .quiet { fill: var(--soft); font-size: 12px; }
.report svg .axis { stroke: var(--line); stroke-width: 1; }
.report .figures { display: flex; flex-wrap: wrap; gap: var(--gap-3); margin-top: var(--gap-4); }
.report .figure { background: var(--sheet); border: 1px solid var(--line); border-radius: var(--round); padding: var(--gap-3); min-width: 9rem; }
.report .figure b { display: block; font-size: var(--size-5); font-weight: 600; }
.report .scroll { overflow-x: auto; }
.report td.number, .report th.number { text-align: right; font-variant-numeric: tabular-nums; }
.report .warnings { background: var(--warn-wash); border-radius: var(--round); padding: var(--gap-3) var(--gap-4); margin-top: var(--gap-4); }
.report .warnings h2 { margin-top: 0; color: var(--warn); }
.report .warnings ul { margin: 0; padding-left: 1.2em; }
.report .rooms { display: flex; flex-wrap: wrap; gap: var(--gap-2); }
.report .rooms span { background: var(--sunk); border-radius: 4px; padding: 0 var(--gap-2); }
.report .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: var(--gap-4); }
.s0 { fill: var(--series-0); } .s1 { fill: var(--series-1); } .s2 { fill: var(--series-2); }
.s3 { fill: var(--series-3); } .s4 { fill: var(--series-4); } .s5 { fill: var(--series-5); }
.s6 { fill: var(--series-6); } .s7 { fill: var(--series-7); } .s8 { fill: var(--series-8); }
.rest { fill: var(--series-rest); } .warn { fill: var(--warn); }
.band { opacity: 0.32; }
"""  # noqa: E501
_STATE_CLASS = {"part_of": "s0", "duplicate": "s2", "skipped": "rest", "quarantined": "warn", "pending": "s1",
                "container": "s5"}  # fmt: skip
_WIDTH = 1080
_LABEL_STEP = 17
_MANY = 9


def page(record: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [
        f"<h1>Report of a {escape(record['kind'])}</h1>",
        f'<p class="soft"><code>{escape(record["path"])}</code></p>',
        _figures(record),
        _warnings(record["warnings"]),
        _section("Where every byte went" if record["flow"]["unit"] == "bytes" else "Where every record went",
                 _flow(record["flow"])),
        _section("Throughput by worker", _throughput(record["throughput"])),
        _section("Tiers", _bars(record["tiers"])),
        '<div class="columns">',
        _section("Findings of the fidelity checks", _bars(record["findings"], nothing="No finding.")),
        _section("Refused answers", _bars(record["failures"], nothing="None.")),
        "</div>",
        _section("Rooms with the most exchanges", _rooms(record["rooms"])),
        _section("Slowest shards", _table(("shard", "product", "n", "engine_s", "retries"), record["slowest"])),
        _section("Cost of 1,000 exchanges", _pairs(record["cost"] or {}, "No engine was asked.")),
        _section("Gate", _pairs(record["gate"], "No engine here needs a verdict.")),
        _section("Fingerprints", _pairs(record["fingerprints"], "None.")),
        _section("Configuration", _folded("All settings", _pairs(dict(_flat(record["config"])), "Not recorded."))),
    ]  # fmt: skip
    return standalone_page("Report", f'<div class="report">{"".join(parts)}</div>', css=_CSS)


def _figures(record: Mapping[str, Any]) -> str:
    tokens = record["tokens"]
    visible = record["counts"].get("visible_exchanges", sum(record["tiers"].values()))
    shown = [
        (f"{visible:,}", "exchanges"),
        (f"{tokens['before']:,.0f} → {tokens['after']:,.0f}", "tokens an exchange"),
        (f"{tokens['compression']:.1f}x", "compression"),
        (_amount(record["flow"]["total"], record["flow"]["unit"]), "read"),
        ("balanced" if record["flow"]["balanced"] else "NOT balanced", "ledger"),
    ]
    cells = "".join(f'<div class="figure"><b>{escape(value)}</b>{escape(name)}</div>' for value, name in shown)
    return f'<div class="figures">{cells}</div>'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return '<p class="soft">Nothing needs a person.</p>'
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f'<div class="warnings"><h2>Needs a person</h2><ul>{items}</ul></div>'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _flow(flow: Mapping[str, Any]) -> str:
    """Sources on the left, what became of them on the right; heights are amounts, so both sides are equally high."""
    total = flow["total"]
    if not total:
        return '<p class="soft">Nothing was read.</p>'
    left = [(name, size, f"s{i % _MANY}") for i, (name, size) in enumerate(flow["sources"].items())]
    right = [
        (f"{state}: {reason}" if reason else state, size, _STATE_CLASS.get(state, "rest"))
        for state, reasons in flow["states"].items()
        for reason, size in reasons.items()
    ]
    left, right = _fewer(left), _fewer(sorted(right, key=lambda row: -row[1]))
    rows = max(len(left), len(right))
    height = max(220, rows * _LABEL_STEP + 40)
    bars = height - 40
    shapes = [
        _side(left, total, bars, flow["unit"], x=250, band_to=530, anchor="end", label_x=242),
        _side(right, total, bars, flow["unit"], x=818, band_to=550, anchor="start", label_x=838),
        f'<rect class="s8" x="530" y="20" width="20" height="{bars}"></rect>',
    ]
    caption = f"{_amount(total, flow['unit'])}: {_amount(sum(r[1] for r in left), flow['unit'])} from "
    caption += f"{len(flow['sources'])} sources, {_amount(sum(r[1] for r in right), flow['unit'])} accounted for."
    return _svg(height, shapes, caption) + f'<p class="soft small">{escape(caption)}</p>'


def _side(
    rows: Sequence[tuple[str, int, str]],
    total: int,
    height: int,
    unit: str,
    *,
    x: int,
    band_to: int,
    anchor: str,
    label_x: int,
) -> str:
    """One side's bars, their bands to the middle bar, and labels that keep a line's distance."""
    top, label_y = 20.0, 0.0
    latest = 20 + height
    shapes = []
    for i, (name, size, kind) in enumerate(rows):
        high = height * size / total
        near, far = (x + 12, band_to) if band_to > x else (x, band_to)
        shapes.append(
            f'<path class="{kind} band" d="M{near} {top:.2f}L{far} {top:.2f}L{far} {top + high:.2f}'
            f'L{near} {top + high:.2f}Z"></path>'
            f'<rect class="{kind}" x="{x}" y="{top:.2f}" width="12" height="{max(high, 1):.2f}"></rect>'
        )
        left_below = (len(rows) - 1 - i) * _LABEL_STEP
        label_y = max(label_y + _LABEL_STEP, min(top + high / 2 + 4, latest - left_below))
        text = f"{escape(_short(name))} <tspan class='quiet'>{escape(_amount(size, unit))} {size / total:.1%}</tspan>"
        shapes.append(f'<text x="{label_x}" y="{label_y:.1f}" text-anchor="{anchor}">{text}</text>')
        top += high
    return "".join(shapes)


def _fewer(rows: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """At most 16 rows; the smallest become one."""
    rows = sorted(rows, key=lambda row: -row[1])
    if len(rows) <= 16:
        return rows
    return [*rows[:15], (f"{len(rows) - 15} others", sum(row[1] for row in rows[15:]), "rest")]


def _throughput(record: Mapping[str, Any]) -> str:
    """Items a second over time, workers stacked."""
    workers: Mapping[str, Sequence[float]] = record["workers"]
    if not workers:
        return '<p class="soft">No worker left event lines.</p>'
    bin_s, bins = record["bin_s"], len(record["bins"])
    names = sorted(workers, key=lambda name: -sum(workers[name]))
    shown = names[: _MANY - 1]
    series = [(name, list(workers[name]), f"s{i}") for i, name in enumerate(shown)]
    if len(names) > len(shown):
        rest = [sum(workers[name][i] for name in names[len(shown) :]) for i in range(bins)]
        series.append((f"{len(names) - len(shown)} others", rest, "rest"))
    peak = max(sum(values[i] for _, values, _ in series) for i in range(bins)) or 1.0
    wide, high = (_WIDTH - 80) / bins, 180
    base = [0.0] * bins
    shapes = []
    for _, values, kind in series:
        for i, value in enumerate(values):
            if value:
                y = 20 + high * (1 - (base[i] + value) / peak)
                shapes.append(
                    f'<rect class="{kind}" x="{60 + i * wide:.1f}" y="{y:.2f}" width="{wide - 1:.1f}" '
                    f'height="{high * value / peak:.2f}"></rect>'
                )
                base[i] += value
    lasted_s = bin_s * bins
    lasted = f"{lasted_s / 60:,.1f} min" if lasted_s >= 120 else f"{lasted_s:,.0f} s"
    shapes += [
        f'<line class="axis" x1="60" x2="{_WIDTH - 20}" y1="200" y2="200"></line>',
        f'<text class="quiet" x="54" y="30" text-anchor="end">{peak / bin_s:,.1f}/s</text>',
        '<text class="quiet" x="54" y="200" text-anchor="end">0</text>',
        '<text class="quiet" x="60" y="218">start</text>',
        f'<text class="quiet" x="{_WIDTH - 20}" y="218" text-anchor="end">{lasted}</text>',
    ]
    for i, (name, values, kind) in enumerate(series):
        x, y = 60 + (i % 4) * 250, 244 + (i // 4) * 20
        shapes.append(f'<rect class="{kind}" x="{x}" y="{y - 10}" width="12" height="12"></rect>')
        shapes.append(f'<text x="{x + 18}" y="{y}">{escape(_short(name))}: {sum(values):,.0f} items</text>')
    return _svg(250 + 20 * ((len(series) - 1) // 4), shapes, "Items a second of the distill stage, by worker")


def _svg(height: int, shapes: Iterable[str], label: str) -> str:
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(shapes)}</svg></div>"
    )


def _bars(counts: Mapping[str, int], nothing: str = "Nothing.") -> str:
    total = sum(counts.values())
    if not total:
        return f'<p class="soft">{escape(nothing)}</p>'
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{n:,}</td><td class="number">{n / total:.1%}</td><td>'
        f'<svg viewBox="0 0 200 10" width="200" height="10" aria-hidden="true">'
        f'<rect class="s0" width="{200 * n / total:.1f}" height="10"></rect></svg></td></tr>'
        for name, n in counts.items()
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def _rooms(rooms: Sequence[Mapping[str, Any]]) -> str:
    tags = "".join(
        f'<span>{escape(room["room_label"])} <span class="soft small">{escape(room["room_type"])} '
        f"{room['n_exchanges']:,}</span></span>"
        for room in rooms
    )
    return f'<div class="rooms">{tags}</div>' if tags else '<p class="soft">No bundle yet.</p>'


def _table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return '<p class="soft">None.</p>'
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(row[name]))}</td>" for name in names) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _pairs(pairs: Mapping[str, Any], nothing: str) -> str:
    if not pairs:
        return f'<p class="soft">{escape(nothing)}</p>'
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td><code>{escape(_value(value))}</code></td></tr>"
        for name, value in pairs.items()
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _amount(size: float, unit: str) -> str:
    if unit != "bytes":
        return f"{size:,.0f} {unit}"
    for name, power in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= power:
            return f"{size / power:,.1f} {name}"
    return f"{size:,.0f} B"


def _short(name: str) -> str:
    return name if len(name) <= 32 else name[:31] + "…"
