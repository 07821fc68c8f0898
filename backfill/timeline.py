"""When and where the work was: exchanges and sessions by month and project."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill.filters import Filters
from backfill.ranking import documents_mask
from backfill.signals import Mask, Units, starts
from backfill.trees import iso

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment


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
    exchanges: dict[tuple[str, str], int] = defaultdict(int)
    sessions: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    filters = filters or Filters()
    base, mask = starts(bundle, "documents"), documents_mask(bundle, filters)
    for number, segment in enumerate(bundle.segments):
        rows = _shown_rows(segment, np.flatnonzero(mask[base[number] : base[number + 1]]), filters)
        names = ("started_at", "project", "agent", "session_id")
        columns = [segment.column("occurrences", name) for name in names] if len(rows) else []
        for row in rows:
            started, project, agent, session = (column[row] for column in columns)
            key = ((iso(started) or "~")[:7], project)
            exchanges[key] += 1
            sessions[key].add((agent, session))
    return tuple(
        TimelineEntry(
            month if month != "~" else None, project, exchanges[month, project], len(sessions[month, project])
        )
        for month, project in sorted(exchanges)
    )


def _shown_rows(segment: Segment, chosen: Units, filters: Filters) -> list[int]:
    """The occurrence row that each of the chosen documents is counted at."""
    docs = segment.docs
    if not filters.on_occurrences:
        rows: list[int] = docs.occ_row[docs.occ_indptr[chosen]].tolist()
        return rows
    meets: Mask = filters.occurrence_mask(segment)
    places = (docs.occ_row[docs.occ_indptr[doc] : docs.occ_indptr[doc + 1]] for doc in chosen)
    return [int(rows[int(np.argmax(meets[rows]))]) for rows in places]
