"""Rows of tables: from a Parquet reader's columns to the frozen dataclasses of `types`, and their canonical order.

Light: neither pyarrow nor arro3 is named here. Times arrive as integers in microseconds, dates as days.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from types import GenericAlias
from typing import Any

import msgspec

from backfill.clean import clean_line
from backfill.errors import BundleError
from backfill.ids import row_bytes
from backfill.types import (
    TIER_RANK,
    Claim,
    Exchange,
    FileTouched,
    Finding,
    LedgerRow,
    Occurrence,
    PalaceObject,
    Room,
    RoomAssignment,
    Row,
    Superseded,
    Tombstone,
    ToolCall,
)

ROW_TYPES: dict[str, type[Any]] = {
    "exchanges": Exchange,
    "occurrences": Occurrence,
    "objects": PalaceObject,
    "claims": Claim,
    "rooms": Room,
    "ledger": LedgerRow,
    "tombstones": Tombstone,
    "superseded": Superseded,
}
NESTED: dict[str, type[Any]] = {
    "tools": ToolCall,
    "room_assignments": RoomAssignment,
    "files_touched": FileTouched,
    "findings": Finding,
}
SORT_KEYS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "exchanges": lambda r: (r.exchange_id,),
    "occurrences": lambda r: (r.agent, r.session_id, r.anchor, r.part, r.scan_version, r.n_records, r.exchange_id),
    "objects": lambda r: (r.exchange_id, TIER_RANK[r.tier], r.generation, r.fingerprint),
    "claims": lambda r: (r.session_id, r.window, r.claim_id),
    "rooms": lambda r: (r.room_type, r.room_key, r.project),
    "ledger": lambda r: (r.source, r.file_digest, r.byte_start),
    "tombstones": lambda r: (r.exchange_id,),
    "superseded": lambda r: (r.claim_id, r.superseded_by),
}
RUN_ROWS = 16_384
_LISTS = frozenset({"exchange_ids", "text_paths"})


def rows_of(table: str, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The rows of a table from its columns, one list of values each; columns that the row has no field for are left
    out. Raises KeyError for a missing column, TypeError for a value of another shape."""
    kind = ROW_TYPES[table]
    cells = [_cells(name, columns[name]) for name in kind.__slots__]
    return [kind(*values) for values in zip(*cells, strict=True)]


def refuse_odd(table: str, make: Callable[[], list[Any]], where: str) -> list[Any]:
    """The rows that `make` gives, of a table that a stranger may have written: each value is one that its field takes.

    Raises BundleError, which names `where`.
    """
    try:
        rows = make()
        _decoder(table).decode(msgspec.msgpack.encode(rows))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:  # ValueError: text that is no UTF-8
        raise BundleError(
            f"{where}: a row of {table} has a value that is none of its kind: {clean_line(str(error))[:200]}",
            hint="the bundle is damaged, or not honest",
        ) from error
    return rows


@cache
def _decoder(table: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(GenericAlias(list, ROW_TYPES[table]))


def sort_rows(table: str, rows: Iterable[Row]) -> list[Any]:
    """Distinct rows in canonical order: by the table's key, ties by canonical bytes."""
    rows = list(rows)
    return [rows[at] for at in canonical_order(table, rows)]


def canonical_order(table: str, rows: Sequence[Row]) -> array[int]:
    """Positions of the distinct rows in the order of `sort_rows`; of copies that of the first.

    Rows may lie elsewhere: of any sequence but a list, the keys of RUN_ROWS at the most are held, whose order is merged
    with that of the others.
    """
    key = SORT_KEYS[table]
    keyed: Iterable[tuple[tuple[Any, ...], int]]
    if isinstance(rows, list) or len(rows) <= RUN_ROWS:
        keys = list(map(key, rows))
        ordered = sorted(range(len(keys)), key=keys.__getitem__)
        keyed = zip(map(keys.__getitem__, ordered), ordered, strict=True)
    else:
        runs = [_sorted_run(key, rows, start) for start in range(0, len(rows), RUN_ROWS)]
        keyed = heapq.merge(*(((key(rows[at]), at) for at in run) for run in runs))
    order = array("q")
    for _, tied in groupby(keyed, itemgetter(0)):
        same = [at for _, at in tied]
        if len(same) == 1:  # the bytes of a row are made only where they decide something
            order.append(same[0])
        else:
            distinct: dict[bytes, int] = {}
            for at in same:
                distinct.setdefault(row_bytes(rows[at]), at)
            order.extend(distinct[data] for data in sorted(distinct))
    return order


def _sorted_run(key: Callable[[Any], tuple[Any, ...]], rows: Sequence[Row], start: int) -> array[int]:
    keys = [key(rows[at]) for at in range(start, min(start + RUN_ROWS, len(rows)))]
    return array("q", (start + at for at in sorted(range(len(keys)), key=keys.__getitem__)))


def _cells(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if name in NESTED:
        nested = NESTED[name]
        return [tuple(nested(**_tuples(item)) for item in cell) for cell in values]
    return [tuple(cell) for cell in values] if name in _LISTS else values


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
