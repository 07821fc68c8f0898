"""Tables on disk: Arrow schemas, rows to Parquet and back, one canonical order of rows.

Heavy side only (pyarrow is the pinned writer; the light side reads the same files through arro3). Equal sets of rows
give equal bytes: rows are sorted by their key and canonical bytes, times are integers until Arrow sees them, and no
pandas metadata is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill.errors import ShardError
from backfill.rows import NESTED, canonical_order, rows_of
from backfill.types import Row

ID = pa.binary(16)
TIME = pa.timestamp("us", tz="UTC")
VERBATIM_ROW_GROUP = 256
ROW_GROUP = 4096
# Texts that a hit shows are written plain, in pages of their own that a reader can take alone (`text_pages`): the one
# that holds a row is decoded in 0.1 ms, a row group of 256 in 1 to 2. It costs 15% of the table's bytes.
PAGED_TEXTS = ("user_text", "agent_text", "thinking")
PAGE_BYTES = 16 << 10

_TOOL = pa.struct(
    [
        ("name", pa.string()),
        ("args_digest", ID),
        ("paths", pa.list_(pa.string())),
        ("actions", pa.list_(pa.string())),
        ("input", pa.string()),
        ("head", pa.string()),
        ("tail", pa.string()),
        ("cut_bytes", pa.int64()),
    ]
)
_ROOM = pa.struct(
    [("room_type", pa.string()), ("room_key", pa.string()), ("room_label", pa.string()), ("relevance", pa.float32())]
)
_FILE = pa.struct([("path", pa.string()), ("action", pa.string()), ("origin", pa.string())])
_FINDING = pa.struct([("kind", pa.string()), ("handle", pa.string()), ("field", pa.string())])


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of table: its schema and the rows of a row group."""

    name: str
    schema: pa.Schema
    row_group: int = ROW_GROUP


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns])


EXCHANGES = Table(
    "exchanges",
    _schema(
        ("exchange_id", ID),
        ("content_id", ID),
        ("prev_content_id", ID),
        ("user_text", pa.string()),
        ("agent_text", pa.string()),
        ("part", pa.int16()),
        ("n_turns", pa.int32()),
        ("tokens_est", pa.int32()),
        ("thinking", pa.string()),
        ("tools", pa.list_(_TOOL)),
        ("text_paths", pa.list_(pa.string())),
    ),
    VERBATIM_ROW_GROUP,
)
OCCURRENCES = Table(
    "occurrences",
    _schema(
        ("agent", pa.string()),
        ("session_id", pa.string()),
        ("anchor", pa.string()),
        ("part", pa.int16()),
        ("scan_version", pa.int32()),
        ("open", pa.bool_()),
        ("n_records", pa.int32()),
        ("exchange_id", ID),
        ("source", pa.string()),
        ("byte_start", pa.int64()),
        ("byte_end", pa.int64()),
        ("parent_session", pa.string()),
        ("project", pa.string()),
        ("cwd", pa.string()),
        ("branch", pa.string()),
        ("title", pa.string()),
        ("model", pa.string()),
        ("started_at", TIME),
        ("ended_at", TIME),
        ("tz_assumed", pa.bool_()),
    ),
)
OBJECTS = Table(
    "objects",
    _schema(
        ("exchange_id", ID),
        ("exchange_core", pa.string()),
        ("specific_context", pa.string()),
        ("context_field", pa.string()),
        ("context_start", pa.int32()),
        ("context_end", pa.int32()),
        ("room_assignments", pa.list_(_ROOM)),
        ("files_touched", pa.list_(_FILE)),
        ("tier", pa.string()),
        ("generation", pa.int32()),
        ("fingerprint", pa.string()),
        ("tokens", pa.int32()),
        ("findings", pa.list_(_FINDING)),
        ("source_row", ID),
    ),
)
CLAIMS = Table(
    "claims",
    _schema(
        ("claim_id", ID),
        ("exchange_ids", pa.list_(ID)),
        ("session_id", pa.string()),
        ("window", pa.int32()),
        ("text", pa.string()),
        ("kind", pa.string()),
        ("date", pa.date32()),
        ("tier", pa.string()),
        ("generation", pa.int32()),
        ("fingerprint", pa.string()),
        ("source", pa.string()),
        ("reading", pa.int64()),
    ),
)
ROOMS = Table(
    "rooms",
    _schema(
        ("room_type", pa.string()),
        ("room_key", pa.string()),
        ("room_label", pa.string()),
        ("project", pa.string()),
        ("n_exchanges", pa.int32()),
        ("first_at", TIME),
        ("last_at", TIME),
    ),
)
LEDGER = Table(
    "ledger",
    _schema(
        ("source", pa.string()),
        ("byte_start", pa.int64()),
        ("byte_end", pa.int64()),
        ("n_records", pa.int32()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("ref", ID),
        ("file_digest", ID),
    ),
)
TOMBSTONES = Table("tombstones", _schema(("exchange_id", ID), ("reason", pa.string())))
SUPERSEDED = Table("superseded", _schema(("claim_id", ID), ("superseded_by", ID)))
TABLES: dict[str, Table] = {
    t.name: t for t in (EXCHANGES, OCCURRENCES, OBJECTS, CLAIMS, ROOMS, LEDGER, TOMBSTONES, SUPERSEDED)
}


def to_arrow(table: Table, rows: Sequence[Any]) -> pa.Table:
    """Rows, as they stand, as an Arrow table of the table's schema."""
    columns = []
    for column in table.schema:
        values: list[Any] = list(map(attrgetter(column.name), rows))
        structs = column.name in NESTED
        columns.append(_structs(column.type, values) if structs else pa.array(values, type=column.type))
    return pa.Table.from_arrays(columns, schema=table.schema)


def _structs(kind: Any, lists: Sequence[Sequence[Any]]) -> Any:
    """Lists of structs, built column by column: a dictionary per struct costs more than all the text in it."""
    offsets = pa.array(accumulate(map(len, lists), initial=0), type=pa.int32())
    items = list(chain.from_iterable(lists))
    fields = [kind.value_type.field(i) for i in range(kind.value_type.num_fields)]
    columns = [pa.array(list(map(attrgetter(f.name), items)), type=f.type) for f in fields]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(columns, fields=fields), type=kind)


