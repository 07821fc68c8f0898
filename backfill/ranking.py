"""Ranks a bundle's documents for a question, by one signal or by several fused.

A fused ranking takes the best `depth` units of each signal, scores each of them by every signal, and fuses these: with
fewer units than `depth` that is fusion over the whole scope. Deliberately absent: reading of text, filters (masks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill import fusion as fuse
from backfill import signals
from backfill.fusion import Scores
from backfill.signals import Mask, Units, best_units

if TYPE_CHECKING:
    from backfill.bundle import Bundle

QueryVector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Question:
    """A query taken apart: the text without quotes, its BM25 terms, its vector (None: no vectors), its phrases."""

    text: str
    terms: tuple[str, ...]
    phrases: tuple[str, ...]
    vector: QueryVector | None
    depth: int
    fusion: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates with their scores; `signals` are arrays [C] by name, `claims` the claim that won each, if any."""

    docs: Units
    scores: Scores
    signals: dict[str, Scores]
    claims: Units | None = None


def part_roles(bundle: Bundle) -> tuple[str, ...]:
    """The roles of the vector files of distilled text."""
    return tuple(f"vectors:{part}" for part in bundle.manifest.index.parts)


def rank(bundle: Bundle, question: Question, mode: str, mask: Mask, kind: str | None = None) -> Ranking:
    """The candidates of a mode among the documents of `mask`; `kind` narrows the claims of mode claims."""
    if mode == "claims":
        return _rank_claims(bundle, question, mask, kind)
    if mode == "default":
        return _rank_fused(bundle, question, mask, "documents", part_roles(bundle), ("verbatim",))
    if mode.endswith("-bm25"):
        fields = ("verbatim",) if mode == "verbatim-bm25" else ("core", "context")
        scores = _bm25(bundle, question, mask, fields, "documents")
        docs = np.flatnonzero(scores > 0)
        return Ranking(docs, scores[docs], {"bm25": scores[docs]})
    roles = ("vectors:verbatim",) if mode == "verbatim-vector" else part_roles(bundle)
    if question.vector is None:
        return Ranking(np.zeros(0, np.int64), np.zeros(0), {})
    parts = signals.vector_parts(bundle, roles)
    docs = signals.vector_candidates(parts, question.vector, mask, question.depth)
    scores = signals.vector_scores(parts, question.vector, docs)
    docs, scores = docs[np.isfinite(scores)], scores[np.isfinite(scores)]
    return Ranking(docs, scores, {"vector": scores})


def _bm25(bundle: Bundle, question: Question, mask: Mask, fields: Sequence[str], space: signals.Space) -> Scores:
    """[units] weighted sum over fields; a field may have its own weight in the manifest, 1 by default."""
    total = np.zeros(len(mask), np.float64)
    for field in fields:
        weight = bundle.manifest.index.weights.get(field, 1.0)
        if any(segment.has(f"bm25:{field}") for segment in bundle.segments):
            total += weight * signals.bm25(bundle, field, question.terms, space)
    total[~mask] = 0.0
    return total


def _rank_fused(
    bundle: Bundle,
    question: Question,
    mask: Mask,
    space: signals.Space,
    roles: Sequence[str],
    fields: Sequence[str],
) -> Ranking:
    """The best `depth` units of either signal, each then scored by both."""
    words = _bm25(bundle, question, mask, fields, space)
    units = best_units(words, np.flatnonzero(words > 0), question.depth)
    near: Scores | None = None
    if question.vector is not None:
        parts = signals.vector_parts(bundle, roles, space)
        units = np.union1d(units, signals.vector_candidates(parts, question.vector, mask, question.depth))
        near = signals.vector_scores(parts, question.vector, units)
    found = {"bm25": words[units]} if near is None else {"bm25": words[units], "vector": near}
    if near is None:
        return Ranking(units, words[units], found)
    settings = bundle.manifest.index
    weights = [settings.weights.get("bm25", 0.5), settings.weights.get("vector", 0.5)]
    if question.fusion == "rrf":
        scores = fuse.rrf([words[units], near], weights, [0.0, None], settings.rrf_k)
    else:
        scores = fuse.minmax([words[units], near], weights, [0.0, None])
    # Neither a word in common nor a vector: a candidate only because everything passed the mask.
    kept = (words[units] > 0) | np.isfinite(near)
    return Ranking(units[kept], scores[kept], {name: signal[kept] for name, signal in found.items()})


def _rank_claims(bundle: Bundle, question: Question, mask: Mask, kind: str | None) -> Ranking:
    """Claims by both signals; an exchange takes the score of its best claim."""
    docs_of = claim_docs(bundle)
    allowed = [
        bool(mask[docs].any()) and kind in (None, of_claim)
        for docs, of_claim in zip(docs_of, claim_column(bundle, "kind"), strict=True)
    ]
    ranked = _rank_fused(bundle, question, np.array(allowed, np.bool_), "claims", ("vectors:claims",), ("claims",))
    best: dict[int, int] = {}
    for at in np.argsort(-ranked.scores, kind="stable"):
        for doc in docs_of[int(ranked.docs[at])]:
            if mask[doc]:
                best.setdefault(int(doc), int(at))
    docs, at = np.array(list(best), np.int64), np.array(list(best.values()), np.int64)
    found = {name: signal[at] for name, signal in ranked.signals.items()}
    return Ranking(docs, ranked.scores[at], found, ranked.docs[at])


def claim_docs(bundle: Bundle) -> list[Units]:
    """Visible claim -> the documents of the visible exchanges that it was distilled from."""

    def find() -> list[Units]:
        base = signals.starts(bundle, "documents")
        numbers = {
            segment.exchange_ids[int(row)]: int(base[n]) + doc
            for n, segment in enumerate(bundle.segments)
            for doc, row in enumerate(segment.docs.exchange_row)
        }
        cells = claim_column(bundle, "exchange_ids")
        return [np.array([numbers[xid] for xid in cell if xid in numbers], np.int64) for cell in cells]

    return bundle.once("claim_docs", find)


def claim_column(bundle: Bundle, name: str) -> list[Any]:
    """A column of the visible claims of all segments."""

    def read() -> list[Any]:
        values: list[Any] = []
        for segment in bundle.segments:
            if len(segment.docs.claim_row):
                column = segment.column("claims", name)
                values.extend(column[int(row)] for row in segment.docs.claim_row)
        return values

    return bundle.once(f"claims.{name}", read)
