"""Search over a bundle: find by meaning over distilled text, by word over verbatim text, read the verbatim original.

Modes name a layer and a signal; `default` fuses BM25 over verbatim text with vectors over distilled text. Filters and
quoted phrases restrict the documents before anything is ranked. Deliberately absent: printing (`commands/query.py`)
and any write.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill import signals
from backfill.errors import BundleError, UsageError
from backfill.filters import Filters, one_of
from backfill.hits import Hit, Place, read_hits
from backfill.phrases import phrase_mask
from backfill.ranking import Question, Ranking, claim_column, claim_docs, part_roles, rank
from backfill.signals import Mask, best_units

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.embedders.base import Embedder

MODES = ("default", "distilled-vector", "verbatim-vector", "distilled-bm25", "verbatim-bm25", "claims")
MAX_K = 10_000
MAX_QUERY_CHARS = 100_000
MIN_DEPTH = 100

_PHRASE = re.compile(r'"([^"]+)"')
_WORD_MODE = {"distilled-vector": "distilled-bm25", "verbatim-vector": "verbatim-bm25"}


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

    def to_tree(self) -> dict[str, Any]:
        """As `--json` prints it."""
        tree: dict[str, Any] = {
            "query": self.query,
            "mode": self.mode,
            "took_ms": self.took_ms,
            "hits": [hit.to_tree() for hit in self.hits],
        }
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
    fusion: str | None = None,
) -> SearchResult:
    """The `k` best visible exchanges for `text` that pass `filters`, best first; ties by exchange_id.

    `fusion` (minmax or rrf) overrides the bundle's. Raises UsageError for an empty query, an unknown mode, a mode
    whose layer the bundle lacks, or `k` outside 1 to 10,000; BundleError when a file turns out to be damaged.
    """
    began = time.perf_counter()
    filters = filters or Filters()
    if not 1 <= k <= MAX_K:
        raise UsageError(f"k must be 1 to {MAX_K:,}, not {k}")
    _check_mode(bundle, mode)
    question, mode, warnings = _question(bundle, text, mode, k, fusion)
    mask = _documents_mask(bundle, filters)
    if question.phrases:
        mask &= phrase_mask(bundle, question.phrases, mask)
    hits = _hits(bundle, rank(bundle, question, mode, mask, filters.kind), k, filters)
    miss = None if hits else _closest_miss(bundle, question, mode, filters)
    took_ms = round((time.perf_counter() - began) * 1000, 2)
    return SearchResult(text, tuple(hits), mode, took_ms, miss, tuple(warnings))


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


def _question(bundle: Bundle, text: str, mode: str, k: int, fusion: str | None) -> tuple[Question, str, list[str]]:
    """The query taken apart, the mode that can answer it, and what to say about the difference."""
    if len(text) > MAX_QUERY_CHARS:
        raise UsageError(f"the query is longer than {MAX_QUERY_CHARS:,} characters")
    if not any(c.isalnum() for c in text):
        raise UsageError("the query has no words", hint='write a few, e.g. backfill query BUNDLE "retry timeout"')
    from backfill.indexes.tokenizer import tokenize

    # Lone surrogates come from broken bytes on a command line; neither index can hold one.
    text = text.encode("utf-8", "replace").decode()
    plain = text.replace('"', " ").strip()
    phrases = tuple(p.strip() for p in _PHRASE.findall(text) if p.strip())
    settings = bundle.manifest.index
    fusion = one_of("fusion", fusion or settings.fusion, ["minmax", "rrf"])
    vector, warnings = None, []
    if mode in ("default", "distilled-vector", "verbatim-vector") or _has_claim_vectors(bundle, mode):
        encoder, reason = query_encoder(bundle) if bundle.segments else (None, "")
        if encoder is not None:
            vector = encoder.encode([plain], kind="query")[0].astype(np.float32)
        elif reason and (mode != "default" or "distilled-vector" in working_modes(bundle)):
            mode = _WORD_MODE.get(mode, mode)
            warnings.append(f"{reason}; answered by BM25 alone")
            if bundle.segments:
                _check_mode(bundle, mode)
    depth = max(settings.depth, MIN_DEPTH, k)
    return Question(plain, tuple(tokenize(plain)), phrases, vector, depth, fusion), mode, warnings


def query_encoder(bundle: Bundle) -> tuple[Embedder | None, str]:
    """The bundle's encoder once it gives the recorded vector for the probe text, or None and the reason.

    A wrong encoder of the right dimension raises no error by itself: it only finds the wrong things.
    """
    encoder, reason = bundle.encoder()
    info = bundle.manifest.encoder
    if encoder is None or info is None or info.probe_cosine_min <= 0:
        return encoder, reason
    from backfill.embedders.onnx import probe_cosine

    cosine = bundle.once("probe", probe_cosine, encoder, bundle.path / info.path)
    if cosine < info.probe_cosine_min:
        return None, f"the encoder's probe text has cosine {cosine:.4f} to its recorded vector, so vectors are off"
    return encoder, ""


def _has_claim_vectors(bundle: Bundle, mode: str) -> bool:
    return mode == "claims" and any(segment.has("vectors:claims") for segment in bundle.segments)


def _documents_mask(bundle: Bundle, filters: Filters) -> Mask:
    """[documents] true where a document may be found."""
    masks = [filters.document_mask(segment) for segment in bundle.segments]
    mask: Mask = np.concatenate([np.zeros(0, np.bool_), *masks])
    if filters.kind is not None:
        allowed = np.zeros(len(mask), np.bool_)
        for docs, kind in zip(claim_docs(bundle), claim_column(bundle, "kind"), strict=True):
            if kind == filters.kind:
                allowed[docs] = True
        mask &= allowed
    return mask


def _hits(bundle: Bundle, ranking: Ranking, k: int, filters: Filters) -> list[Hit]:
    at = best_units(ranking.scores, np.arange(len(ranking.scores)), k)
    base = signals.starts(bundle, "documents")
    places = []
    for i in at:
        number = int(np.searchsorted(base, ranking.docs[i], side="right")) - 1
        segment = bundle.segments[number]
        doc = int(ranking.docs[i] - base[number])
        found = {name: float(s[i]) for name, s in ranking.signals.items() if np.isfinite(s[i])}
        claim = "" if ranking.claims is None else claim_column(bundle, "text")[int(ranking.claims[i])]
        xid = segment.exchange_ids[int(segment.docs.exchange_row[doc])]
        places.append(Place(segment, doc, xid, float(ranking.scores[i]), found, claim))
    places.sort(key=lambda p: (-p.score, p.exchange_id))
    return read_hits(places[:k], filters)


def _closest_miss(bundle: Bundle, question: Question, mode: str, filters: Filters) -> Hit | None:
    """The nearest exchange without filters and phrases, or else by vector, with a note of what kept it out."""
    everything = np.ones(int(signals.starts(bundle, "documents")[-1]), np.bool_)
    tries: list[tuple[str, Callable[[], Ranking]]] = []
    if not filters.empty or question.phrases:
        kept_out = "a filter" if not question.phrases else "the phrase" if filters.empty else "a filter or the phrase"
        tries.append((f"kept out by {kept_out}", lambda: rank(bundle, question, mode, everything)))
    if mode != "distilled-vector" and "distilled-vector" in working_modes(bundle):
        tries.append(("nearest in meaning; no word in common", lambda: _by_vector(bundle, question, everything)))
    for note, ranked in tries:
        found = _hits(bundle, ranked(), 1, Filters())
        if found:
            return replace(found[0], note=note)
    return None


def _by_vector(bundle: Bundle, question: Question, mask: Mask) -> Ranking:
    try:
        encoder, _ = query_encoder(bundle)
    except BundleError:
        # The search was by words: a damaged encoder is no reason to fail it.
        encoder = None
    if encoder is None:
        return Ranking(np.zeros(0, np.int64), np.zeros(0), {})
    vector = encoder.encode([question.text], kind="query")[0].astype(np.float32)
    return rank(bundle, replace(question, vector=vector), "distilled-vector", mask)
