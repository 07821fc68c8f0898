"""`eval answers`: is what a question asks for delivered within a budget? Two designs, judged by spans and by models.

`paired`: raw text cut at the budget against whole facts, both from the default ranking. `before_after`: stock BM25 with
raw text, then the default with whole facts. The span judge always speaks; models judge beside it where they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backfill.errors import UsageError
from backfill.evaluation.corpus import Corpus
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
from backfill.evaluation.graders import Grader
from backfill.evaluation.grid import Configuration, Signal
from backfill.evaluation.judges import Case, answers_of, verdicts_of
from backfill.evaluation.prepare import Prepared
from backfill.evaluation.product import rank_product
from backfill.evaluation.rank import Ranked, rank_all

TOP = 3
# Exchanges that a context may be made of.
DEPTH = 60
DESIGNS = {"paired": ("default_raw", "default_whole"), "before_after": ("stock_raw", "default_whole")}
ARMS = ("stock_raw", "default_raw", "default_whole")
MEASURES = ("useful", "grounded")
Verdicts = Mapping[str, Mapping[str, Verdict]]


@dataclass(frozen=True)
class Delivered:
    """What each arm delivered, by question: `cases[arm][query]`; `hits[arm]`: evidence among the first three."""

    questions: dict[str, Question]
    deliveries: dict[str, dict[str, Delivery]] = field(default_factory=lambda: {arm: {} for arm in ARMS})
    hits: dict[str, dict[str, bool]] = field(default_factory=lambda: {arm: {} for arm in ARMS})

    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """Those of the span judge, by arm and question."""
        return {arm: {q: judge(self.questions[q], d) for q, d in made.items()} for arm, made in self.deliveries.items()}

    def cases(self, arm: str) -> dict[str, Case]:
        """What a model judges, by question."""
        return {
            query: Case(self.questions[query], "\n\n".join(text for _, text in delivery.pieces))
            for query, delivery in self.deliveries[arm].items()
        }


def answers(
    prepared: Prepared,
    corpus: Corpus,
    budget_chars: int,
    *,
    judges: Sequence[Grader] = (),
    answerer: Grader | None = None,
    limit: int = 0,
    folder: Path | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """JSON record and lines. `judges` judge the contexts, or what `answerer` makes of them, of the first `limit`
    questions (0: all); their logs are kept in `folder`. Raises UsageError for a set without evidence, EngineError.
    """
    delivered = deliver(prepared, corpus, budget_chars)
    verdicts = delivered.verdicts()
    by_judge: dict[str, Verdicts] = {}
    if judges:
        if folder is None:
            raise UsageError("judges need a folder for their logs", hint="give --out DIR")
        by_judge = _by_judge(delivered, judges, answerer, limit, folder)
    families = {judge.family for judge in judges if judge.family}
    said = caveats(
        len(delivered.questions),
        by_document=not all(query.evidence for query in corpus.queries),
        same_family=answerer is not None and answerer.family in families,
        synthesised=sum(query.synthesised for query in corpus.queries),
        llm_judges=len(judges),
    )
    return _record(corpus.name, budget_chars, delivered, verdicts, by_judge, said)


def deliver(prepared: Prepared, corpus: Corpus, budget_chars: int) -> Delivered:
    """The contexts of every question by each arm. Raises UsageError for a set without evidence."""
    found = {q.query_id: q for q in questions_of(corpus.queries, corpus.documents, corpus.grades)}
    scores = prepared.scores
    delivered = Delivered({q.query_id: found[q.query_id] for q in scores.queries if q.query_id in found})
    if not delivered.questions:
        raise UsageError(f"{corpus.name} has no question with evidence", hint="queries need `evidence`, or grades")
    stock = {r.query: r for r in rank_all(scores, Configuration("stock", (Signal("stock", ("verbatim",)),)))}
    default = {r.query: r for r in rank_product(prepared.bundle, scores, "default")}
    for number, query in enumerate(scores.queries):
        question = delivered.questions.get(query.query_id)
        if question is None:
            continue
        before, after = (_sources(prepared, runs[number]) for runs in (stock, default))
        made = {
            "stock_raw": raw_cut(before, budget_chars),
            "default_raw": raw_cut(after, budget_chars),
            "default_whole": whole_facts(after, question.text, budget_chars),
        }
        for arm in ARMS:
            delivered.deliveries[arm][query.query_id] = made[arm]
            delivered.hits[arm][query.query_id] = _hit(question, before if arm == "stock_raw" else after)
    return delivered


def _by_judge(
    delivered: Delivered, judges: Sequence[Grader], answerer: Grader | None, limit: int, folder: Path
) -> dict[str, Verdicts]:
    """Verdicts of each judge over the questions that it judged in every arm, so that arms stay paired."""
    chosen = list(delivered.questions)[: limit or None]
    cases = {arm: {query: delivered.cases(arm)[query] for query in chosen} for arm in ARMS}
    every = [case for by_query in cases.values() for case in by_query.values()]
    answered = answers_of(answerer, every, folder) if answerer else None
    found: dict[str, Verdicts] = {}
    for one in judges:
        said = verdicts_of(one, every, folder, answered)
        whole = [query for query in chosen if all(cases[arm][query].key in said for arm in ARMS)]
        found[one.name] = {arm: {query: said[cases[arm][query].key] for query in whole} for arm in ARMS}
    return found


def _record(
    name: str,
    budget_chars: int,
    delivered: Delivered,
    verdicts: Verdicts,
    by_judge: Mapping[str, Verdicts],
    said: list[str],
) -> tuple[dict[str, Any], list[str]]:
    n = len(delivered.questions)
    changes = _changes(verdicts)
    judged = {who: _changes(found) for who, found in by_judge.items() if found["stock_raw"]}
    cut = {arm: sum(v.cut for v in found.values()) for arm, found in verdicts.items()}
    good = {arm: {query: v.grounded for query, v in found.items()} for arm, found in verdicts.items()}
    given = {arm: good_given_hit(good[arm], delivered.hits[arm]) for arm in ARMS}
    top = {arm: sum(delivered.hits[arm].values()) / n for arm in ARMS}
    record = {
        "name": name,
        "questions": n,
        "budget_chars": budget_chars,
        "designs": _tree(changes),
        "judges": {who: _tree(found) for who, found in judged.items()},
        "cut": cut,
        "relevant_in_top3": top,
        "good_given_hit": given,
        "caveats": said,
    }
    lines = [f"{name}: {n} questions, {budget_chars:,} characters of context"]
    lines += _change_lines("", changes)
    for who, found in judged.items():
        lines += _change_lines(f"by {who}, {len(by_judge[who]['stock_raw'])} questions: ", found)
    lines += [f"by {who}: no verdict that could be read" for who in by_judge.keys() - judged.keys()]
    lines.append(f"cut in the middle of the answer: {cut['default_raw']} of raw, {cut['default_whole']} of whole facts")
    lines += [f"{arm}: relevant in the top 3 {top[arm]:.1%}, grounded given that {given[arm]:.1%}" for arm in ARMS]
    return record, [*lines, *(f"Note: {line}" for line in said)]


def _changes(verdicts: Verdicts) -> dict[str, dict[str, Change]]:
    good = {
        arm: {measure: {q: bool(getattr(v, measure)) for q, v in found.items()} for measure in MEASURES}
        for arm, found in verdicts.items()
    }
    return {
        design: {measure: change(good[before][measure], good[after][measure]) for measure in MEASURES}
        for design, (before, after) in DESIGNS.items()
    }


def _change_lines(head: str, changes: Mapping[str, Mapping[str, Change]]) -> list[str]:
    return [
        f"{head}{design}, {measure}: {c.before / c.n:.1%} -> {c.after / c.n:.1%} ({c.gained} gained, {c.lost} lost, "
        f"McNemar exact p = {c.p:.4g})"
        for design, by in changes.items()
        for measure, c in by.items()
    ]


def _tree(changes: Mapping[str, Mapping[str, Change]]) -> dict[str, Any]:
    return {
        design: {measure: {name: getattr(c, name) for name in c.__slots__} for measure, c in by.items()}
        for design, by in changes.items()
    }


def _sources(prepared: Prepared, ranked: Ranked) -> list[Source]:
    collection, group = prepared.scores.collection, prepared.scores.groups[ranked.group]
    sources = []
    for at in ranked.order[:DEPTH]:
        doc = int(group.docs[at])
        own = (collection.texts["core"][doc], collection.texts["context"][doc])
        lines = tuple(dict.fromkeys(filter(None, (*collection.claims_of.get(doc, ()), *own))))
        sources.append(Source(group.names[at], collection.texts["verbatim"][doc], lines))
    return sources


def _hit(question: Question, sources: Sequence[Source]) -> bool:
    return any(source.doc in question.evidence for source in sources[:TOP])
