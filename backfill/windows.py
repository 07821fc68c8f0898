"""Windows: the runs of exchanges that claims are distilled from.

A session, as one source unit has it, is cut greedily from its start, so an earlier window never changes as the session
grows: only the last one does, or closes. A pure function of that unit's occurrences; copies in other files have windows
of their own, and their equal claims meet by id. Deliberately absent: reading tables (`claim_rounds`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backfill.ids import digest_fields
from backfill.types import Exchange, Occurrence
from backfill.visibility import visible_occurrences

WINDOWS_VERSION = 1
# About four exchanges, so an answer of 384 tokens holds a claim for every 100 tokens; a dozen bounds short ones.
MAX_TOKENS = 1200
MAX_EXCHANGES = 12
# Exchanges before a window that its prompt may name things from.
LEAD_EXCHANGES = 2

_CLOSED = 1 << 41
_VERSION_SHIFT = 42


@dataclass(frozen=True, slots=True)
class Span:
    """A window as places: its occurrences in order, and those of the `lead` before it."""

    session_id: str
    source: str
    window: int
    reading: int
    places: tuple[Occurrence, ...]
    lead: tuple[Occurrence, ...]

    @property
    def digest(self) -> bytes:
        """16 bytes over all that decides the window's claims: equal spans are distilled once in a run."""
        fields = [self.session_id.encode(), self.source.encode(), str(self.window).encode(), str(self.reading).encode()]
        for place in (*self.lead, *self.places):
            fields += [place.exchange_id, str(place.started_at).encode()]
        return digest_fields([*fields, str(len(self.lead)).encode()])


@dataclass(frozen=True, slots=True)
class Window:
    """A window with its content. `starts` [exchanges] are times in microseconds since 1970 UTC, None where unknown."""

    session_id: str
    source: str
    window: int
    reading: int
    exchanges: tuple[Exchange, ...]
    starts: tuple[int | None, ...]
    lead: tuple[Exchange, ...] = ()


class Windows(tuple[Window, ...]):
    """The windows of a claims shard: what tells them from the exchange rows of a shard of objects."""

    __slots__ = ()


def cut_session(session_id: str, source: str, rows: Iterable[Occurrence], tokens: Mapping[bytes, int]) -> list[Span]:
    """The windows of a session: `rows` are all readings of its places in one source unit, `tokens` by exchange_id.

    A window is closed by the first exchange that does not fit. `reading` grows with scan_version, closing and the
    records read: an exchange that outgrew the last window leaves it, and the closed one then goes before the one that
    still had it.
    """
    places = sorted(visible_occurrences(rows), key=_order)
    runs: list[list[Occurrence]] = []
    size = 0
    for place in places:
        weight = tokens.get(place.exchange_id, 0)
        if not runs or size + weight > MAX_TOKENS or len(runs[-1]) == MAX_EXCHANGES:
            runs.append([])
            size = 0
        runs[-1].append(place)
        size += weight
    spans = []
    for number, run in enumerate(runs):
        closed = number + 1 < len(runs)
        before = runs[number - 1] if number else []
        lead = tuple(before[-LEAD_EXCHANGES:])
        spans.append(Span(session_id, source, number, _reading(run, closed), tuple(run), lead))
    return spans


def sessions_of(
    rows: Iterable[tuple[str, Occurrence]],
) -> dict[tuple[str, str], list[Occurrence]]:
    """Occurrences by (source unit, session): `rows` are pairs of the unit's source and an occurrence."""
    sessions: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    for unit, row in rows:
        sessions[unit, row.session_id].append(row)
    return dict(sessions)


def _order(place: Occurrence) -> tuple[int, int, str, int]:
    """A session's order: records read so far grow from one exchange to the next, in one file or many."""
    return place.n_records, place.byte_start, place.anchor, place.part


def _reading(run: Sequence[Occurrence], closed: bool) -> int:
    version = max(place.scan_version for place in run)
    return (version << _VERSION_SHIFT) + closed * _CLOSED + max(place.n_records for place in run)
