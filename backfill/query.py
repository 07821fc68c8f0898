"""Search over a bundle: find by meaning over distilled text, by word over verbatim text, read the verbatim original.

Modes name a layer and a signal; `default` fuses the signals that the bundle's settings weigh. Filters, quoted phrases
and exact terms restrict the documents before anything is ranked. Deliberately absent: printing (`commands/query.py`)
and any write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill import signals
from backfill.bundle_manifest import SearchDefaults
from backfill.delivery import Passage, best_match, hit_passages, query_terms
from backfill.errors import BackfillError, BundleError, UsageError
from backfill.filters import Filters, one_of
from backfill.folding import COMPARED_HITS, near_copies
from backfill.hits import Hit, Place, read_hits
from backfill.phrases import ExactTerms, exact_mask, take_apart
from backfill.question import MIN_DEPTH, ask, load_encoder_aside, query_encoder, wants_vector_for
from backfill.ranking import (
    EMPTY,
    Question,
    Ranking,
    documents_mask,
    part_roles,
    rank,
    session_numbers,
)
from backfill.winners import best_positions, places_at

if TYPE_CHECKING:
    from backfill.bundle import Bundle

__all__ = ["MAX_K", "MIN_DEPTH", "MODES", "SearchResult", "ranked_places", "search", "working_modes"]

MODES = ("default", "distilled-vector", "verbatim-vector", "distilled-bm25", "verbatim-bm25", "claims")
MAX_K = 10_000

_WORD_MODE = {"distilled-vector": "distilled-bm25", "verbatim-vector": "verbatim-bm25"}
# So many times k are looked at to fill up what folding took away, and for near copies of what was found.
_MAX_READ = 4
_SAME_SCORE = 0.03


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found. `mode` is the mode that answered; `warnings` say where it is not the one asked for.

    `closest_miss` is set only where there is no hit: the nearest exchange that a filter, a phrase or the words kept
    out. Its `note` says which.
    """

    query: str
    hits: tuple[Hit, ...]
    mode: str
    took_ms: float
    closest_miss: Hit | None = None
    warnings: tuple[str, ...] = ()

    def passages(self, hit: Hit, limit_chars: int = 2_400) -> tuple[Passage, ...]:
        """What to show of a hit: whole lines and sentences of its prompt and answer around the query's words."""
        return hit_passages(hit, query_terms(self.query), limit_chars)

    def to_tree(self) -> dict[str, Any]:
        """As `--json` prints it; `match` is the part of each hit that answers the query best."""
        terms = query_terms(self.query)
        hits = [{**hit.to_tree(), "match": best_match(hit, terms).to_tree()} for hit in self.hits]
        tree: dict[str, Any] = {"query": self.query, "mode": self.mode, "took_ms": self.took_ms, "hits": hits}
        if self.closest_miss is not None:
            tree["closest_miss"] = self.closest_miss.to_tree()
        if self.warnings:
            tree["warnings"] = list(self.warnings)
        return tree


def search(
    bundle: Bundle,
    text: str,
    *,
    k: int = 10,
    mode: str = "default",
    filters: Filters | None = None,
    per_session: bool = False,
    fold: bool = True,
    superseded: bool = False,
    settings: SearchDefaults | None = None,
) -> SearchResult:
    """The `k` best visible exchanges for `text` that pass `filters`, best first; ties by exchange_id.

    `per_session` keeps the best exchange of each session. `fold` lists near copies under the best of them; where most
    hits are such, fewer than `k` may be left. `superseded` lets claims count that a later one replaced. `settings`
    replaces the bundle's own: fusion, weights, constants. Raises UsageError for an empty query, an unknown mode, a mode
    whose layer the bundle lacks, or `k` outside 1 to 10,000; BundleError when a file turns out to be damaged.
    """
    began = time.perf_counter()
    filters = filters or Filters()
    if not 1 <= k <= MAX_K:
        raise UsageError(f"k must be 1 to {MAX_K:,}, not {k}")
    _check_mode(bundle, mode)
    settings = settings or bundle.manifest.index
    wanted = wants_vector_for(bundle, mode, settings)
    if wanted and not bundle.has_made("encoder"):
        _begin_by_words(bundle, text, mode, filters, settings)
    question, warnings = ask(
        bundle, text, wants_vector=wanted, k=k, superseded=superseded, filters=filters, settings=settings
    )
    if wanted and question.vector is None and mode in _WORD_MODE:
        mode = _WORD_MODE[mode]
        _check_mode(bundle, mode)
    exact = take_apart(text)[1]
    mask = documents_mask(bundle, filters)
    if exact:
        mask = exact_mask(bundle, exact, mask)
    ranking = rank(bundle, question, mode, mask) if mask.any() else EMPTY
    # Who narrows the scope wants the nearest within it, however far.
    if mode == "default" and filters.empty and not exact and _is_far(ranking, settings.min_cosine):
        ranking = EMPTY
    if per_session:
        ranking = _best_of_sessions(bundle, ranking)
    hits = _folded_hits(bundle, ranking, k, filters) if fold else _hits(bundle, ranking, k, filters)
    miss = None if hits else _closest_miss(bundle, question, exact, mode, filters)
    took_ms = round((time.perf_counter() - began) * 1000, 2)
    return SearchResult(text, tuple(hits), mode, took_ms, miss, tuple(warnings))


