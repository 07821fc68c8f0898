"""Ranks a bundle's documents for a question, by one signal or by several fused.

A fused ranking takes the best `depth` units of each signal, scores each of them by every signal, and fuses these: with
fewer units than `depth` that is fusion over the whole scope. Deliberately absent: reading of text, filters (masks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from backfill import signals
from backfill.bundle_manifest import SearchDefaults
from backfill.claim_index import claim_index, claim_kinds
from backfill.filters import Filters
from backfill.fusion import Scores, Signal, fuse, lift_sessions
from backfill.recent import Recent
from backfill.scorers import ByClaimVector, ByNearest, ByVector, ByWords, Scorer, claim_words
from backfill.signals import Mask, Units, distinct

if TYPE_CHECKING:
    from backfill.bundle import Bundle

QueryVector: TypeAlias = npt.NDArray[np.float32]

SIGNALS = ("bm25", "nearest", "vector", "verbatim-vector", "distilled-bm25", "claims-vector", "claims-bm25")
DEFAULT_WEIGHTS = {"bm25": 0.5, "vector": 0.5}
# The one signal of each mode but `default` and `claims`, and the name that its score goes by.
MODE_SIGNALS = {
    "distilled-vector": ("vector", "vector"),
    "verbatim-vector": ("verbatim-vector", "vector"),
    "distilled-bm25": ("distilled-bm25", "bm25"),
    "verbatim-bm25": ("bm25", "bm25"),
}
# Of a byte a document: 6 MB at 100,000 documents.
_MASKS = 64
_EXTRA_FIELDS = ("title", "rooms", "files")


@dataclass(frozen=True, slots=True)
class Question:
    """A query taken apart: its text without marks, its BM25 terms, its vector (None: no vectors), how to rank.

    `superseded` lets claims count that a later one replaced; `kind` narrows claims to one kind; `every` ranks all that
    pass the mask, also those that no signal finds, for an exact term let them through.
    """

    text: str
    terms: tuple[str, ...]
    vector: QueryVector | None
    settings: SearchDefaults
    depth: int
    superseded: bool = False
    kind: str | None = None
    every: bool = False


class Ranking(msgspec.Struct, frozen=True):
    """Candidates with their scores; `signals` are arrays [C] by name, `claims` the claim that won each, if any."""

    docs: Units
    scores: Scores
    signals: dict[str, Scores]
    claims: Units | None = None


EMPTY = Ranking(np.zeros(0, np.int64), np.zeros(0), {})


def part_roles(bundle: Bundle) -> tuple[str, ...]:
    """The roles of the vector files of distilled text."""
    return tuple(f"vectors:{part}" for part in bundle.manifest.index.parts)


def documents_mask(bundle: Bundle, filters: Filters) -> Mask:
    """[documents] true where a document passes the filters, that for the kind of a claim of its included; read-only."""
    recent: Recent[Mask] = bundle.once("masks", Recent, _MASKS)
    mask = recent.get(filters)
    if mask is None:
        mask = _documents_mask(bundle, filters)
        recent.put(filters, mask, 1)
    return mask


def _documents_mask(bundle: Bundle, filters: Filters) -> Mask:
    masks = [filters.document_mask(segment) for segment in bundle.segments]
    mask: Mask = np.concatenate([np.zeros(0, np.bool_), *masks])
    if filters.kind is not None:
        mask &= claim_index(bundle).any_claim(claim_kinds(bundle) == filters.kind, len(mask))
    mask.flags.writeable = False
    return mask


def session_numbers(bundle: Bundle) -> npt.NDArray[np.uint64]:
    """[documents] the session of each document's best occurrence."""

    def read() -> npt.NDArray[np.uint64]:
        return np.concatenate([np.zeros(0, np.uint64), *(segment.sessions for segment in bundle.segments)])

    return bundle.once("sessions", read)


def rank(bundle: Bundle, question: Question, mode: str, mask: Mask) -> Ranking:
    """The candidates of a mode among the documents of `mask`."""
    if mode == "claims":
        return _by_best_claim(bundle, question, mask)
    if mode == "default":
        weights = question.settings.weights
        weights = weights if any(weights.get(name) for name in SIGNALS) else DEFAULT_WEIGHTS
        found = {n: s for n in SIGNALS if weights.get(n) and (s := _scorer(bundle, question, n, mask)) is not None}
        ranked = fused(question, found, weights, np.flatnonzero(mask) if question.every else None)
        sessions = session_numbers(bundle)[ranked.docs] if question.settings.session_prior else np.zeros(0, np.uint64)
        lifted = lift_sessions(ranked.scores, sessions, question.settings.session_prior)
        return Ranking(ranked.docs, lifted, ranked.signals)
    name, shown_as = MODE_SIGNALS[mode]
    scorer = _scorer(bundle, _without_extra_fields(question), name, mask)
    if scorer is None:
        return EMPTY
    docs = np.flatnonzero(mask) if question.every else scorer.candidates(question.depth)
    scores = scorer.scores(docs)
    kept = np.isfinite(scores) & ((scores > 0) | (scorer.floor is None) | question.every)
    return Ranking(docs[kept], scores[kept], {shown_as: scores[kept]})


def _without_extra_fields(question: Question) -> Question:
    """For a mode that names one field: what the default search adds to BM25 is not part of it."""
    weights = {name: weight for name, weight in question.settings.weights.items() if name not in _EXTRA_FIELDS}
    return replace(question, settings=replace(question.settings, weights=weights))


