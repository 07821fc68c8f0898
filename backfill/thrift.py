"""Values of the Thrift compact protocol, as far as Parquet's headers hold them: read, passed over and written.

Deliberately absent: maps, which no Parquet header has, and any knowledge of which field means what.

Source: the Thrift compact protocol specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from backfill.errors import BundleError

ThriftStruct: TypeAlias = dict[int, tuple[int, Any]]

BOOL_TRUE, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 16


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
