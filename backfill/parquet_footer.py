"""The footer of a Parquet file: its row groups, and where the chunk of each column lies.

The light side's Parquet reader knows neither row groups nor columns. So `columns.py` cuts the chunks that it needs out
of a file and gives the reader a small Parquet file of them. Deliberately absent: decoding of values and encryption.

Source: parquet.thrift.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import msgspec

from backfill.errors import BundleError
from backfill.thrift import (
    BOOL_FALSE,
    BOOL_TRUE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    ThriftReader,
    ThriftStruct,
    list_head,
    skip_value,
)

# Of ColumnChunk: its metadata. Of these, what only tells a planner what to leave out begins with the statistics.
_META, _STATISTICS = 3, 12


class RowGroup(msgspec.Struct, frozen=True):
    """Rows of a row group, and where in the footer the entries of its leaf columns begin."""

    n_rows: int
    chunks: tuple[int, ...]


class Footer(msgspec.Struct, frozen=True):
    """What reading needs of a Parquet footer: its bytes, version, schema (flattened, root first) and row groups."""

    data: bytes
    version: int
    schema: list[ThriftStruct]
    n_rows: int
    groups: list[RowGroup]

    def chunk(self, group: int, leaf: int) -> ThriftStruct:
        """The entry of one column chunk without statistics and indexes. Raises IndexError where there is none."""
        reader = ThriftReader(self.data, self.groups[group].chunks[leaf])
        entry: ThriftStruct = {}
        for field_id, kind in reader.fields():
            if field_id == _META and kind == STRUCT:
                meta: ThriftStruct = {}
                for meta_id, meta_kind in reader.fields():
                    if meta_id < _STATISTICS:
                        meta[meta_id] = (meta_kind, reader.value(meta_kind, 2))
                    else:
                        reader.pos = skip_value(self.data, reader.pos, meta_kind, 2)
                entry[field_id] = (kind, meta)
            else:
                entry[field_id] = (kind, reader.value(kind, 1))
        return entry


def read_footer(data: bytes) -> Footer:
    """A footer, of whose column chunks only the places are read.

    Raises BundleError where it ends early or is nested too deeply, KeyError or TypeError where a field is missing.
    """
    fields: ThriftStruct = {}
    groups: list[RowGroup] = []
    reader = ThriftReader(data)
    try:
        for field_id, kind in reader.fields():
            if field_id == 4 and kind == LIST:
                n_groups, item, reader.pos = list_head(data, reader.pos)
                groups = _row_groups(data, reader, n_groups) if item == STRUCT else []
            elif field_id == 2 and kind == LIST:
                fields[field_id] = (kind, _schema(data, reader))
            elif field_id in (1, 3):
                fields[field_id] = (kind, reader.value(kind, 1))
            else:
                reader.pos = skip_value(data, reader.pos, kind)
    except IndexError:
        raise BundleError("a Parquet footer is damaged") from None
    return Footer(data, int(fields[1][1]), fields[2][1][1], int(fields[3][1]), groups)


# Schemas met last, by their bytes: a table has the same in all segments, and reading it costs as much as ten chunks.
_schemas: deque[tuple[bytes, tuple[int, list[ThriftStruct]]]] = deque(maxlen=8)


def _schema(data: bytes, reader: ThriftReader) -> tuple[int, list[ThriftStruct]]:
    """The list of schema elements at the reader's place; who gets it must not change it."""
    for known, read in tuple(_schemas):
        if data.startswith(known, reader.pos):
            reader.pos += len(known)
            return read
    start = reader.pos
    schema: tuple[int, list[ThriftStruct]] = reader.value(LIST, 1)
    _schemas.appendleft((data[start : reader.pos], schema))
    return schema


# Patterns of row groups met last. Compiling one takes as long as walking some hundred column chunks.
_shapes: deque[re.Pattern[bytes]] = deque(maxlen=8)
_WORTH_A_SHAPE = 8


def _row_groups(data: bytes, reader: ThriftReader, n_groups: int) -> list[RowGroup]:
    """The row groups at the reader's place. Those shaped like one before, in this file or another, are matched.

    Row groups of one table differ in their numbers alone, so a regular expression made of one (`_row_group_shape`)
    parses the next some fifty times faster; what none matches is walked.
    """
    groups: list[RowGroup] = []
    for at in range(n_groups):
        found = (pattern.match(data, reader.pos) for pattern in tuple(_shapes))
        match = next((m for m in found if m), None)
        if match is not None:
            # One capture before each column chunk, and the last one around the number of rows.
            chunks = tuple(match.start(i) for i in range(1, match.re.groups))
            groups.append(RowGroup(ThriftReader(match[match.re.groups]).zigzag(), chunks))
            reader.pos = match.end()
            continue
        start = reader.pos
        groups.append(_row_group(data, reader))
        if at == 0 and n_groups >= _WORTH_A_SHAPE:
            shape = _row_group_shape(data[start : reader.pos], len(groups[-1].chunks))
            if shape:
                _shapes.appendleft(re.compile(shape, re.DOTALL))
    return groups


def _row_group(data: bytes, reader: ThriftReader) -> RowGroup:
    n_rows, chunks = -1, []
    for field_id, kind in reader.fields():
        if field_id == 1 and kind == LIST:
            n_chunks, item, reader.pos = list_head(data, reader.pos)
            for _ in range(n_chunks):
                chunks.append(reader.pos)
                reader.pos = skip_value(data, reader.pos, item)
        elif field_id == 3:
            n_rows = int(reader.value(kind, 1))
        else:
            reader.pos = skip_value(data, reader.pos, kind)
    return RowGroup(n_rows, tuple(chunks))


_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"


def _row_group_shape(data: bytes, n_chunks: int) -> bytes:
    """A pattern of row groups like this one; nothing where its fields stand in an order that no writer uses."""
    out = bytearray()
    reader = ThriftReader(data)
    rows_last = False
    for field_id, kind in _shaped_fields(reader, out):
        if field_id == 1 and kind == LIST and not rows_last:
            _, item, first = list_head(data, reader.pos)
            out += re.escape(data[reader.pos : first])
            reader.pos = first
            for _ in range(n_chunks):
                out += b"()"
                _shape(reader, item, out)
        elif field_id == 3 and kind == I64 and not rows_last:
            out += b"(" + _NUMBER + b")"
            reader.varint()
            rows_last = True
        else:
            _shape(reader, kind, out)
    return bytes(out) if rows_last and n_chunks else b""


def _shaped_fields(reader: ThriftReader, out: bytearray) -> Iterator[tuple[int, int]]:
    """The fields of a struct, each header's bytes appended to the pattern before the field, and the end's after."""
    before = reader.pos
    for field_id, kind in reader.fields():
        out += re.escape(bytes(reader.data[before : reader.pos]))
        yield field_id, kind
        before = reader.pos
    out += b"\\x00"


def _shape(reader: ThriftReader, kind: int, out: bytearray) -> None:
    """Appends a pattern of values of this structure: any number where one stands, names and counts as they are."""
    data, start = bytes(reader.data), reader.pos
    if kind in (I16, I32, I64):
        reader.varint()
        out += _NUMBER
    elif kind == STRUCT:
        for _, inner in _shaped_fields(reader, out):
            _shape(reader, inner, out)
    elif kind in (LIST, SET) and list_head(data, start)[1] not in (BOOL_TRUE, BOOL_FALSE):
        size, item, reader.pos = list_head(data, start)
        out += re.escape(data[start : reader.pos])
        for _ in range(size):
            _shape(reader, item, out)
    else:
        reader.pos = skip_value(data, start, kind)
        out += re.escape(data[start : reader.pos])