def _begin_by_words(bundle: Bundle, text: str, mode: str, filters: Filters, settings: SearchDefaults) -> None:
    """Loads the encoder, for which the first search of a process waits most, while what words need is opened."""
    load_encoder_aside(bundle)
    # What is wrong with the query, or with a file, is said where it counts.
    with suppress(BackfillError):
        question, _ = ask(bundle, text, wants_vector=False, k=1, filters=filters, settings=settings)
        rank(bundle, question, mode, documents_mask(bundle, filters))


def ranked_places(bundle: Bundle, text: str, *, k: int, filters: Filters | None = None) -> list[Place]:
    """The `k` best documents for `text` in the default mode, best first, nothing of them read.

    Raises UsageError and BundleError as `search` does.
    """
    filters = filters or Filters()
    wanted = wants_vector_for(bundle, "default", bundle.manifest.index)
    question, _ = ask(bundle, text, wants_vector=wanted, k=k, filters=filters)
    mask = exact_mask(bundle, take_apart(text)[1], documents_mask(bundle, filters))
    if not mask.any():
        return []
    ranking = rank(bundle, question, "default", mask)
    return places_at(bundle, ranking, best_positions(bundle, ranking, k))


def working_modes(bundle: Bundle) -> tuple[str, ...]:
    """The modes whose layers the bundle has."""
    roles = {role for segment in bundle.segments for role, file in segment.files.items() if file.rows or file.bytes}
    has = {
        "distilled-vector": any(role in roles for role in part_roles(bundle)),
        "verbatim-vector": "vectors:verbatim" in roles,
        "distilled-bm25": "bm25:core" in roles or "bm25:context" in roles,
        "verbatim-bm25": "bm25:verbatim" in roles,
        "claims": "bm25:claims" in roles or "vectors:claims" in roles,
    }
    has["default"] = has["verbatim-bm25"] or has["distilled-vector"]
    return tuple(mode for mode in MODES if has[mode])


def _check_mode(bundle: Bundle, mode: str) -> None:
    one_of("mode", mode, list(MODES))
    if not bundle.segments:
        return
    working = working_modes(bundle)
    if mode not in working:
        raise UsageError(f"this bundle has no layer for the mode {mode}", hint=f"it has: {', '.join(working)}")


def _is_far(ranking: Ranking, min_cosine: float) -> bool:
    """Whether no candidate has a word of the query, and none is near in meaning: then the history has no answer."""
    if not ranking.signals:
        return False
    by_words = [scores for name, scores in ranking.signals.items() if name.endswith("bm25")]
    by_vector = [scores for name, scores in ranking.signals.items() if not name.endswith("bm25")]
    if any((scores > 0).any() for scores in by_words) or not by_vector:
        return False
    return all(not (scores >= min_cosine).any() for scores in by_vector)


