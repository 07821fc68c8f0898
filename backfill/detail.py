"""One exchange with everything that belongs to it, and the rooms of a bundle: what `show`, `rooms` and servers tell."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill.claim_search import ClaimHit, claims_of_exchange
from backfill.errors import UsageError
from backfill.filters import Filters
from backfill.hits import Place, occurrence_rows, read_hits
from backfill.ranking import documents_mask
from backfill.rows import rows_of
from backfill.signals import starts
from backfill.text_pages import read_cells
from backfill.trees import iso, plain
from backfill.types import Exchange, Occurrence, PalaceObject

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

_LONG_TEXTS = ("user_text", "agent_text", "thinking")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An exchange just before or after another in a session of its."""

    exchange_id: str
    started_at: str | None
    exchange_core: str


@dataclass(frozen=True, slots=True)
class ExchangeDetail:
    """A visible exchange and what belongs to it; rows as the tables hold them.

    `occurrences` are all places where it stands, the best first. `prev` and `next` are the visible exchanges before
    and after it in a session that it stands in; several where histories fork.
    """

    exchange: Exchange
    occurrences: tuple[Occurrence, ...]
    object: PalaceObject | None
    claims: tuple[ClaimHit, ...]
    prev: tuple[Neighbour, ...]
    next: tuple[Neighbour, ...]

    def to_tree(self) -> dict[str, Any]:
        """As `show --json` prints it: ids in hex, times in ISO 8601."""
        tree: dict[str, Any] = plain(self)
        return {**tree, "claims": [claim.to_tree() for claim in self.claims]}


@dataclass(frozen=True, slots=True)
class RoomSummary:
    """A room over all projects; `last_at` is ISO 8601."""

    type: str
    key: str
    label: str
    exchanges: int
    last_at: str | None
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoomExchange:
    """An exchange in the list of a room."""

    exchange_id: str
    started_at: str | None
    project: str
    exchange_core: str


@dataclass(frozen=True, slots=True)
class RoomPage:
    """A page of rooms, or of one room's exchanges where `hits` is not None; `cursor` gives the next page, if any."""

    rooms: tuple[RoomSummary, ...]
    hits: tuple[RoomExchange, ...] | None
    cursor: str | None

    def to_tree(self) -> dict[str, Any]:
        """As `rooms --json` prints it."""
        tree: dict[str, Any] = plain(self)
        return {name: value for name, value in tree.items() if name != "hits" or value is not None}


def exchange_detail(bundle: Bundle, prefix: str) -> ExchangeDetail:
    """The visible exchange whose id in hex starts with `prefix`. Raises UsageError as `Bundle.find` does."""
    segment, doc = bundle.find(prefix)
    docs = segment.docs
    exchange = _exchange(segment, int(docs.exchange_row[doc]))
    number = int(docs.object_row[doc])
    occurrences: list[Occurrence] = _rows(segment, "occurrences", Occurrence, occurrence_rows(segment, doc))
    sessions = {place.session_id for place in occurrences}
    before = exchange.prev_content_id
    return ExchangeDetail(
        exchange=exchange,
        occurrences=tuple(occurrences),
        object=_rows(segment, "objects", PalaceObject, [number])[0] if number >= 0 else None,
        claims=claims_of_exchange(bundle, segment, doc),
        prev=_neighbours(bundle, "content_id", before, sessions) if before else (),
        next=_neighbours(bundle, "prev_content_id", exchange.content_id, sessions),
    )


def room_page(bundle: Bundle, room: str | None, *, limit: int = 50, cursor: str | None = None) -> RoomPage:
    """A page of all rooms, the fullest first, or of the exchanges of `room`, the newest first.

    Raises UsageError for a cursor that no page gave, and for an unknown room, naming the nearest.
    """
    rooms = bundle.once("rooms:all", _all_rooms, bundle)
    if room is None:
        page, following = _page(rooms, limit, cursor)
        return RoomPage(tuple(page), None, following)
    filters = Filters.parse(room=room)
    kind, _, key = (filters.room or "").rpartition(":")
    matching = tuple(one for one in rooms if one.key == key and kind in ("", one.type))
    if not matching:
        close = difflib.get_close_matches(key, [one.key for one in rooms], n=3, cutoff=0.5)
        raise UsageError(f"no room is called {room[:80]!r}", hint=f"near: {', '.join(close)}" if close else "")
    places, following = _page(_newest_first(bundle, filters), limit, cursor)
    hits = read_hits([place for _, _, place in places])
    listed = tuple(RoomExchange(hit.exchange_id, hit.started_at, hit.project, hit.exchange_core) for hit in hits)
    return RoomPage(matching, listed, following)


