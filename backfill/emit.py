"""Complete parts to rows: the exchange, once per unit, and the occurrence that says where it stands.

Deliberately absent: when a part is complete (`segment`) and what it holds (`assemble`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill.assemble import OpenPart
from backfill.spill import SpilledRows, exchange_rows, occurrence_rows
from backfill.streams import Stream
from backfill.types import Exchange, Occurrence


@dataclass(slots=True)
class Emitted:
    """The rows of one unit so far. `default_project` stands in for a format without working directories."""

    agent: str
    source: str
    scan_version: int
    default_project: str = ""
    exchanges: SpilledRows[Exchange] = field(default_factory=exchange_rows)
    occurrences: SpilledRows[Occurrence] = field(default_factory=occurrence_rows)
    _first: dict[bytes, int] = field(default_factory=dict)  # where the row of an id stands
    _more: dict[bytes, list[int]] = field(default_factory=dict)  # and others of that id, which are rare

    def take(self, part: OpenPart, stream: Stream, *, is_open: bool) -> None:
        """Makes the rows of a part and lets go of its texts."""
        exchange = part.exchange
        if part.number == 0:
            previous = exchange.previous.content if exchange.previous is not None else None
        else:
            previous = exchange.link.content
        row = part.row(previous)
        stream.forget_calls(part)
        part.release()
        exchange.link.content = row.content_id
        self._add(row)
        self.occurrences.append(
            Occurrence(
                self.agent,
                stream.session_id,
                exchange.anchor,
                part.number,
                self.scan_version,
                is_open,
                part.n_records if is_open or part.closed_n is None else part.closed_n,
                row.exchange_id,
                self.source,
                part.byte_start,
                part.byte_end,
                stream.parent_session,
                part.project or self.default_project,
                part.cwd,
                part.branch,
                part.title,
                part.model,
                part.started_at,
                part.ended_at,
                part.tz_assumed,
            )
        )

    def _add(self, row: Exchange) -> None:
        """Adds a row unless an equal one is there."""
        place = len(self.exchanges)
        first = self._first.setdefault(row.exchange_id, place)
        if first != place:
            more = self._more.get(row.exchange_id, [])
            if any(self.exchanges[at] == row for at in (first, *more)):
                return
            self._more[row.exchange_id] = [*more, place]
        self.exchanges.append(row)
