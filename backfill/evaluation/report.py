"""An evaluation as JSON, a table, Parquet and an HTML page. Names and categories come from files, so all is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backfill.evaluation.evaluate import Comparison, Evaluation, Result
from backfill.evaluation.metrics import NAMES, Measures
from backfill.evaluation.statistics import Choice

_DIGITS = 5
_HEAD = ("MRR", "P@1", "nDCG@10", "R@5", "R@10", "mean grade")
_DELTA_HEAD = ("delta", "95% interval", "p (Holm)", "mde")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;border-bottom:1px solid #d6dae0;text-align:right}
th:first-child,td:first-child{text-align:left}
.wide{overflow-x:auto}
@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14171b}th,td{border-color:#343a42}}
"""


def to_tree(evaluation: Evaluation) -> dict[str, Any]:
    """The `eval --json` record."""
    return {
        "name": evaluation.name,
        "baseline": evaluation.baseline,
        "queries": len(evaluation.queries),
        "relevant": evaluation.relevant,
        "margin": evaluation.margin,
        "configurations": [_configuration(evaluation, result) for result in evaluation.results],
        "pairs": [{"against": c.against, "ratio": _short(c.ratio), **_comparison(c)} for c in evaluation.pairs],
        "choices": [{"axis": axis, **_choice(choice)} for axis, choice in evaluation.choices.items()],
        "tokens": {name: _short(getattr(evaluation.tokens, name)) for name in evaluation.tokens.__slots__},
        "skipped": [{"name": name, "reason": reason} for name, reason in evaluation.skipped.items()],
        "warnings": list(evaluation.warnings),
        "notes": list(evaluation.notes),
        "seconds": evaluation.seconds,
    }


def write_report(evaluation: Evaluation, folder: Path, title: str = "") -> list[Path]:
    """Writes eval.json, eval.parquet, queries.parquet and eval.html; returns their paths."""
    from backfill.ids import canonical_json

    folder.mkdir(parents=True, exist_ok=True)
    tree = to_tree(evaluation)
    paths = [folder / name for name in ("eval.json", "eval.parquet", "queries.parquet", "eval.html")]
    paths[0].write_bytes(canonical_json(tree) + b"\n")
    _write_parquet(paths[1], tree["configurations"])
    _write_queries(paths[2], evaluation)
    paths[3].write_text(page(evaluation, title or f"Retrieval on {evaluation.name}"), encoding="utf-8")
    return paths


def table_lines(evaluation: Evaluation) -> list[str]:
    """The notes, the results as lines of a table in the grid's order, and what they rest on."""
    rows: list[tuple[str, ...]] = [("configuration", *_HEAD, *_DELTA_HEAD, "B/exch")]
    rows += [_cells(evaluation, result) for result in evaluation.results]
    lines = [*evaluation.notes, *([""] if evaluation.notes else []), *aligned(rows)]
    categories = _category_table(evaluation, evaluation.main)
    if len(categories[0]) > 2:
        lines += ["", "MRR by category of queries:", *aligned(categories)]
    if evaluation.pairs:
        lines += ["", "distilled against verbatim, same mechanism:"]
        lines += aligned([_PAIR_HEAD, *map(_pair_cells, evaluation.pairs)])
    if evaluation.choices:
        lines += ["", "chosen on one half of the queries, reported on the other:"]
        lines += [_choice_line(axis, choice) for axis, choice in evaluation.choices.items()]
    return [*lines, "", *notes(evaluation)]


def notes(evaluation: Evaluation) -> list[str]:
    """What a reader must know beside the figures."""
    tokens = evaluation.tokens
    lines = [
        f"{len(evaluation.queries):,} queries; relevant means a grade of at least {evaluation.relevant:g}.",
        f"Deltas, intervals and p values are of MRR against {evaluation.baseline} (t test; Holm over the table).",
        f"Tokens per exchange: {tokens.verbatim:.1f} verbatim, {tokens.distilled:.1f} distilled ({tokens.ratio:.1f}x).",
        f"On {tokens.long_exchanges:,} exchanges of 300 tokens or more: {tokens.long_ratio:.1f}x.",
        "No significance is not equivalence: `mde` is the smallest difference that these queries could have shown.",
        f"Only a row marked non-inferior rules out a loss of {evaluation.margin:g} MRR.",
    ]
    lines += [f"{result.name} is {result.stands_for} here." for result in evaluation.results if result.stands_for]
    lines += [f"Not measured: {name} ({reason})." for name, reason in list(evaluation.skipped.items())[:5]]
    if len(evaluation.skipped) > 5:
        lines.append(f"Not measured: {len(evaluation.skipped) - 5} more, listed in eval.json.")
    return [*lines, *(f"Note: {warning}." for warning in evaluation.warnings)]


def page(evaluation: Evaluation, title: str) -> str:
    """The HTML page: one file, no scripts, no links."""
    head = ("configuration", *_HEAD, *_DELTA_HEAD, "bytes per exchange")
    category_head, *by_category_rows = _category_table(evaluation)
    parts = [
        _list("Graders", evaluation.notes),
        _table("All configurations", head, [_cells(evaluation, r) for r in evaluation.results]),
        _table("Distilled against verbatim, same mechanism", _PAIR_HEAD, map(_pair_cells, evaluation.pairs)),
        _table("By query category (MRR)", category_head, by_category_rows),
        _list("Chosen on one half, reported on the other",
              [_choice_line(axis, choice) for axis, choice in evaluation.choices.items()]),
        _list("Notes", notes(evaluation)),
    ]  # fmt: skip
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


