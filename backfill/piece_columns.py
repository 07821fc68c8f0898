"""Columns of tables as arrays: ids, numbers, and hashes of several columns; and which of them no row of ours has.

Deliberately absent: which tables and files they come from.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backfill import tables
from backfill.errors import ShardError
from backfill.types import TIER_RANK

ID = np.dtype("S16")  # compared as bytes; `.tobytes()` gives them whole, `.item()` loses trailing zeros
I32 = np.dtype("<i4")


def ids_of(column: Any) -> npt.NDArray[Any]:
    """[N] S16 of a column of 16-byte ids. Raises ShardError for nulls."""
    if column.null_count:
        raise ShardError("a column of ids holds nulls")
    if not len(column):
        return np.empty(0, ID)
    size = 16 * len(column)
    data = np.frombuffer(column.buffers()[1], np.uint8)[16 * column.offset : 16 * column.offset + size]
    return data.view(ID)


def id_at(ids: npt.NDArray[Any], row: Any) -> bytes:
    """The 16 bytes of one id; numpy's own scalar would lose trailing zeros."""
    return ids[row : row + 1].tobytes()


def hashed(*columns: Any) -> npt.NDArray[Any]:
    """[N] S16: a hash of the values of several columns. Only for comparing within one process."""
    new = hashlib.blake2b
    rows = zip(*(c.to_pylist() for c in columns), strict=True)
    # The text of a tuple of strings and numbers tells every tuple from every other.
    out = b"".join([new(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest() for values in rows])
    return np.frombuffer(out, ID)


def numbers(column: Any, dtype: Any = I32, missing: int = 0) -> npt.NDArray[Any]:
    """[N] of a column of numbers, `missing` for nulls."""
    return np.asarray(column.fill_null(missing).to_numpy(zero_copy_only=False)).astype(dtype)


def tier_ranks(column: Any) -> npt.NDArray[Any]:
    """[N] i4 ranks of tiers."""
    return np.array([TIER_RANK[tier] for tier in column.to_pylist()], I32)


def is_odd(name: str, column: Any) -> bool:
    """Whether a column holds what no row of ours has: no value, no UTF-8, an unknown tier, a claim of nothing."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return True
    if name == "exchange_ids":
        empty = bool((np.diff(column.offsets.to_numpy()) < 1).any())
        return empty or column.null_count > 0 or column.flatten().null_count > 0
    if name == "tier":
        return not set(column.unique().to_pylist()) <= TIER_RANK.keys()
    return column.null_count > 0 and name != "started_at"


def same_type(found: Any, wanted: Any) -> bool:
    """Equal but for the names that Parquet writers give to the items of lists."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return same_type(found.value_type, wanted.value_type)
    return bool(found.equals(wanted))


def plain(column: Any) -> Any:
    """The column with times as microseconds and dates as days: numbers that compare and sort."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date(kind) else column


def empty(table: str, name: str) -> Any:
    """A column of a table without a row, as `plain` gives it."""
    return plain(pa.array([], tables.TABLES[table].schema.field(name).type))
