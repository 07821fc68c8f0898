"""Complete parts to rows: the exchange, once per unit, and the occurrence that says where it stands.

Deliberately absent: when a part is complete (`segment`) and what it holds (`assemble`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill.assemble import OpenPart
from backfill.spill import ExchangeRows
from backfill.streams import Stream
from backfill.types import Occurrence


@dataclass(slots=True)
class Emitted:
    """The rows of one unit so far. `default_project` stands in for a format without working directories."""

    agent: str
    source: str
    scan_version: int
    default_project: str = ""
    exchanges: ExchangeRows = field(default_factory=ExchangeRows)
    occurrences: list[Occurrence] = field(default_factory=list)
    _places: dict[bytes, list[int]] = field(default_factory=dict)

    def take(self, part: OpenPart, stream: Stream, *, is_open: bool) -> None:
        """Makes the rows of a part and lets go of its texts."""
        exchange = part.exchange
        if part.number == 0:
            previous = exchange.previous.content if exchange.previous is not None else None
        else:
            previous = exchange.content
        row = part.row(previous)
        stream.forget_calls(part)
        part.release()
        exchange.content = row.content_id
        places = self._places.setdefault(row.exchange_id, [])
        if not any(self.exchanges[place] == row for place in places):
            places.append(len(self.exchanges))
            self.exchanges.append(row)
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
