"""Reads Parquet footers and writes small ones: the Thrift compact protocol, as far as that takes.

The light side's Parquet reader knows neither row groups nor columns. So `columns.py` cuts the chunks that it needs out
of a file and gives the reader a small Parquet file of them. Deliberately absent: decoding of values and encryption.

Sources: the Thrift compact protocol specification and parquet.thrift.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from backfill.errors import BundleError

ThriftStruct: TypeAlias = dict[int, tuple[int, Any]]

BOOL_TRUE, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 16
# Of ColumnChunk: its metadata. Of these, what only tells a planner what to leave out begins with the statistics.
_META, _STATISTICS = 3, 12


class ThriftReader:
    """A cursor over bytes of the compact protocol. Every read is checked against the end: BundleError past it."""

    def __init__(self, data: bytes | memoryview, pos: int = 0) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data)

    def varint(self) -> int:
        result = shift = 0
        while True:
            if self.pos >= self.end or shift > 63:
                raise BundleError("a Parquet header is damaged")
            byte = self.data[self.pos]
            self.pos += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def zigzag(self) -> int:
        n = self.varint()
        return (n >> 1) ^ -(n & 1)

    def take(self, n: int) -> bytes:
        if n > self.end - self.pos:
            raise BundleError("a Parquet header is damaged")
        piece = bytes(self.data[self.pos : self.pos + n])
        self.pos += n
        return piece

    def value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (BOOL_TRUE, BOOL_FALSE):
            return kind == BOOL_TRUE
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind == DOUBLE:
            return self.take(8)
        if kind == BYTE:
            return self.take(1)
        raise BundleError(f"a Parquet header holds a value of unknown type {kind}")

    def struct(self, depth: int = 0) -> ThriftStruct:
        """Field id -> (type, value), in the order of the file."""
        if depth > _MAX_DEPTH:
            raise BundleError("a Parquet header is nested too deeply")
        return {field_id: (kind, self.value(kind, depth)) for field_id, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """(field id, type) of each field of a struct; who iterates moves past the value before the next."""
        field_id = 0
        while True:
            head = self.take(1)[0]
            if head == 0:
                return
            delta = head >> 4
            field_id = field_id + delta if delta else self.zigzag()
            yield field_id, head & 0x0F

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self.take(1)[0]
        kind, size = head & 0x0F, head >> 4
        if size == 15:
            size = self.varint()
        if depth > _MAX_DEPTH or size > self.end - self.pos:
            raise BundleError("a Parquet header holds a list longer than itself")
        if kind in (BOOL_TRUE, BOOL_FALSE):
            return kind, [self.take(1)[0] == BOOL_TRUE for _ in range(size)]
        return kind, [self.value(kind, depth) for _ in range(size)]


def number_of(fields: ThriftStruct, key: int, default: int) -> int:
    """A field's number. Raises BundleError where it is of another type, as only damage or malice writes it."""
    kind, value = fields.get(key, (I32, default))
    if kind not in (I16, I32, I64):
        raise BundleError("a Parquet header is damaged")
    return int(value)


def skip_value(data: bytes, pos: int, kind: int, depth: int = 0) -> int:
    """The position after a value; several times faster than reading it. Raises IndexError or BundleError.

    A footer holds some fifty values for each column of each row group, and a hit needs a handful of these.
    """
    if kind in (BOOL_TRUE, BOOL_FALSE):
        return pos
    if kind in (I16, I32, I64):
        while data[pos] > 0x7F:
            pos += 1
        return pos + 1
    if kind == BINARY:
        size, pos = _size_at(data, pos)
        return pos + size
    if kind == STRUCT:
        return _skip_struct(data, pos, depth + 1)
    if kind in (LIST, SET):
        return _skip_list(data, pos, depth + 1)
    if kind in (DOUBLE, BYTE):
        return pos + (8 if kind == DOUBLE else 1)
    raise BundleError(f"a Parquet header holds a value of unknown type {kind}")


def _skip_struct(data: bytes, pos: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise BundleError("a Parquet header is nested too deeply")
    while True:
        head = data[pos]
        pos += 1
        if head == 0:
            return pos
        if head < 16:
            while data[pos] > 0x7F:
                pos += 1
            pos += 1
        kind = head & 0x0F
        # The two commonest kinds are repeated here to save a call each.
        if kind in (I32, I64):
            while data[pos] > 0x7F:
                pos += 1
            pos += 1
        elif kind == BINARY and data[pos] < 0x80:
            pos += 1 + data[pos]
        else:
            pos = skip_value(data, pos, kind, depth)


def _skip_list(data: bytes, pos: int, depth: int) -> int:
    size, kind, pos = list_head(data, pos)
    if kind in (BOOL_TRUE, BOOL_FALSE):
        return pos + size
    for _ in range(size):
        pos = skip_value(data, pos, kind, depth)
    return pos


def list_head(data: bytes, pos: int) -> tuple[int, int, int]:
    """(items, kind of an item, position of the first) of a list; raises BundleError when it is longer than the data."""
    size, kind = data[pos] >> 4, data[pos] & 0x0F
    pos += 1
    if size == 15:
        size, pos = _size_at(data, pos)
    if size > len(data) - pos:
        raise BundleError("a Parquet header holds a list longer than itself")
    return size, kind, pos


def _size_at(data: bytes, pos: int) -> tuple[int, int]:
    reader = ThriftReader(data, pos)
    return reader.varint(), reader.pos


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a row group, and where in the footer the entries of its leaf columns begin."""

    n_rows: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Footer:
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


def thrift_bytes(fields: ThriftStruct) -> bytes:
    """Compact-protocol bytes of a struct as `ThriftReader.struct` returns it."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_struct(out: bytearray, fields: ThriftStruct) -> None:
    last = 0
    for field_id in sorted(fields):
        kind, value = fields[field_id]
        if kind in (BOOL_TRUE, BOOL_FALSE):
            kind = BOOL_TRUE if value else BOOL_FALSE
        delta = field_id - last
        if 0 < delta <= 15:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(field_id))
        last = field_id
        if kind not in (BOOL_TRUE, BOOL_FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_varint(out, _zigzag(value))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        item_kind, items = value
        out += list_start(len(items), item_kind)
        for item in items:
            if item_kind in (BOOL_TRUE, BOOL_FALSE):
                out.append(BOOL_TRUE if item else BOOL_FALSE)
            else:
                _write_value(out, item_kind, item)
    else:
        out += value


def _write_varint(out: bytearray, n: int) -> None:
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)


def _zigzag(n: int) -> int:
    return n << 1 if n >= 0 else (-n << 1) - 1


def number(n: int) -> bytes:
    """An integer as the compact protocol writes it."""
    out = bytearray()
    _write_varint(out, _zigzag(n))
    return bytes(out)


def list_start(size: int, kind: int) -> bytes:
    """What stands before the items of a list."""
    out = bytearray()
    out.append(min(size, 15) << 4 | kind)
    if size >= 15:
        _write_varint(out, size)
    return bytes(out)
