"""What `backfill eval` does beside the grid: queries of one's own, grading without labels, delivered answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill.bundle import Bundle
from backfill.engines.base import Engine
from backfill.errors import UsageError
from backfill.evaluation import own_queries
from backfill.evaluation.collection import Collection, Group, read_collection
from backfill.evaluation.corpus import Corpus, Query
from backfill.evaluation.delivered import (
    Change,
    Delivery,
    Question,
    Source,
    Verdict,
    caveats,
    change,
    good_given_hit,
    judge,
    questions_of,
    raw_cut,
    whole_facts,
)
from backfill.evaluation.evaluate import Labels
from backfill.evaluation.graders import Graded, Grader, against_labels, grade_pool, pool_of
from backfill.evaluation.grid import Configuration, Grid, Signal
from backfill.evaluation.prepare import Prepared
from backfill.evaluation.product import rank_product
from backfill.evaluation.rank import Ranked, rank_all

POOL_DEPTH = 10
TOP = 3


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
    prepared: Prepared, grid: Grid, graders: Sequence[Grader], tie_break: Grader | None, out: Path
) -> tuple[Prepared, list[str]]:
    """Has the pool of the grid's top tens graded; the labels become the vote. Where the queries have labels already,
    these stay, and the lines say how far each grader agrees with them."""
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
    pool = pool_of(runs, {q.query_id: q.text for q in scores.queries}, texts, POOL_DEPTH)
    graded = grade_pool(pool, graders, out / "grades", tie_break=tie_break)
    lines = _agreement_lines(graded, prepared.labels)
    if prepared.labels.grades:
        return prepared, lines
    labels = replace(prepared.labels, grades=graded.grades())
    _write_grades(out / "grades.tsv", labels)
    kept = labels.graded()
    return replace(prepared, labels=replace(kept, queries=labels.queries, grades=_filled(labels))), lines


def answers(prepared: Prepared, corpus: Corpus, budget_chars: int) -> tuple[dict[str, Any], list[str]]:
    """Whether answers are delivered within a budget: raw text cut against whole facts. JSON record and lines.

    `paired`: both from the default ranking. `before_after`: stock BM25 and raw text, then the default and whole facts.
    """
    questions = {q.query_id: q for q in questions_of(corpus.queries, corpus.documents)}
    if not questions:
        raise UsageError(f"{corpus.name} has no question with evidence", hint="queries need `answer` and `evidence`")
    scores = prepared.scores
    stock = {r.query: r for r in rank_all(scores, Configuration("stock", (Signal("stock", ("verbatim",)),)))}
    default = {r.query: r for r in rank_product(prepared.bundle, scores, "default")}
    verdicts: dict[str, dict[str, Verdict]] = {"stock_raw": {}, "default_raw": {}, "default_whole": {}}
    hits: dict[str, dict[str, bool]] = {"stock_raw": {}, "default_whole": {}}
    for number, query in enumerate(scores.queries):
        question = questions.get(query.query_id)
        if question is None:
            continue
        before, after = (_sources(prepared, runs[number]) for runs in (stock, default))
        deliveries: dict[str, Delivery] = {
            "stock_raw": raw_cut(before, budget_chars),
            "default_raw": raw_cut(after, budget_chars),
            "default_whole": whole_facts(after, question.text, budget_chars),
        }
        for arm, delivery in deliveries.items():
            verdicts[arm][query.query_id] = judge(question, delivery)
        for arm, sources in (("stock_raw", before), ("default_whole", after)):
            hits[arm][query.query_id] = _hit(question, sources)
    return _answers_record(corpus.name, budget_chars, verdicts, hits, corpus)


def _answers_record(
    name: str,
    budget_chars: int,
    verdicts: dict[str, dict[str, Verdict]],
    hits: dict[str, dict[str, bool]],
    corpus: Corpus,
) -> tuple[dict[str, Any], list[str]]:
    n = len(verdicts["stock_raw"])
    arms = {
        arm: {measure: {q: bool(getattr(v, measure)) for q, v in found.items()} for measure in ("useful", "grounded")}
        for arm, found in verdicts.items()
    }
    designs = {"paired": ("default_raw", "default_whole"), "before_after": ("stock_raw", "default_whole")}
    changes = {
        design: {m: change(arms[a][m], arms[b][m]) for m in ("useful", "grounded")}
        for design, (a, b) in designs.items()
    }
    cut = {arm: sum(v.cut for v in found.values()) for arm, found in verdicts.items()}
    given = {arm: good_given_hit(arms[arm]["grounded"], found) for arm, found in hits.items()}
    top = {arm: sum(found.values()) / max(n, 1) for arm, found in hits.items()}
    said = caveats(n, synthesised=sum(query.synthesised for query in corpus.queries))
    record = {
        "name": name,
        "questions": n,
        "budget_chars": budget_chars,
        "designs": {d: {m: _change(c) for m, c in by.items()} for d, by in changes.items()},
        "cut": cut,
        "relevant_in_top3": top,
        "good_given_hit": given,
        "caveats": said,
    }
    lines = [f"{name}: {n} questions, {budget_chars:,} characters of context"]
    for design, by in changes.items():
        for measure, c in by.items():
            lines.append(
                f"{design}, {measure}: {c.before / c.n:.1%} -> {c.after / c.n:.1%} ({c.gained} gained, {c.lost} lost, "
                f"McNemar exact p = {c.p:.4g})"
            )
    lines.append(f"cut in the middle of the answer: {cut['default_raw']} of raw, {cut['default_whole']} of whole facts")
    lines += [f"{arm}: relevant in the top 3 {top[arm]:.1%}, grounded given that {given[arm]:.1%}" for arm in hits]
    return record, [*lines, *(f"Note: {line}" for line in said)]


def _change(found: Change) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__slots__}


def _sources(prepared: Prepared, ranked: Ranked, depth: int = 60) -> list[Source]:
    collection, group = prepared.scores.collection, prepared.scores.groups[ranked.group]
    claims = _claims_of(collection)
    sources = []
    for at in ranked.order[:depth]:
        doc = int(group.docs[at])
        own = (collection.texts["core"][doc], collection.texts["context"][doc])
        lines = tuple(dict.fromkeys(filter(None, (*claims.get(doc, ()), *own))))
        sources.append(Source(group.names[at], collection.texts["verbatim"][doc], lines))
    return sources


_claims_memo: dict[int, dict[int, tuple[str, ...]]] = {}


def _claims_of(collection: Collection) -> dict[int, tuple[str, ...]]:
    if id(collection) not in _claims_memo:
        found: dict[int, list[str]] = {}
        for text, docs in collection.claims:
            for doc in docs:
                found.setdefault(int(doc), []).append(text)
        _claims_memo[id(collection)] = {doc: tuple(texts) for doc, texts in found.items()}
    return _claims_memo[id(collection)]


def _hit(question: Question, sources: Sequence[Source]) -> bool:
    return any(source.doc in question.evidence for source in sources[:TOP])


def _names(prepared: Prepared, ranked: Ranked) -> list[str]:
    group: Group = prepared.scores.groups[ranked.group]
    return [group.names[at] for at in ranked.order]


def _unreachable(prepared: Prepared, configuration: Configuration) -> bool:
    from backfill.evaluation.evaluate import cannot

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
    return [*lines, ""]


def _filled(labels: Labels) -> dict[str, dict[str, float]]:
    """Grades of every query; one whose pool got no grade at all counts as found nothing."""
    return {query.query_id: dict(labels.grades.get(query.query_id, {})) for query in labels.queries}


def _write_grades(path: Path, labels: Labels) -> None:
    rows = [f"{query}\t{doc}\t{grade:g}\n" for query, by_doc in labels.grades.items() for doc, grade in by_doc.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("query\tdoc\tgrade\n" + "".join(rows), encoding="utf-8")
