"""One exchange with everything that belongs to it, and the rooms of a bundle: what `show`, `rooms` and servers tell."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill.errors import UsageError
from backfill.filters import Filters
from backfill.hits import Place, iso, read_hits
from backfill.types import Claim, Exchange, Occurrence, PalaceObject

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

_TIMES = ("started_at", "ended_at")


def show_exchange(bundle: Bundle, prefix: str) -> dict[str, Any]:
    """{exchange, occurrences, object, claims, prev, next} of a visible exchange; ids are hex, times ISO 8601.

    `prev` and `next` are the visible exchanges before and after it in a session that it stands in; several where
    histories fork. Raises UsageError as `Bundle.find` does.
    """
    segment, doc = bundle.find(prefix)
    docs = segment.docs
    exchange = _row(segment, "exchanges", Exchange, int(docs.exchange_row[doc]))
    number = int(docs.object_row[doc])
    occurrences = [_row(segment, "occurrences", Occurrence, int(row)) for row in _places(segment, doc)]
    tree: dict[str, Any] = {
        "exchange": exchange,
        "occurrences": occurrences,
        "object": _row(segment, "objects", PalaceObject, number) if number >= 0 else None,
        "claims": list(_claims(bundle, exchange["exchange_id"])),
    }
    sessions = {place["session_id"] for place in occurrences}
    before, own = exchange["prev_content_id"], exchange["content_id"]
    tree["prev"] = _neighbours(bundle, "content_id", before, sessions) if before else []
    tree["next"] = _neighbours(bundle, "prev_content_id", own, sessions)
    plain: dict[str, Any] = _plain(tree)
    return plain


def list_rooms(bundle: Bundle, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
    """{rooms: [{type, key, label, exchanges, last_at, projects}], cursor}: the fullest rooms first, over all projects.

    `cursor` continues a list, and is null in the answer at its end. Raises UsageError for a cursor that no list gave.
    """
    rooms = sorted(_rooms(bundle), key=lambda room: (-room["exchanges"], room["type"], room["key"]))
    page, following = _page(rooms, limit, cursor)
    return {"rooms": page, "cursor": following}


def show_room(bundle: Bundle, room: str, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
    """{rooms, hits, cursor}: the rooms of a key (or type:key), and their exchanges, the newest first.

    Raises UsageError that names the nearest room when there is none of this name.
    """
    filters = Filters.parse(room=room)
    kind, _, key = (filters.room or "").rpartition(":")
    rooms = _rooms(bundle)
    matching = [one for one in rooms if one["key"] == key and kind in ("", one["type"])]
    if not matching:
        close = difflib.get_close_matches(key, [one["key"] for one in rooms], n=3, cutoff=0.5)
        raise UsageError(f"no room is called {room[:80]!r}", hint=f"near: {', '.join(close)}" if close else "")
    dated: list[tuple[int, bytes, Place]] = []
    for segment in bundle.segments:
        docs = segment.docs
        chosen = np.flatnonzero(filters.document_mask(segment))
        times = segment.column("occurrences", "started_at") if len(chosen) else []
        for doc in chosen.tolist():
            xid = segment.exchange_ids[int(docs.exchange_row[doc])]
            started = times[int(_places(segment, doc)[0])]
            dated.append((-started if started is not None else 1 << 63, xid, Place(segment, doc, xid)))
    dated.sort(key=lambda item: item[:2])
    page, following = _page(dated, limit, cursor)
    hits = [
        {name: getattr(hit, name) for name in ("exchange_id", "started_at", "project", "exchange_core")}
        for hit in read_hits([place for _, _, place in page])
    ]
    return {"rooms": matching, "hits": hits, "cursor": following}


def _page(items: list[Any], limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
    if limit < 1:
        raise UsageError(f"a page has at least 1 entry, not {limit}")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(f"{cursor[:40]!r} is not a cursor that an earlier page gave")
    start = int(cursor or 0)
    return items[start : start + limit], str(start + limit) if start + limit < len(items) else None


def _rooms(bundle: Bundle) -> list[dict[str, Any]]:
    """Rooms over all projects; the table has one row a project."""
    if bundle.rooms is None:
        return []
    columns = bundle.rooms.read(("room_type", "room_key", "room_label", "project", "n_exchanges", "last_at"))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, key, label, project, n_exchanges, last_at in zip(*columns.values(), strict=True):
        room = found.setdefault(
            (kind, key), {"type": kind, "key": key, "label": label, "exchanges": 0, "last_at": None, "projects": []}
        )
        room["exchanges"] += n_exchanges
        room["projects"].append(project)
        room["last_at"] = max((t for t in (room["last_at"], last_at) if t is not None), default=None)
    return [{**room, "last_at": iso(room["last_at"])} for room in found.values()]


def _places(segment: Segment, doc: int) -> list[int]:
    docs = segment.docs
    rows: list[int] = docs.occ_row[int(docs.occ_indptr[doc]) : int(docs.occ_indptr[doc + 1])].tolist()
    return rows


def _row(segment: Segment, table: str, kind: type[Any], at: int) -> dict[str, Any]:
    return segment.table(table).rows_at(tuple(kind.__slots__), [at])[at]


def _claims(bundle: Bundle, exchange_id: bytes) -> Iterable[dict[str, Any]]:
    for segment in bundle.segments:
        if len(segment.docs.claim_row):
            cells = segment.column("claims", "exchange_ids")
            for row in segment.docs.claim_row.tolist():
                if exchange_id in cells[row]:
                    yield _row(segment, "claims", Claim, row)


def _neighbours(bundle: Bundle, column: str, wanted: bytes, sessions: set[str]) -> list[dict[str, Any]]:
    places = []
    for segment in bundle.segments:
        values = segment.column("exchanges", column)
        for row in (row for row, value in enumerate(values) if value == wanted):
            doc = int(segment.doc_of_row[row])
            if doc >= 0:
                places.append(Place(segment, doc, segment.exchange_ids[row]))
    found = []
    for place, hit in zip(places, read_hits(places), strict=True):
        names = place.segment.table("occurrences").rows_at(("session_id",), _places(place.segment, place.doc))
        if sessions & {row["session_id"] for row in names.values()}:
            found.append({name: getattr(hit, name) for name in ("exchange_id", "started_at", "exchange_core")})
    return sorted(found, key=lambda entry: (entry["started_at"] or "~", entry["exchange_id"]))


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if name in _TIMES and isinstance(value, int):
        return iso(value)
    if name == "date" and value is not None:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    return value
