"""When and where the work was: exchanges and sessions by month and project."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill.filters import Filters
from backfill.ranking import documents_mask
from backfill.recent import Recent
from backfill.signals import Mask, Units, starts

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

# Sorts after every month.
_UNDATED = "~"
_KEPT = 32


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """What one project has in one month (YYYY-MM in UTC, None where times are unknown)."""

    month: str | None
    project: str
    exchanges: int
    sessions: int

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it."""
        return asdict(self)


def timeline(bundle: Bundle, filters: Filters | None = None) -> tuple[TimelineEntry, ...]:
    """Entries in order of month, then project, the undated last.

    An exchange counts once, where its best visible occurrence stands among those that meet the filters.
    """
    filters = filters or Filters()
    recent: Recent[tuple[TimelineEntry, ...]] = bundle.once("timelines", Recent, _KEPT)
    entries = recent.get(filters)
    if entries is None:
        entries = _timeline(bundle, filters)
        recent.put(filters, entries, 1)
    return entries


def _timeline(bundle: Bundle, filters: Filters) -> tuple[TimelineEntry, ...]:
    exchanges: Counter[tuple[str, str]] = Counter()
    sessions: dict[tuple[str, str], set[str]] = defaultdict(set)
    base, mask = starts(bundle, "documents"), documents_mask(bundle, filters)
    for number, segment in enumerate(bundle.segments):
        rows = _shown_rows(segment, np.flatnonzero(mask[base[number] : base[number + 1]]), filters)
        for key, session, n_exchanges in _counts(segment, rows):
            exchanges[key] += n_exchanges
            sessions[key].add(session)
    return tuple(
        TimelineEntry(None if month == _UNDATED else month, project, n_exchanges, len(sessions[month, project]))
        for (month, project), n_exchanges in sorted(exchanges.items())
    )


def _counts(segment: Segment, rows: Units) -> Iterator[tuple[tuple[str, str], str, int]]:
    """((month, project), session, exchanges) of the occurrence rows."""
    if not len(rows):
        return
    months = segment.started_us[rows].astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    projects, names = (segment.labels("occurrences", name) for name in ("project", "session_id"))
    keys = np.stack([months, projects.codes[rows], names.codes[rows]], axis=1)
    distinct, counts = np.unique(keys, axis=0, return_counts=True)
    for (month, project, session), n_exchanges in zip(distinct.tolist(), counts.tolist(), strict=True):
        known = str(np.datetime64(month, "M"))
        yield (_UNDATED if known == "NaT" else known, projects.names[project]), names.names[session], n_exchanges


def _shown_rows(segment: Segment, chosen: Units, filters: Filters) -> Units:
    """The occurrence row that each of the chosen documents is counted at."""
    docs = segment.docs
    if not filters.on_occurrences:
        return docs.occ_row[docs.occ_indptr[chosen]].astype(np.int64)
    meets: Mask = filters.occurrence_mask(segment)
    places = (docs.occ_row[docs.occ_indptr[doc] : docs.occ_indptr[doc + 1]] for doc in chosen)
    return np.array([int(rows[int(np.argmax(meets[rows]))]) for rows in places], np.int64)