def fused(
    question: Question, scorers: Mapping[str, Scorer], weights: Mapping[str, float], also: Units | None = None
) -> Ranking:
    """The best `depth` units of each signal, and `also`, each scored by all signals and these fused.

    Where only one signal is left, its own scores rank. Units that no signal found are dropped, but for `also`.
    """
    lists = {name: scorer.candidates(question.depth) for name, scorer in scorers.items()}
    units = distinct([*lists.values(), *([] if also is None else [also])])
    by_name = {name: scorer.scores(units) for name, scorer in scorers.items()}
    found = {
        name: Signal(
            scores,
            weights.get(name, 0.0),
            scorers[name].floor,
            _places_in(units, lists[name]),
            question.settings.zero_cosine,
        )
        for name, scores in by_name.items()
    }
    telling = [signal for signal in found.values() if signal.present.any()]
    settings = question.settings
    if len(telling) > 1:
        scores = fuse(telling, fusion=settings.fusion, normalization=settings.normalization, rrf_k=settings.rrf_k)
    else:
        scores = np.nan_to_num(telling[0].scores, nan=0.0) if telling else np.zeros(len(units))
    kept = np.zeros(len(units), np.bool_) if also is None else _places_in(units, also)
    for name, scorer in scorers.items():
        kept |= np.isfinite(by_name[name]) if scorer.floor is None else by_name[name] > scorer.floor
    return Ranking(units[kept], scores[kept], {name: signal[kept] for name, signal in by_name.items()})


def _places_in(units: Units, some: Units) -> Mask:
    """[len(units)] true for the units that `some` holds; both rise, and none of `some` is missing in `units`."""
    found = np.zeros(len(units), np.bool_)
    found[units.searchsorted(some)] = True
    return found


def rank_claims(bundle: Bundle, question: Question, mask: Mask) -> Ranking:
    """Claims (as `docs` of the ranking) of the documents of `mask`, by both signals."""
    allowed = _counted_claims(bundle, question) & claim_index(bundle).any_doc(mask)
    found: dict[str, Scorer] = {}
    if any(segment.has("bm25:claims") for segment in bundle.segments):
        found["bm25"] = _words(bundle, question, {"claims": 1.0}, allowed, "claims")
    if question.vector is not None and any(segment.has("vectors:claims") for segment in bundle.segments):
        space = signals.vector_space(bundle, ("vectors:claims",), "claims")
        found["vector"] = ByVector(space, question.vector, allowed)
    return fused(question, found, DEFAULT_WEIGHTS)


def _by_best_claim(bundle: Bundle, question: Question, mask: Mask) -> Ranking:
    ranked = rank_claims(bundle, question, mask)
    at, docs = claim_index(bundle).pairs(ranked.docs)
    at, docs = at[mask[docs]], docs[mask[docs]]
    # The best claim of each document; of equals the first.
    order = np.lexsort((at, -ranked.scores[at], docs))
    docs, first = np.unique(docs[order], return_index=True)
    at = at[order][first]
    found = {name: signal[at] for name, signal in ranked.signals.items()}
    return Ranking(docs, ranked.scores[at], found, ranked.docs[at])


def _counted_claims(bundle: Bundle, question: Question) -> Mask:
    index = claim_index(bundle)
    counted = np.ones(len(index), np.bool_) if question.superseded else index.current.copy()
    if question.kind is not None:
        counted &= claim_kinds(bundle) == question.kind
    return counted


def _scorer(bundle: Bundle, question: Question, name: str, mask: Mask) -> Scorer | None:
    """A signal over the documents of `mask`; None where the bundle or the question has nothing for it."""
    weights = question.settings.weights
    if name == "bm25":
        extra = {field: weights[field] for field in _EXTRA_FIELDS if weights.get(field)}
        return _words(bundle, question, {"verbatim": weights.get("verbatim", 1.0), **extra}, mask)
    if name == "distilled-bm25":
        return _words(bundle, question, {field: weights.get(field, 1.0) for field in ("core", "context")}, mask)
    if name == "nearest":
        near = [s for n in ("vector", "claims-vector") if (s := _scorer(bundle, question, n, mask)) is not None]
        return ByNearest(tuple(near)) if near else None
    roles = {
        "vector": part_roles(bundle),
        "verbatim-vector": ("vectors:verbatim",),
        "claims-vector": ("vectors:claims",),
        "claims-bm25": ("bm25:claims",),
    }[name]
    held = any(segment.has(role) for segment in bundle.segments for role in roles)
    if name == "claims-bm25":
        return _claim_words(bundle, question, mask) if held else None
    if question.vector is None or not held:
        return None
    if name == "claims-vector":
        space = signals.vector_space(bundle, roles, "claims")
        counted = _counted_claims(bundle, question)
        return ByClaimVector(space, question.vector, claim_index(bundle), counted, mask)
    return ByVector(signals.vector_space(bundle, roles), question.vector, mask)


def _claim_words(bundle: Bundle, question: Question, mask: Mask) -> ByWords:
    counted = _counted_claims(bundle, question)
    words = _words(bundle, question, {"claims": 1.0}, np.ones(len(counted), np.bool_), "claims")
    return claim_words(claim_index(bundle), words.all_scores, counted, mask)


def _words(
    bundle: Bundle, question: Question, fields: Mapping[str, float], mask: Mask, space: signals.Space = "documents"
) -> ByWords:
    """BM25 of several fields, summed by their weights; 0 where the mask is false."""
    settings = question.settings
    total: Scores | None = None
    for field, weight in fields.items():
        if any(segment.has(f"bm25:{field}") for segment in bundle.segments):
            scores = signals.bm25(bundle, field, question.terms, space, settings.k1, settings.b)
            if weight != 1.0:
                scores *= weight
            total = scores if total is None else np.add(total, scores, out=total)
    if total is None:
        total = np.zeros(len(mask), np.float64)
    if not mask.all():
        total[~mask] = 0.0
    return ByWords(total)