_PAIR_HEAD = ("distilled", "verbatim", "ratio", "delta", "95% interval", "p", "p (Holm)", "p (Bonferroni)",
              "Wilcoxon", "d", "mde", "non-inferior")  # fmt: skip


def _configuration(evaluation: Evaluation, result: Result) -> dict[str, Any]:
    comparison = evaluation.against_baseline[result.name]
    return {
        **_comparison(comparison),
        **_means(result.measures),
        "axis": result.configuration.axis,
        "stands_for": result.stands_for,
        "bytes_per_exchange": _short(result.bytes_per_exchange),
        "seconds": result.seconds,
        "by_category": [
            {"category": name, "queries": len(part.mrr), **_means(part)}
            for name, part in by_category(evaluation, result.measures).items()
        ],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    paired = comparison.paired
    return {
        "name": comparison.name,
        "delta": _short(paired.delta),
        "ci95": [_short(paired.ci95[0]), _short(paired.ci95[1])],
        "p": paired.p,
        "p_holm": comparison.p_holm,
        "p_bonferroni": comparison.p_bonferroni,
        "p_wilcoxon": paired.p_wilcoxon,
        "d": _short(paired.d),
        "mde": _short(paired.mde),
        "p_noninferior": paired.p_noninferior,
        "noninferior": paired.noninferior,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "reported": _short(choice.reported),
        "baseline": _short(choice.baseline),
        "delta": _short(choice.reported - choice.baseline),
        "ci95": [_short(choice.low), _short(choice.high)],
        "chosen": [{"name": name, "times": times} for name, times in choice.chosen],
    }


def by_category(evaluation: Evaluation, measures: Measures) -> dict[str, Measures]:
    """Measures of the queries of each category, categories by name."""
    import numpy as np

    categories = np.array([query.category for query in evaluation.queries])
    return {str(name): measures.at(categories == name) for name in np.unique(categories)}


def _means(measures: Measures) -> dict[str, float]:
    return {name: _short(value) for name, value in measures.means().items()}


def _short(value: float) -> float:
    return round(float(value), _DIGITS)


def _cells(evaluation: Evaluation, result: Result) -> tuple[str, ...]:
    means = result.measures.means()
    comparison = evaluation.against_baseline[result.name]
    paired = comparison.paired
    same = result.name == evaluation.baseline
    delta = (f"{paired.delta:+.3f}", _interval(paired.ci95), _p(comparison.p_holm), f"{paired.mde:.3f}")
    tail = ("",) * len(delta) if same else delta
    size = f"{result.bytes_per_exchange:,.0f}" if result.bytes_per_exchange else ""
    return (result.name, *(f"{means[name]:.3f}" for name in NAMES), *tail, size)


def _pair_cells(comparison: Comparison) -> tuple[str, ...]:
    paired = comparison.paired
    return (
        comparison.name,
        comparison.against,
        f"{comparison.ratio:.1%}",
        f"{paired.delta:+.3f}",
        _interval(paired.ci95),
        _p(paired.p),
        _p(comparison.p_holm),
        _p(comparison.p_bonferroni),
        _p(paired.p_wilcoxon),
        f"{paired.d:+.2f}",
        f"{paired.mde:.3f}",
        "yes" if paired.noninferior else "no",
    )


def _choice_line(axis: str, choice: Choice) -> str:
    winners = ", ".join(f"{name} ({times})" for name, times in choice.chosen[:3])
    return (
        f"{axis}: MRR {choice.reported:.3f} against {choice.baseline:.3f} "
        f"({choice.reported - choice.baseline:+.3f}, middle 95% of splits {choice.low:+.3f} to {choice.high:+.3f}); "
        f"chosen: {winners}"
    )


def _category_table(evaluation: Evaluation, names: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Rows of MRR by category, the head first; of all configurations, or of those that `names` holds."""
    shown = [result for result in evaluation.results if not names or result.name in names]
    split = {result.name: by_category(evaluation, result.measures) for result in shown}
    first = next(iter(split.values()), {})
    head = ("configuration", *(f"{name} ({len(part.mrr)})" for name, part in first.items()))
    return [head, *((r, *(f"{part.mrr.mean():.3f}" for part in parts.values())) for r, parts in split.items())]


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:+.3f} to {bounds[1]:+.3f}"


def _p(value: float) -> str:
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>\n" for row in rows)
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    return (
        f'<h2>{html.escape(title)}</h2><div class="wide"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        if body
        else ""
    )


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<h2>{html.escape(title)}</h2><ul>{items}</ul>" if lines else ""


def _write_parquet(path: Path, configurations: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([dict(row) for row in configurations]), path, compression="zstd")


def _write_queries(path: Path, evaluation: Evaluation) -> None:
    """One row a configuration and query, so that anyone can test what we did not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = len(evaluation.queries)
    columns: dict[str, list[Any]] = {
        "configuration": [result.name for result in evaluation.results for _ in range(n)],
        "query": [query.query_id for _ in evaluation.results for query in evaluation.queries],
        "category": [query.category for _ in evaluation.results for query in evaluation.queries],
    }
    for name in NAMES:
        columns[name] = [float(v) for result in evaluation.results for v in getattr(result.measures, name)]
    pq.write_table(pa.table(columns), path, compression="zstd")
