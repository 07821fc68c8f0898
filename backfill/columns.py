"""Parquet on the light side: chosen columns and row groups into Python values, through arro3 and without pyarrow.

arro3 reads whole files only. So the needed column chunks are cut out of the file, a footer that names just these is
written behind them, and arro3 is given that small file: a hit costs the row groups it stands in, not the segment. What
was decoded for rows is remembered within bounds (`recent.py`). A file may be a stranger's: sizes are checked against
limits before anything is decoded. Deliberately absent: writing (see `tables.py`) and predicates; who asks for rows
knows their positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from backfill.errors import BundleError
from backfill.file_ranges import FileRanges
from backfill.parquet_footer import Footer, read_footer
from backfill.parquet_pages import check_pages
from backfill.recent import Recent
from backfill.thrift import I32, I64, LIST, STRUCT, ThriftStruct, number_of, thrift_bytes

ID_BYTES = 16
MAX_FOOTER_BYTES = 64 << 20
MAX_ROWS = 1 << 31
# The footer of a table of 4,000 exchanges takes 28 KB; a longer one is read again.
_FOOTER_GUESS_BYTES = 32 << 10
MAX_DECODED_BYTES = 2 << 30
BATCH_ROWS = 4096
# A hit of 10 lines of text takes 2 KB as a row. 100,000 objects and occurrences take 48 MB decoded and are read at
# random, 4,096 at a time; row groups of verbatim text (256 rows, 0.5 MB) are kept apart, or they would push those out.
MAX_RECENT_ROWS = 4096
MAX_ROW_CHARS = 32_768
MAX_RECENT_BYTES = 48 << 20
MAX_RECENT_TEXT_BYTES = 8 << 20
TEXT_GROUP_ROWS = 256

PARQUET_MAGIC = b"PAR1"
_CODECS = (0, 6)
# Of a schema's element: type text or bytes, repetition required or optional.
_BYTE_ARRAY, _FLAT = 6, ((I32, 0), (I32, 1))


class Chunk(msgspec.Struct, frozen=True):
    """One leaf column of one row group: its bytes in the file and its entry of the footer."""

    start: int
    size: int
    codec: int
    entry: ThriftStruct


_recent_rows: Recent[dict[str, Any]] = Recent(MAX_RECENT_ROWS)
_recent_columns: Recent[Any] = Recent(MAX_RECENT_BYTES)
_recent_texts: Recent[Any] = Recent(MAX_RECENT_TEXT_BYTES)


class ParquetFile:
    """An open Parquet file. Reads are thread-safe; the footer alone is read on opening.

    Raises BundleError when the file is no Parquet file, is damaged, or passes the limits.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = object()
        try:
            self.ranges = FileRanges(path)
        except (OSError, ValueError) as error:
            raise BundleError(f"cannot open {path.name}: {error}") from error
        try:
            self._footer = self._read_footer()
            self._open_schema()
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise self.damaged() from error

    def damaged(self) -> BundleError:
        """The error of a file that is none of its own footer's."""
        return BundleError(f"{self.path.name} is damaged", hint="backfill verify names every damaged file")

    def _read_footer(self) -> Footer:
        n_bytes = self.ranges.n_bytes
        start = max(0, n_bytes - _FOOTER_GUESS_BYTES)
        tail = self.read_bytes(start, n_bytes)
        if n_bytes < 12 or tail[-4:] != PARQUET_MAGIC or self.read_bytes(0, 4) != PARQUET_MAGIC:
            raise BundleError(f"{self.path.name} is not a Parquet file")
        size = int.from_bytes(tail[-8:-4], "little")
        if size > min(n_bytes - 12, MAX_FOOTER_BYTES):
            raise self.damaged()
        if size + 8 > len(tail):
            tail = self.read_bytes(n_bytes - 8 - size, n_bytes)
        return read_footer(tail[-8 - size : -8])

    def read_bytes(self, start: int, end: int) -> bytes:
        """The bytes [start, end) of the file. Raises BundleError where they cannot be read."""
        try:
            data = self.ranges.read(start, end)
        except OSError as error:
            raise BundleError(f"cannot read {self.path.name}: {error.strerror}") from error
        if len(data) != end - start:
            raise self.damaged()
        return data

    def _open_schema(self) -> None:
        schema = self._footer.schema
        self.n_rows = self._footer.n_rows
        self.names: list[str] = []
        self._elements: dict[str, list[ThriftStruct]] = {}
        self._leaves: dict[str, range] = {}
        pos = leaf = 1
        for _ in range(int(schema[0][5][1])):
            end, leaves = _subtree(schema, pos)
            name = schema[pos][4][1].decode()
            self.names.append(name)
            self._elements[name] = schema[pos:end]
            self._leaves[name] = range(leaf - 1, leaf - 1 + leaves)
            pos, leaf = end, leaf + leaves
        self._group_rows = [group.n_rows for group in self._footer.groups]
        self.group_starts = [0]
        for rows in self._group_rows:
            self.group_starts.append(self.group_starts[-1] + rows)
        if min(self._group_rows, default=0) < 0 or self.group_starts[-1] != self.n_rows or self.n_rows > MAX_ROWS:
            raise self.damaged()

    def read(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> dict[str, list[Any]]:
        """Column -> values of the given row groups (all by default), in the order of the file.

        Times become microseconds, dates days since 1970, structs dictionaries, ids bytes.
        """
        out: dict[str, list[Any]] = {name: [] for name in columns}
        for batch in self._batches(columns, range(len(self._group_rows)) if groups is None else groups):
            for name in columns:
                out[name].extend(_values(batch.column(name)))
        return out

    def texts(self, paths: Sequence[str], groups: Sequence[int]) -> Iterator[str]:
        """All texts of columns in row groups, in no order that means anything; for "tools.head" that of all list items.

        Several times as fast as rows, for whoever asks whether something stands anywhere.
        """
        from arro3.core import list_flatten, struct_field

        for batch in self._batches([path.partition(".")[0] for path in paths], groups):
            for path in paths:
                name, _, inner = path.partition(".")
                column = batch.column(name)
                if inner:
                    items = list_flatten(column)
                    names = [field.name for field in items.type.fields]
                    if inner not in names:
                        raise BundleError(f"{self.path.name} lacks the column {path}")
                    column = struct_field(items, [names.index(inner)])
                yield from (text for text in column.to_pylist() if text)

    def rows_at(self, columns: Sequence[str], positions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Position -> row, decoding only the row groups that hold the positions."""
        names = tuple(columns)
        rows: dict[int, dict[str, Any]] = {}
        missing: dict[int, list[int]] = {}
        for position in sorted(set(positions)):
            known = _recent_rows.get((self.key, names, position))
            if known is None:
                missing.setdefault(self.group_of(position), []).append(position)
            else:
                rows[position] = dict(known)
        for group, wanted in missing.items():
            arrays = self._group_arrays(names, group)
            for position in wanted:
                at = position - self.group_starts[group]
                row = {name: array[at].as_py() for name, array in arrays.items()}
                rows[position] = row
                if sum(len(value) for value in row.values() if isinstance(value, str)) <= MAX_ROW_CHARS:
                    _recent_rows.put((self.key, names, position), dict(row), 1)
        return rows

    def ids(self, column: str) -> IdColumn:
        """A column of 16-byte ids, without nulls; read group by group as they are asked for."""
        return IdColumn(self, column)

    def _group_arrays(self, names: Sequence[str], group: int) -> dict[str, Any]:
        """The columns of one row group. Raises BundleError where it holds another number of rows than it says."""
        n_rows = self._group_rows[group]
        recent = _recent_columns if n_rows > TEXT_GROUP_ROWS else _recent_texts
        found = {name: recent.get((self.key, name, group)) for name in names}
        absent = [name for name in names if found.get(name) is None]
        batches = list(self._batches(absent, [group])) if absent else []
        if absent and sum(batch.num_rows for batch in batches) != n_rows:
            raise self.damaged()
        for name in absent:
            array = _numbered(_joined([batch.column(name) for batch in batches]))
            found[name] = array
            recent.put((self.key, name, group), array, array.nbytes)
        return found

    def group_of(self, position: int) -> int:
        """The row group that holds a row. Raises BundleError where there is no such row."""
        if not 0 <= position < self.n_rows:
            raise BundleError(f"{self.path.name} has no row {position}")
        return bisect_left(self.group_starts, position + 1) - 1

    def _batches(self, columns: Sequence[str], groups: Sequence[int]) -> Iterator[Any]:
        missing = [name for name in columns if name not in self._leaves]
        if missing:
            raise BundleError(f"{self.path.name} lacks the columns {', '.join(missing)}")
        if not groups or not self.n_rows:
            return
        yield from self._decoded(self._cut(columns, groups))

    def decoded(self, small: bytes) -> Iterator[Any]:
        """The first column of a Parquet file in memory, a batch of values after the other, within the limits."""
        return (batch.column(0) for batch in self._decoded(small))

    def _decoded(self, small: bytes) -> Iterator[Any]:
        from arro3.io import read_parquet

        decoded = 0
        try:
            for batch in read_parquet(small, batch_size=BATCH_ROWS):
                decoded += batch.nbytes
                if decoded > MAX_DECODED_BYTES:
                    raise BundleError(f"{self.path.name} decodes to more than {MAX_DECODED_BYTES:,} bytes")
                yield batch
        except (BundleError, GeneratorExit, KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            # A panic of the Rust reader over damaged data is no subclass of Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise self.damaged() from error

    def _cut(self, columns: Sequence[str], groups: Sequence[int]) -> bytes:
        """A Parquet file of the given columns and row groups alone."""
        out = bytearray(PARQUET_MAGIC)
        budget = MAX_DECODED_BYTES
        new_groups: list[ThriftStruct] = []
        names = [name for name in self.names if name in columns]
        for group in groups:
            entries: list[ThriftStruct] = []
            for name in names:
                for leaf in self._leaves[name]:
                    chunk = self._chunk(group, leaf)
                    data = self.read_bytes(chunk.start, chunk.start + chunk.size)
                    budget -= check_pages(memoryview(data), chunk.codec, budget)
                    entries.append(_moved(chunk.entry, len(out) - chunk.start))
                    out += data
            rows = self._group_rows[group]
            new_groups.append({1: (LIST, (STRUCT, entries)), 2: (I64, len(out)), 3: (I64, rows)})
        footer = self._small_footer(names, new_groups)
        return bytes(out + footer + len(footer).to_bytes(4, "little") + PARQUET_MAGIC)

    def _small_footer(self, names: Sequence[str], groups: list[ThriftStruct]) -> bytes:
        root: ThriftStruct = {**self._footer.schema[0], 5: (I32, len(names))}
        schema = [root, *(element for name in names for element in self._elements[name])]
        rows = sum(group[3][1] for group in groups)
        fields: ThriftStruct = {
            1: (I32, self._footer.version),
            2: (LIST, (STRUCT, schema)),
            3: (I64, rows),
            4: (LIST, (STRUCT, groups)),
        }
        return thrift_bytes(fields)

    def element(self, name: str) -> ThriftStruct:
        """The schema of a column; of one that is no list or struct, all of it."""
        return self._elements[name][0]

    def text_chunk(self, name: str, group: int) -> Chunk | None:
        """The chunk of a flat column of optional or required text without a dictionary; None where it is another."""
        if name not in self._leaves:
            raise BundleError(f"{self.path.name} lacks the columns {name}")
        schema = self._elements[name]
        if len(schema) != 1 or schema[0].get(1) != (I32, _BYTE_ARRAY) or schema[0].get(3) not in _FLAT:
            return None
        chunk = self._chunk(group, self._leaves[name].start)
        meta: ThriftStruct = chunk.entry[3][1]
        return None if number_of(meta, 11, 0) > 0 else chunk

    def _chunk(self, group: int, leaf: int) -> Chunk:
        try:
            entry = self._footer.chunk(group, leaf)
            meta: ThriftStruct = entry[3][1]
            codec, size = number_of(meta, 4, -1), number_of(meta, 7, -1)
            # Writers that use no dictionary may leave its offset out, or write 0.
            start = min(offset for key in (9, 11) if (offset := number_of(meta, key, 0)) > 0)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise self.damaged() from error
        if codec not in _CODECS:
            raise BundleError(f"{self.path.name} is compressed by something else than zstd")
        if size < 0 or start + size > self.ranges.n_bytes:
            raise self.damaged()
        return Chunk(start, size, codec, entry)


class IdColumn(Sequence[bytes]):
    """Ids of 16 bytes, a row group decoded when one of it is asked for."""

    def __init__(self, file: ParquetFile, column: str) -> None:
        self._file = file
        self._column = column
        self._blocks: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._file.n_rows

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        group = self._file.group_of(row)
        block = self._blocks.get(group)
        if block is None:
            block = self._blocks[group] = self._read(group)
        at = (row - self._file.group_starts[group]) * ID_BYTES
        return block[at : at + ID_BYTES]

    def __iter__(self) -> Iterator[bytes]:
        absent = [g for g in range(len(self._file.group_starts) - 1) if g not in self._blocks]
        if len(absent) > 1:
            values = self._checked(self._file.read([self._column], absent)[self._column])
            start = 0
            for group in absent:
                size = self._file.group_starts[group + 1] - self._file.group_starts[group]
                self._blocks[group] = b"".join(values[start : start + size])
                start += size
        return (self[row] for row in range(len(self)))

    def _read(self, group: int) -> bytes:
        return b"".join(self._checked(self._file.read([self._column], [group])[self._column]))

    def _checked(self, values: list[Any]) -> list[bytes]:
        if values and (set(map(type, values)) != {bytes} or set(map(len, values)) != {ID_BYTES}):
            raise BundleError(f"{self._file.path.name} is damaged", hint="backfill verify names every damaged file")
        return values


def _subtree(schema: list[ThriftStruct], pos: int) -> tuple[int, int]:
    """(position after the column that starts at `pos` of the flattened schema, its leaf columns)."""
    todo, leaves = 1, 0
    while todo:
        children = int(schema[pos].get(5, (I32, 0))[1])
        if children < 0:
            raise ValueError("negative number of children")
        todo += children - 1
        leaves += not children
        pos += 1
    return pos, leaves


def _moved(entry: ThriftStruct, by: int) -> ThriftStruct:
    """A column chunk's footer entry after its bytes moved; indexes and filters that stayed behind are left out."""
    meta: ThriftStruct = dict(entry[3][1])
    for key in (9, 11):
        if number_of(meta, key, 0) > 0:
            meta[key] = (I64, number_of(meta, key, 0) + by)
    meta.pop(10, None)
    return {2: (I64, 0), 3: (STRUCT, meta)}


def _joined(arrays: Sequence[Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    from arro3.core import ChunkedArray

    return ChunkedArray(arrays).combine_chunks()


def _values(array: Any) -> list[Any]:
    values: list[Any] = _numbered(array).to_pylist()
    return values


def _numbered(array: Any) -> Any:
    """Times as microseconds and dates as days, anything else as it is."""
    from arro3.core import DataType

    kind = array.type
    if DataType.is_timestamp(kind):
        return array.cast(DataType.int64())
    return array.cast(DataType.int32()) if DataType.is_date32(kind) else array
