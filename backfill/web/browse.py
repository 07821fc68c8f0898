"""Exchanges without a query, the newest first, and what a bundle holds: for menus, lists and the timeline's months."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from backfill import signals
from backfill.hits import Hit, Place, read_hits
from backfill.ranking import documents_mask

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.filters import Filters

UNDATED = -(1 << 63)


def newest(bundle: Bundle, filters: Filters, start: int, limit: int) -> tuple[list[Hit], int]:
    """(`limit` exchanges that pass the filters, from the `start`-th on, how many pass), by time, then by id."""
    order = bundle.once("web:order", _order, bundle)
    chosen = order if filters.empty else order[documents_mask(bundle, filters)[order]]
    base = signals.starts(bundle, "documents")
    places = []
    for at in chosen[start : start + limit].tolist():
        number = int(np.searchsorted(base, at, side="right")) - 1
        segment, doc = bundle.segments[number], at - int(base[number])
        places.append(Place(segment, doc, segment.document_id(doc)))
    return read_hits(places, filters), len(chosen)


def span(bundle: Bundle) -> tuple[int | None, int | None]:
    """Microseconds of the first and the last dated exchange."""
    times = bundle.once("web:times", _times, bundle)
    dated = times[times != UNDATED]
    return (int(dated.min()), int(dated.max())) if len(dated) else (None, None)


def counted(bundle: Bundle, table: str, column: str) -> list[tuple[str, int]]:
    """Values of a column over the visible documents, the commonest first: of occurrences or of objects."""
    counts: Counter[Any] = Counter()
    for segment in bundle.segments:
        docs = segment.docs
        if table == "occurrences":
            rows = docs.occ_row[docs.occ_indptr[:-1]]
        else:
            rows = docs.object_row[docs.object_row >= 0]
        if len(rows):
            values = segment.column(table, column)
            counts.update(values[row] for row in rows.tolist())
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _times(bundle: Bundle) -> npt.NDArray[np.int64]:
    """[documents] when each began, at its best place."""
    found = [np.zeros(0, np.int64)]
    for segment in bundle.segments:
        docs = segment.docs
        if len(docs):
            started = segment.column("occurrences", "started_at")
            rows = docs.occ_row[docs.occ_indptr[:-1]].tolist()
            values = [started[row] for row in rows]
            found.append(np.array([UNDATED if t is None else t for t in values], np.int64))
    return np.concatenate(found)


def _order(bundle: Bundle) -> npt.NDArray[np.int64]:
    """[documents] their numbers, the newest first; equal times keep the order of months and ids."""
    times = bundle.once("web:times", _times, bundle)
    return np.argsort(-times.astype(np.float64), kind="stable").astype(np.int64)
