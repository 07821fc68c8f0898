"""Claims as answers: found by words and by vectors, with their dates, where they come from and what replaced them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill import signals
from backfill.claim_index import claim_index, claim_kinds, claim_rows, replaced_by
from backfill.errors import UsageError
from backfill.filters import Filters
from backfill.fusion import Scores
from backfill.hits import OCCURRENCE_COLUMNS, Location, location, occurrence_rows
from backfill.question import ask
from backfill.ranking import documents_mask, rank_claims
from backfill.signals import Units, best_units
from backfill.trees import iso_date, plain
from backfill.types import Claim

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

MAX_CLAIMS = 10_000


@dataclass(frozen=True, slots=True)
class ClaimHit:
    """A claim. `date` is YYYY-MM-DD; `sources` are the visible exchanges it was distilled from, each where it stands.

    `superseded_by` is the id of the later claim that replaced it, `replacement` that claim's text where it is visible.
    """

    claim_id: str
    text: str
    kind: str
    date: str | None
    session_id: str
    window: int
    tier: str
    generation: int
    fingerprint: str
    exchange_ids: tuple[str, ...]
    score: float = 0.0
    superseded_by: str | None = None
    replacement: str = ""
    sources: tuple[Location, ...] = ()

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it."""
        tree: dict[str, Any] = plain(self)
        return tree


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What a search for claims found; `hidden` counts claims that matched, but that a later one replaced."""

    query: str
    claims: tuple[ClaimHit, ...]
    took_ms: float
    hidden: int = 0
    warnings: tuple[str, ...] = ()

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it."""
        tree: dict[str, Any] = {"query": self.query, "took_ms": self.took_ms, "hidden": self.hidden}
        tree["claims"] = [claim.to_tree() for claim in self.claims]
        return {**tree, "warnings": list(self.warnings)} if self.warnings else tree


def search_claims(
    bundle: Bundle, text: str = "", *, k: int = 10, superseded: bool = False, filters: Filters | None = None
) -> ClaimResult:
    """The `k` best claims for `text`, or the newest where it is empty; replaced ones only with `superseded`.

    Raises UsageError for `k` outside 1 to 10,000 or a query without words.
    """
    began = time.perf_counter()
    filters = filters or Filters()
    if not 1 <= k <= MAX_CLAIMS:
        raise UsageError(f"k must be 1 to {MAX_CLAIMS:,}, not {k}")
    mask = documents_mask(bundle, filters)
    warnings: Sequence[str] = ()
    if text.strip():
        question, warnings = ask(bundle, text, wants_vector=_has_vectors(bundle), k=k, superseded=True, filters=filters)
        ranked = rank_claims(bundle, question, mask)
        units, scores = ranked.docs, ranked.scores
    else:
        units = np.flatnonzero(claim_index(bundle).any_doc(mask))
        units = _of_kind(bundle, units, filters.kind)
        scores = _dates(bundle)[units]
    current = claim_index(bundle).current[units]
    hidden = 0 if superseded else int((~current).sum())
    if not superseded:
        units, scores = units[current], scores[current]
    best = best_units(scores, np.arange(len(units)), k)
    ordered = sorted(best.tolist(), key=lambda at: (-scores[at], int(units[at])))[:k]
    claims = read_claims(bundle, units[ordered])
    if text.strip():
        claims = [replace(claim, score=float(scores[at])) for claim, at in zip(claims, ordered, strict=True)]
    took_ms = round((time.perf_counter() - began) * 1000, 2)
    return ClaimResult(text, tuple(claims), took_ms, hidden, tuple(warnings))


def claims_of_exchange(bundle: Bundle, segment: Segment, doc: int) -> tuple[ClaimHit, ...]:
    """The visible claims that were distilled from a document, replaced ones marked."""
    number = bundle.segments.index(segment)
    at = int(signals.starts(bundle, "documents")[number]) + doc
    return tuple(read_claims(bundle, np.sort(claim_index(bundle).claims_of(at))))


def read_claims(bundle: Bundle, units: Units) -> list[ClaimHit]:
    """The claims of the given numbers, in their order, with their sources and what replaced them."""
    claims = claim_rows(bundle, units)
    gone = replaced_by(bundle)
    newer = _texts_of(bundle, {gone[claim.claim_id] for claim in claims if claim.claim_id in gone})
    pairs = zip(units.tolist(), claims, strict=True)
    return [_hit(bundle, unit, claim, gone.get(claim.claim_id), newer) for unit, claim in pairs]


def _hit(bundle: Bundle, unit: int, claim: Claim, newer: bytes | None, texts: dict[bytes, str]) -> ClaimHit:
    return ClaimHit(
        claim_id=claim.claim_id.hex(),
        text=claim.text,
        kind=claim.kind,
        date=iso_date(claim.date),
        session_id=claim.session_id,
        window=claim.window,
        tier=claim.tier,
        generation=claim.generation,
        fingerprint=claim.fingerprint,
        exchange_ids=tuple(one.hex() for one in claim.exchange_ids),
        superseded_by=newer.hex() if newer else None,
        replacement=texts.get(newer, "") if newer else "",
        sources=tuple(_sources(bundle, claim_index(bundle).docs_of(unit))),
    )


def _sources(bundle: Bundle, docs: Units) -> Iterable[Location]:
    base = signals.starts(bundle, "documents")
    for at in docs.tolist():
        number = int(np.searchsorted(base, at, side="right")) - 1
        segment, doc = bundle.segments[number], at - int(base[number])
        row = occurrence_rows(segment, doc)[0]
        yield location(segment.document_id(doc), segment.table("occurrences").rows_at(OCCURRENCE_COLUMNS, [row])[row])


def _texts_of(bundle: Bundle, claim_ids: set[bytes]) -> dict[bytes, str]:
    texts: dict[bytes, str] = {}
    for segment in bundle.segments if claim_ids else ():
        rows = segment.docs.claim_row.tolist()
        if rows:
            ids = segment.column("claims", "claim_id")
            wanted = [row for row in rows if ids[row] in claim_ids]
            found = segment.table("claims").rows_at(("claim_id", "text"), wanted)
            texts.update({row["claim_id"]: row["text"] for row in found.values()})
    return texts


def _has_vectors(bundle: Bundle) -> bool:
    return any(segment.has("vectors:claims") for segment in bundle.segments)


def _of_kind(bundle: Bundle, units: Units, kind: str | None) -> Units:
    return units if kind is None else units[claim_kinds(bundle)[units] == kind]


def _dates(bundle: Bundle) -> Scores:
    """[C] days since 1970, undated claims before all."""

    def read() -> Scores:
        values = [np.zeros(0)]
        for segment in bundle.segments:
            rows = segment.docs.claim_row
            if len(rows):
                dates = segment.table("claims").read(["date"])["date"]
                values.append(np.array([-1e9 if day is None else day for day in dates], np.float64)[rows])
        return np.concatenate(values)

    return bundle.once("claim_dates", read)
