"""Answers from what is delivered: is the gold answer or its evidence whole inside a fixed budget of context?

Two designs: before and after on the same questions, and paired: the same source and question, context from distilled
text with drill-down to whole verbatim passages against raw text cut at the budget. The deterministic judge asks for
the answer's span and marks one that was cut in the middle. Deliberately absent: language; a paraphrase of the answer
is no hit for this judge, which makes both sides lower, not one of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill.delivery import passage_around
from backfill.evaluation.corpus import Document, Query
from backfill.evaluation.statistics import mcnemar_exact
from backfill.text import sentence_spans

BUDGET_CHARS = 4_000
# Of the best exchange, the second, the third, and every further one.
PASSAGE_CHARS = (1_200, 800, 500, 400)
MIN_PASSAGE_CHARS = 80
MIN_ANSWER_CHARS = 4
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Source:
    """An exchange as delivery may use it: its verbatim text, and its distilled lines (core, context, claims)."""

    doc: str
    text: str
    distilled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold spans (the answer, and whole turns of evidence; one is enough) and the documents of
    its evidence."""

    query_id: str
    text: str
    spans: tuple[str, ...]
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`useful`: a gold span is whole in the context; `grounded`: it stands in a piece of a document of the evidence.

    `cut`: no span is whole, but one began in the context and broke off at the end of a piece.
    """

    useful: bool
    grounded: bool
    cut: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """Pieces of context in order, each with the document that it came from."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def n_chars(self) -> int:
        return sum(len(text) for _, text in self.pieces)


@dataclass(frozen=True, slots=True)
class Change:
    """Two arms over the same questions: how many are good in each, the discordant ones, and McNemar's exact p."""

    n: int
    before: int
    after: int
    gained: int
    lost: int
    p: float


def raw_cut(ranked: Sequence[Source], budget_chars: int = BUDGET_CHARS) -> Delivery:
    """What truncation delivers: verbatim texts, best first, cut at the budget wherever that falls."""
    pieces, left = [], budget_chars
    for source in ranked:
        if left <= 0:
            break
        pieces.append((source.doc, source.text[:left]))
        left -= len(source.text)
    return Delivery(tuple(pieces))


def whole_facts(ranked: Sequence[Source], query: str, budget_chars: int = BUDGET_CHARS) -> Delivery:
    """What we deliver: verbatim passages of the best exchanges, then distilled lines of the further ones, all whole.

    Passages end with sentences only, and the better an exchange is, the longer is its own; what they leave goes to the
    lines of exchanges that have none, further down the list. What does not fit is passed over, never cut.
    """
    from backfill.indexes.tokenizer import tokenize

    terms = frozenset(tokenize(query))
    pieces: list[tuple[str, str]] = []
    left, shown = budget_chars, set()
    for rank, source in enumerate(ranked):
        if left < MIN_PASSAGE_CHARS:
            break
        limit = min(PASSAGE_CHARS[min(rank, len(PASSAGE_CHARS) - 1)], left)
        passage = passage_around("text", source.text, terms, limit).text
        if passage and len(passage) <= left:
            pieces.append((source.doc, passage))
            left -= len(passage)
            shown.add(source.doc)
    for source in ranked:
        for line in source.distilled if source.doc not in shown else ():
            if len(line) <= left:
                pieces.append((source.doc, line))
                left -= len(line)
    return Delivery(tuple(pieces))


def judge(question: Question, delivery: Delivery) -> Verdict:
    """The deterministic verdict. Words are compared in lower case; all words of a span must follow each other."""
    spans = [span for text in question.spans if (span := _words(text))]
    useful = grounded = cut = False
    for doc, text in delivery.pieces:
        words = _words(text)
        here = any(_contains(words, span) for span in spans)
        useful |= here
        grounded |= here and doc in question.evidence
        cut |= any(_breaks_off(words, span) for span in spans)
    return Verdict(useful, grounded, cut and not useful)


