"""What `backfill eval` does beside the grid: queries of one's own, and grading without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backfill.bundle import Bundle
from backfill.engines.base import Engine
from backfill.errors import UsageError
from backfill.evaluation import own_queries
from backfill.evaluation.collection import Group, read_collection
from backfill.evaluation.corpus import Query
from backfill.evaluation.evaluate import Labels, cannot, evaluate
from backfill.evaluation.graders import Graded, Grader, against_labels, grade_pool, pool_of
from backfill.evaluation.grid import Configuration, Grid
from backfill.evaluation.prepare import Prepared
from backfill.evaluation.product import rank_product
from backfill.evaluation.rank import Ranked, rank_all
from backfill.evaluation.statistics import paired

POOL_DEPTH = 10
# Of fewer queries no interval means anything.
MIN_COMPARED = 4


def queries(
    path: Path, out: Path, *, log: Path | None, writer: Engine | None, wanted: int
) -> tuple[dict[str, Any], list[str]]:
    """Writes the queries of a bundle's own user, of a log, and up to `wanted` by an engine; JSON record and lines."""
    collection = read_collection(Bundle.open(path))
    asked = own_queries.later_questions(collection)
    logged = own_queries.read_log(log) if log else []
    written: list[Query] = []
    if wanted:
        if writer is None:
            raise UsageError("--write needs an engine", hint="give its configuration with --grader CONFIG")
        try:
            written, _ = own_queries.written_questions(collection, writer, wanted)
        finally:
            writer.close()
    n = own_queries.write_queries(out, [*asked, *logged, *written])
    record = {"out": str(out), "queries": n, "asked": len(asked), "logged": len(logged), "synthesised": len(written)}
    line = f"{n} queries to {out}: {len(asked)} asked later, {len(logged)} of a log, {len(written)} synthesised"
    return record, [line]


def grade(
    prepared: Prepared,
    grid: Grid,
    graders: Sequence[Grader],
    tie_break: Grader | None,
    out: Path,
    limit: int = 0,
) -> tuple[Prepared, list[str]]:
    """Has the pool of the grid's top tens graded; the labels become the vote. Where the queries have labels already,
    these stay. The lines say how far graders agree, with each other or with those labels, and what holds by each one's
    grades alone. `limit` grades the pool of the first queries only (0: all)."""
    scores = prepared.scores
    runs, texts = [], {}
    for configuration in grid.configurations:
        if configuration.better_of or _unreachable(prepared, configuration):
            continue
        ranked = (
            rank_product(prepared.bundle, scores, configuration.product)
            if configuration.product
            else rank_all(scores, configuration)
        )
        runs.append({scores.queries[r.query].query_id: _names(prepared, r)[:POOL_DEPTH] for r in ranked})
    for group in scores.groups:
        texts.update(dict(zip(group.names, (scores.collection.texts["verbatim"][d] for d in group.docs), strict=True)))
    pool = pool_of(runs, {q.query_id: q.text for q in scores.queries[: limit or None]}, texts, POOL_DEPTH)
    graded = grade_pool(pool, graders, out / "grades", tie_break=tie_break)
    lines = [*_agreement_lines(graded, prepared.labels), *_lines_by_grader(prepared, graded, grid.main_part())]
    if prepared.labels.grades:
        return prepared, lines
    labels = replace(prepared.labels, grades=graded.grades())
    _write_grades(out / "grades.tsv", labels)
    kept = labels.graded()
    return replace(prepared, labels=replace(kept, queries=labels.queries, grades=_filled(labels))), lines


def _names(prepared: Prepared, ranked: Ranked) -> list[str]:
    group: Group = prepared.scores.groups[ranked.group]
    return [group.names[at] for at in ranked.order]


def _unreachable(prepared: Prepared, configuration: Configuration) -> bool:
    return bool(cannot(configuration, prepared.scores, {}))


def _agreement_lines(graded: Graded, labels: Labels) -> list[str]:
    found = graded.agreement
    lines = [f"{found.n_pairs:,} pairs graded; {found.n_ties} without a majority, {found.n_ungraded} without a grade"]
    lines += [f"Cohen's kappa (quadratic) {a} and {b}: {kappa:.2f}" for a, b, kappa in found.cohen]
    if found.fleiss is not None:
        lines.append(f"Fleiss' kappa of all: {found.fleiss:.2f}")
    for name, own in graded.by_grader.items() if labels.grades else ():
        said = against_labels(own, labels.grades)
        lines.append(
            f"{name} against the labels, {said['pairs']:,.0f} pairs: kappa {said['kappa']:.2f}, "
            f"precision {said['precision']:.2f}, recall {said['recall']:.2f}"
        )
    if not labels.grades:
        lines.append("Graders were not measured here: run them over a labelled set first (--corpus DIR --grader ...).")
    return lines


def _lines_by_grader(prepared: Prepared, graded: Graded, grid: Grid) -> list[str]:
    """The comparisons of the main configurations by each grader's own grades: does the trend hold for each?"""
    lines = []
    for name in graded.by_grader:
        labels = replace(prepared.labels, grades=graded.grades(name))
        known = np.array([query.query_id in labels.grades for query in prepared.scores.queries])
        if known.sum() < MIN_COMPARED:
            lines.append(f"by {name} alone: too few graded queries to compare anything")
            continue
        labels = replace(labels, grades=_filled(labels))
        found = evaluate(prepared.bundle, prepared.scores, labels, grid, baseline=grid.configurations[0].name)
        for pair in found.pairs:
            ours, theirs = (found.result(n).measures.mrr[known] for n in (pair.name, pair.against))
            compared = paired(ours, theirs)
            low, high = compared.ci95
            lines.append(
                f"by {name} alone, {known.sum()} queries: {pair.name} {ours.mean():.3f}, {pair.against} "
                f"{theirs.mean():.3f} ({compared.delta:+.3f}, {low:+.3f} to {high:+.3f}, p = {compared.p:.2g})"
            )
    return lines


def _filled(labels: Labels) -> dict[str, dict[str, float]]:
    """Grades of every query; one whose pool got no grade at all counts as found nothing."""
    return {query.query_id: dict(labels.grades.get(query.query_id, {})) for query in labels.queries}


def _write_grades(path: Path, labels: Labels) -> None:
    rows = [f"{query}\t{doc}\t{grade:g}\n" for query, by_doc in labels.grades.items() for doc, grade in by_doc.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("query\tdoc\tgrade\n" + "".join(rows), encoding="utf-8")