def _best_of_sessions(bundle: Bundle, ranking: Ranking) -> Ranking:
    """The best document of each session; of equals the first."""
    order = np.argsort(-ranking.scores, kind="stable")
    _, first = np.unique(session_numbers(bundle)[ranking.docs[order]], return_index=True)
    at = np.sort(order[first])
    found = {name: scores[at] for name, scores in ranking.signals.items()}
    return Ranking(ranking.docs[at], ranking.scores[at], found, None if ranking.claims is None else ranking.claims[at])


def _hits(bundle: Bundle, ranking: Ranking, k: int, filters: Filters) -> list[Hit]:
    return _read(bundle, places_at(bundle, ranking, best_positions(bundle, ranking, k)), filters)


def _read(bundle: Bundle, places: Sequence[Place], filters: Filters) -> list[Hit]:
    hits = read_hits(places, filters)
    numbers = [place.claim for place in places if place.claim >= 0]
    if not numbers:
        return hits
    from backfill.claim_search import read_claims

    claims = read_claims(bundle, np.array(numbers, np.int64))
    return [replace(hit, claim=claim.text, found_claim=claim) for hit, claim in zip(hits, claims, strict=True)]


def _folded_hits(bundle: Bundle, ranking: Ranking, k: int, filters: Filters) -> list[Hit]:
    """The `k` best hits that are no near copies of better ones; those are listed with the better one.

    Beyond the last hit only what has the scores of a hit is read: near copies do.
    """
    kept: list[Hit] = []
    kept_at: list[int] = []
    positions = best_positions(bundle, ranking, _MAX_READ * k)
    for start in range(0, len(positions), k):
        batch = positions[start : start + k]
        if len(kept) == k:
            batch = _alike(ranking, batch, kept_at[-COMPARED_HITS:])
        for position, hit in zip(batch, _read(bundle, places_at(bundle, ranking, batch), filters), strict=True):
            at = near_copies(kept, hit)
            if at >= 0:
                kept[at] = replace(
                    kept[at], places=(*kept[at].places, *hit.places), folded=(*kept[at].folded, hit.exchange_id)
                )
            elif len(kept) < k:
                kept.append(hit)
                kept_at.append(position)
    return kept


def _alike(ranking: Ranking, positions: list[int], kept: list[int]) -> list[int]:
    """The positions whose signals all score as those of one of the kept, but for 3%."""
    same = np.ones((len(positions), len(kept)), np.bool_)
    for scores in ranking.signals.values():
        one, other = scores[positions][:, None], scores[kept][None, :]
        # A signal that either lacks (NaN) tells nothing.
        same &= ~(np.abs(one - other) > _SAME_SCORE * np.maximum(np.maximum(np.abs(one), np.abs(other)), 0.1))
    return [positions[n] for n in np.flatnonzero(same.any(axis=1)).tolist()]


def _closest_miss(bundle: Bundle, question: Question, exact: ExactTerms, mode: str, filters: Filters) -> Hit | None:
    """The nearest exchange without filters and exact terms, or else by vector, with a note of what kept it out."""
    everything = np.ones(int(signals.starts(bundle, "documents")[-1]), np.bool_)
    freely = replace(question, every=False, kind=None)
    tries: list[tuple[str, Callable[[], Ranking]]] = []
    if not filters.empty or exact:
        kept_out = "a filter" if not exact else exact.name if filters.empty else f"a filter or {exact.name}"
        tries.append((f"kept out by {kept_out}", lambda: rank(bundle, freely, mode, everything)))
    if mode != "distilled-vector" and "distilled-vector" in working_modes(bundle):
        tries.append(("nearest in meaning; no word in common", lambda: _by_vector(bundle, freely)))
    for note, ranked in tries:
        found = _hits(bundle, ranked(), 1, Filters())
        if found:
            return replace(found[0], note=note)
    return None


def _by_vector(bundle: Bundle, question: Question) -> Ranking:
    try:
        encoder, _ = query_encoder(bundle)
    except BundleError:
        # The search was by words: a damaged encoder is no reason to fail it.
        encoder = None
    if encoder is None:
        return EMPTY
    everything = np.ones(int(signals.starts(bundle, "documents")[-1]), np.bool_)
    vector = encoder.encode([question.text], kind="query")[0].astype(np.float32)
    return rank(bundle, replace(question, vector=vector), "distilled-vector", everything)
