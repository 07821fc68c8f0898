"""The palace as areas: rooms in groups by type or project, the fullest with a tile of their own, the tail added up.

A bundle may have tens of thousands of rooms, most of them with one exchange; a picture shows some hundreds. So each
group says how many rooms its tiles leave out, and gives these in a picture of their own when asked (`skip`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from backfill.errors import UsageError
from backfill.trees import iso
from backfill.web import parameters, schema

if TYPE_CHECKING:
    from backfill.bundle import Bundle

MAX_GROUPS = 24
MIN_TILES = 4


@dataclass(frozen=True, slots=True)
class _Row:
    """A room in one project, as the table of rooms has it; `last_at` in microseconds."""

    type: str
    key: str
    label: str
    project: str
    exchanges: int
    last_at: int | None


def list_rooms(bundle: Bundle, params: parameters.RoomsParams, start: int) -> tuple[list[schema.RoomSummary], int]:
    """(a page of the rooms that pass, how many pass), the fullest first."""
    part = params.q.strip().lower().replace(" ", "_")
    rows = [
        row
        for row in _rows(bundle)
        if params.type in ("", row.type) and params.project in ("", row.project) and part in row.key
    ]
    rooms = _summed(rows)
    page = rooms[start : start + params.limit]
    return [schema.RoomSummary(r.type, r.key, r.label, r.exchanges, iso(r.last_at)) for r in page], len(rooms)


def picture(bundle: Bundle, params: parameters.PalaceParams) -> schema.PalaceAnswer:
    """The groups with their tiles, or one group. Raises UsageError for a group that is not there."""
    groups = bundle.once(f"web:palace:{params.by}", _groups, bundle, params.by)
    if params.group is not None:
        if params.group not in groups:
            raise UsageError(f"no group is called {params.group[:80]!r}")
        only = _group(params.group, groups[params.group], params.limit, params.skip)
        return schema.PalaceAnswer(params.by, [only], 0, 0)
    sizes = {name: sum(room.exchanges for room in rooms) for name, rooms in groups.items()}
    order = sorted(groups, key=lambda name: (-sizes[name], name))
    shown, left = order[:MAX_GROUPS], order[MAX_GROUPS:]
    total = sum(sizes[name] for name in shown) or 1
    made = [_group(name, groups[name], max(MIN_TILES, round(params.limit * sizes[name] / total)), 0) for name in shown]
    return schema.PalaceAnswer(params.by, made, len(left), sum(sizes[name] for name in left))


def _group(name: str, rooms: list[_Row], limit: int, skip: int) -> schema.PalaceGroup:
    shown, rest = rooms[skip : skip + limit], rooms[skip + limit :]
    tiles = [schema.Tile(r.type, r.key, r.label, r.exchanges, iso(r.last_at)) for r in shown]
    exchanges = sum(room.exchanges for room in rooms)
    rest_exchanges = sum(room.exchanges for room in rest)
    return schema.PalaceGroup(name, exchanges, len(rooms), tiles, min(skip, len(rooms)), len(rest), rest_exchanges)


def _groups(bundle: Bundle, by: Literal["type", "project"]) -> dict[str, list[_Row]]:
    rows: dict[str, list[_Row]] = defaultdict(list)
    for row in _rows(bundle):
        rows[row.type if by == "type" else row.project].append(row)
    return {name: _summed(members) for name, members in rows.items()}


def _summed(rows: list[_Row]) -> list[_Row]:
    """Rooms over the projects of the rows, the fullest first."""
    found: dict[tuple[str, str], _Row] = {}
    for row in rows:
        known = found.get((row.type, row.key))
        if known is not None:
            last_at = max((at for at in (known.last_at, row.last_at) if at is not None), default=None)
            row = _Row(row.type, row.key, known.label, "", known.exchanges + row.exchanges, last_at)
        found[row.type, row.key] = row
    return sorted(found.values(), key=lambda room: (-room.exchanges, room.type, room.key))


def _rows(bundle: Bundle) -> list[_Row]:
    return bundle.once("web:rooms", _read_rows, bundle)


def _read_rows(bundle: Bundle) -> list[_Row]:
    if bundle.rooms_table is None:
        return []
    names = ("room_type", "room_key", "room_label", "project", "n_exchanges", "last_at")
    columns = bundle.rooms_table.read(names)
    return [_Row(*values) for values in zip(*(columns[name] for name in names), strict=True)]