def from_arrow(table: Table, data: pa.Table) -> list[Any]:
    """The rows of an Arrow table; raises ShardError when its columns are not this table's."""
    missing = [name for name in table.schema.names if name not in data.column_names]
    if missing:
        raise ShardError(f"a {table.name} table lacks the columns {', '.join(missing)}")
    columns: dict[str, list[Any]] = {}
    for column in table.schema:
        values = data.column(column.name)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            values = values.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
        columns[column.name] = values.to_pylist()
    return rows_of(table.name, columns)


def write_table(table: Table, rows: Iterable[Row], path: Path, *, sorted_already: bool = False) -> int:
    """Writes distinct rows in canonical order as Parquet (zstd 3); returns how many. Not fsynced.

    One row group is in memory at a time beside `rows`, which may be a sequence that lies in a file. `sorted_already`:
    they are distinct and in that order.
    """
    rows = rows if isinstance(rows, Sequence) else list(rows)
    order: Sequence[int] = range(len(rows)) if sorted_already else canonical_order(table.name, rows)
    with pq.ParquetWriter(
        path,
        table.schema,
        compression="zstd",
        compression_level=3,
        version="2.6",
        write_statistics=False,
        **_layout(table),
    ) as writer:
        for start in range(0, len(order), table.row_group) or (0,):
            group = [rows[at] for at in order[start : start + table.row_group]]
            writer.write_table(to_arrow(table, group), row_group_size=table.row_group)
    return len(order)


def _layout(table: Table) -> dict[str, Any]:
    """What a table's writer is told about dictionaries and pages."""
    if table.row_group != VERBATIM_ROW_GROUP:
        return {"use_dictionary": True}
    return {
        "use_dictionary": [
            leaf
            for column in table.schema
            if column.name not in PAGED_TEXTS
            for leaf in _leaves(column.name, column.type)
        ],
        "data_page_size": PAGE_BYTES,
        # The size of a page is looked at after so many rows; by default a row group would be one.
        "write_batch_size": 1,
    }


def _leaves(path: str, kind: Any) -> Iterator[str]:
    """The paths of a column's leaves as Parquet names them."""
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(i).name}", kind.field(i).type)
    else:
        yield path


def read_table(table: Table, path: Path) -> list[Any]:
    """All rows of a Parquet file. Raises ShardError when it cannot be read as this table."""
    try:
        return from_arrow(table, pq.read_table(path, columns=table.schema.names, memory_map=True, partitioning=None))
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise ShardError(f"{path.name} cannot be read as {table.name}: {error}") from error


def read_rows_at(table: Table, path: Path, rows: Sequence[int]) -> list[Any]:
    """The rows at the given positions (any order), reading only the row groups that hold them."""
    file = pq.ParquetFile(path, memory_map=True)
    wanted = sorted({position // table.row_group for position in rows})
    taken = {group: from_arrow(table, file.read_row_group(group)) for group in wanted}
    return [taken[position // table.row_group][position % table.row_group] for position in rows]


def iter_table(table: Table, path: Path) -> Iterator[Any]:
    """The rows of a Parquet file, one row group in memory at a time."""
    file = pq.ParquetFile(path, memory_map=True)
    for group in range(file.num_row_groups):
        yield from from_arrow(table, file.read_row_group(group))