def _newest_first(bundle: Bundle, filters: Filters) -> list[tuple[int, bytes, Place]]:
    dated: list[tuple[int, bytes, Place]] = []
    base, mask = starts(bundle, "documents"), documents_mask(bundle, filters)
    for number, segment in enumerate(bundle.segments):
        docs = np.flatnonzero(mask[base[number] : base[number + 1]])
        if not len(docs):
            continue
        started = segment.started_us[segment.docs.occ_row[segment.docs.occ_indptr[docs]]]
        for doc, us in zip(docs.tolist(), started.tolist(), strict=True):
            xid = segment.document_id(doc)
            dated.append((-us, xid, Place(segment, doc, xid)))
    return sorted(dated, key=lambda item: item[:2])


def _page(items: list[Any], limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
    if limit < 1:
        raise UsageError(f"a page has at least 1 entry, not {limit}")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(f"{cursor[:40]!r} is not a cursor that an earlier page gave")
    start = int(cursor or 0)
    return items[start : start + limit], str(start + limit) if start + limit < len(items) else None


def _all_rooms(bundle: Bundle) -> list[RoomSummary]:
    """Rooms over all projects, the fullest first; the table has one row a project."""
    if bundle.rooms_table is None:
        return []
    columns = bundle.rooms_table.read(("room_type", "room_key", "room_label", "project", "n_exchanges", "last_at"))
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for kind, key, *rest in zip(*columns.values(), strict=True):
        found.setdefault((kind, key), []).append(tuple(rest))
    rooms = [_room(kind, key, rows) for (kind, key), rows in found.items()]
    return sorted(rooms, key=lambda room: (-room.exchanges, room.type, room.key))


def _room(kind: str, key: str, rows: list[tuple[Any, ...]]) -> RoomSummary:
    last_at = max((last for *_, last in rows if last is not None), default=None)
    exchanges = sum(n for _, _, n, _ in rows)
    return RoomSummary(kind, key, rows[0][0], exchanges, iso(last_at), tuple(project for _, project, _, _ in rows))


def _exchange(segment: Segment, row: int) -> Exchange:
    """A row of exchanges; its long texts are read by their pages, and not with those of its row group."""
    table = segment.table("exchanges")
    texts = read_cells([(table, name, row) for name in _LONG_TEXTS])
    values = table.rows_at(tuple(name for name in Exchange.__slots__ if name not in _LONG_TEXTS), [row])[row]
    values.update((name, texts[table, name, row]) for name in _LONG_TEXTS)
    found: list[Exchange] = rows_of("exchanges", {name: [values[name]] for name in Exchange.__slots__})
    return found[0]


def _rows(segment: Segment, table: str, kind: type[Any], positions: list[int]) -> list[Any]:
    names = tuple(kind.__slots__)
    rows = segment.table(table).rows_at(names, positions)
    return rows_of(table, {name: [rows[at][name] for at in positions] for name in names})


def _neighbours(bundle: Bundle, column: str, wanted: bytes, sessions: set[str]) -> tuple[Neighbour, ...]:
    found = []
    for segment in bundle.segments:
        for row in segment.rows_where("exchanges", column, wanted):
            doc = int(segment.doc_of_row[row])
            standing = occurrence_rows(segment, doc) if doc >= 0 else []
            places = segment.table("occurrences").rows_at(("session_id", "started_at"), standing)
            if sessions & {place["session_id"] for place in places.values()}:
                started_at = iso(places[standing[0]]["started_at"])
                found.append(Neighbour(segment.document_id(doc).hex(), started_at, _core(segment, doc)))
    return tuple(sorted(found, key=lambda entry: (entry.started_at or "~", entry.exchange_id)))


def _core(segment: Segment, doc: int) -> str:
    number = int(segment.docs.object_row[doc])
    if number < 0:
        return ""
    core: str = segment.table("objects").rows_at(("exchange_core",), [number])[number]["exchange_core"]
    return core
