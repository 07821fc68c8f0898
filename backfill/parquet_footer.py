"""Reads and writes Parquet footers and page headers, and bounds what a column chunk decodes to.

The light side's Parquet reader knows neither row groups nor columns, and allocates what a file says. So `columns.py`
cuts the chunks that it needs out of a file and gives the reader a small Parquet file of them; this module has the
Thrift compact protocol that this takes, and the bounds for files of strangers. Deliberately absent: decoding of
values, encryption, and codecs other than zstd, which are all that a bundle uses.

Sources: the Thrift compact protocol specification, parquet.thrift, RFC 8878 (Zstandard).
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from backfill.errors import BundleError

ThriftStruct: TypeAlias = dict[int, tuple[int, Any]]

BOOL_TRUE, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 16

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10


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
        fields: ThriftStruct = {}
        field_id = 0
        while True:
            head = self.take(1)[0]
            if head == 0:
                return fields
            kind, delta = head & 0x0F, head >> 4
            field_id = field_id + delta if delta else self.zigzag()
            fields[field_id] = (kind, self.value(kind, depth))

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
        out.append(min(len(items), 15) << 4 | item_kind)
        if len(items) >= 15:
            _write_varint(out, len(items))
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


def check_pages(chunk: memoryview, codec: int, limit_bytes: int) -> int:
    """Walks the pages of one column chunk and returns the bytes that they decode to, before anything is decoded.

    Raises BundleError when a page says that it decodes to more than `limit_bytes`, when its zstd frames could give
    far more than it says, or when the pages do not fill the chunk.
    """
    total, pos = 0, 0
    while pos < len(chunk):
        reader = ThriftReader(chunk, pos)
        header = reader.struct()
        decoded, stored = (header.get(key, (I32, -1))[1] for key in (2, 3))
        if decoded < 0 or stored < 0 or stored > len(chunk) - reader.pos:
            raise BundleError("a Parquet page is damaged")
        total += decoded
        if total > limit_bytes:
            raise BundleError(f"a Parquet column would decode to more than {limit_bytes:,} bytes")
        if codec:
            levels, compressed = _levels(header)
            if compressed and stored > levels:
                # Blocks may be cut short of 128 KiB, so the bound is loose; it stops bombs, not spread.
                bound = zstd_bound(chunk[reader.pos + levels : reader.pos + stored])
                if bound > 16 * decoded + (1 << 20):
                    raise BundleError("a Parquet page would decode to far more than it says")
        pos = reader.pos + stored
    return total


def _levels(header: ThriftStruct) -> tuple[int, bool]:
    """Bytes of uncompressed levels before the data of a page, and whether the data is compressed (version 2 pages)."""
    v2 = header.get(8)
    if v2 is None:
        return 0, True
    fields: ThriftStruct = v2[1]
    return sum(int(fields.get(key, (I32, 0))[1]) for key in (5, 6)), bool(fields.get(7, (BOOL_TRUE, True))[1])


def zstd_bound(data: memoryview) -> int:
    """An upper bound of the bytes that zstd frames decode to, from their block headers alone."""
    bound, pos = 0, 0
    while pos < len(data):
        if len(data) - pos < 6 or struct.unpack_from("<I", data, pos)[0] != _ZSTD_MAGIC:
            raise BundleError("a Parquet page is not zstd data")
        flags = data[pos + 4]
        single = flags >> 5 & 1
        size_bytes = (1 if single else 0, 2, 4, 8)[flags >> 6]
        pos += 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes
        last = False
        while not last:
            if pos + 3 > len(data):
                raise BundleError("a Parquet page ends within a zstd frame")
            head = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            bound += _ZSTD_BLOCK_BYTES if kind >= 2 else size
            pos += 3 + (1 if kind == 1 else size)
        pos += 4 if flags >> 2 & 1 else 0
    return bound