def questions_of(
    queries: Sequence[Query], documents: Sequence[Document], grades: Mapping[str, Mapping[str, float]] | None = None
) -> list[Question]:
    """Questions of a set that has answers and evidence: ids of documents, or of turns that documents list.

    An answer of fewer than four letters ("2", "no") is met anywhere and is left to the evidence. Where a document has a
    line a turn, the evidence is the turn's line, else the whole document. A query without evidence whose `grades` name
    documents has these as its evidence, and of each the sentence that says most of the query (`key_sentence`) as span.
    """
    holders = {(d.scope, name): d for d in documents for name in (*d.turns, d.doc_id)}
    questions = []
    weights = term_weights(documents) if grades and not all(query.evidence for query in queries) else {}
    for query in queries:
        if not query.evidence:
            graded = [d for name, grade in (grades or {}).get(query.query_id, {}).items()
                      if grade > 0 and (d := holders.get((query.scope, name))) is not None]  # fmt: skip
            keys = {d.doc_id: key for d in graded if (key := key_sentence(d.text, query.text, weights))}
            if keys:
                questions.append(Question(query.query_id, query.text, tuple(keys.values()), frozenset(keys)))
            continue
        held = [(holders[query.scope, name], name) for name in query.evidence if (query.scope, name) in holders]
        if not held:
            continue
        answer = (query.answer,) if sum(map(str.isalnum, query.answer)) >= MIN_ANSWER_CHARS else ()
        spans = (*answer, *(_turn(document, name) for document, name in held))
        evidence = frozenset(document.doc_id for document, _ in held)
        questions.append(Question(query.query_id, query.text, spans, evidence))
    return questions


def term_weights(documents: Sequence[Document]) -> dict[str, float]:
    """The inverse document frequency of every term, as BM25 has it."""
    from backfill.indexes.tokenizer import tokenize

    n_docs = Counter(term for document in documents for term in set(tokenize(document.text)))
    return {term: math.log(1.0 + (len(documents) - n + 0.5) / (n + 0.5)) for term, n in n_docs.items()}


def key_sentence(text: str, query: str, weights: Mapping[str, float]) -> str:
    """The sentence of a text whose distinct terms weigh most of the query's, the first of equals; empty without any."""
    from backfill.indexes.tokenizer import tokenize

    wanted = set(tokenize(query))
    best, best_weight = "", 0.0
    for start, end in sentence_spans(text):
        weight = sum(weights.get(term, 0.0) for term in wanted.intersection(tokenize(text[start:end])))
        if weight > best_weight:
            best, best_weight = text[start:end], weight
    return best


def _turn(document: Document, name: str) -> str:
    lines = document.text.split("\n")
    if name in document.turns and len(lines) == len(document.turns):
        return lines[document.turns.index(name)]
    return document.text


def change(before: Mapping[str, bool], after: Mapping[str, bool]) -> Change:
    """Compares two arms over the questions of `before`. Raises KeyError where `after` lacks one."""
    gained = sum(after[q] and not good for q, good in before.items())
    lost = sum(good and not after[q] for q, good in before.items())
    good_after = sum(after[q] for q in before)
    return Change(len(before), sum(before.values()), good_after, gained, lost, mcnemar_exact(gained, lost))


def good_given_hit(good: Mapping[str, bool], hit: Mapping[str, bool]) -> float:
    """P(good | a relevant exchange in the top three); 0 without any such question."""
    held = [good[query] for query, found in hit.items() if found]
    return sum(held) / len(held) if held else 0.0


def caveats(
    n_questions: int, *, by_document: bool = False, same_family: bool = False, synthesised: int = 0, llm_judges: int = 0
) -> list[str]:
    """What a report of answers must say about itself."""
    lines = [f"{n_questions} questions: differences of fewer than about 6 discordant ones cannot reach p < .05."]
    lines.append(
        "The span judge counts literal answers only: it says where a fact was delivered, not how well it reads."
    )
    if by_document:
        lines.append("The set labels documents only: the span is the sentence of each that says most of the question.")
    if llm_judges:
        lines.append(f"{llm_judges} language models judged as well; their verdicts are shown beside, never instead.")
    if same_family:
        lines.append("A judge is of the answerer's family, which favours its own wording.")
    if synthesised:
        lines.append(f"{synthesised} questions were written by an engine: only paired differences mean something.")
    return lines


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _contains(words: Sequence[str], span: Sequence[str]) -> bool:
    n = len(span)
    return any(words[i : i + n] == list(span) for i in range(len(words) - n + 1))


def _breaks_off(words: Sequence[str], span: Sequence[str]) -> bool:
    return any(words[-n:] == list(span[:n]) for n in range(1, len(span)) if len(words) >= n and n * 2 >= len(span))
