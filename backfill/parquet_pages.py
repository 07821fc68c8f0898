"""Bounds what a Parquet column chunk decodes to, before anything of it is decoded.

A reader allocates what a page says, and more where its zstd frames hold more. A bundle of a stranger is therefore
walked page by page and block by block first. Deliberately absent: codecs other than zstd, which are all that a bundle
uses.

Sources: parquet.thrift, RFC 8878 (Zstandard).
"""

from __future__ import annotations

import struct

from backfill.errors import BundleError
from backfill.thrift import BOOL_FALSE, BOOL_TRUE, STRUCT, ThriftReader, ThriftStruct, number_of

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10


def check_pages(chunk: memoryview, codec: int, limit_bytes: int) -> int:
    """Walks the pages of one column chunk and returns the bytes that they decode to, before anything is decoded.

    Raises BundleError when a page says that it decodes to more than `limit_bytes`, when its zstd frames could give
    far more than it says, or when the pages do not fill the chunk.
    """
    total, pos = 0, 0
    while pos < len(chunk):
        reader = ThriftReader(chunk, pos)
        header = reader.struct()
        decoded, stored = (number_of(header, key, -1) for key in (2, 3))
        if decoded < 0 or stored < 0 or stored > len(chunk) - reader.pos:
            raise BundleError("a Parquet page is damaged")
        total += decoded
        if total > limit_bytes:
            raise BundleError(f"a Parquet column would decode to more than {limit_bytes:,} bytes")
        if codec:
            levels, compressed = _levels(header)
            if compressed and stored > levels:
                check_page(chunk[reader.pos + levels : reader.pos + stored], decoded, codec)
        pos = reader.pos + stored
    return total


def check_page(data: memoryview, decoded: int, codec: int) -> None:
    """Raises BundleError where a page's data could decode to far more than the `decoded` bytes that it says."""
    # Blocks may be cut short of 128 KiB, so the bound is loose; it stops bombs, not spread.
    if codec and zstd_bound(data) > 16 * decoded + (1 << 20):
        raise BundleError("a Parquet page would decode to far more than it says")


def _levels(header: ThriftStruct) -> tuple[int, bool]:
    """Bytes of uncompressed levels before the data of a page, and whether the data is compressed (version 2 pages)."""
    if 8 not in header:
        return 0, True
    kind, fields = header[8]
    if kind != STRUCT:
        raise BundleError("a Parquet page header is damaged")
    kind, compressed = fields.get(7, (BOOL_TRUE, True))
    levels = [number_of(fields, key, 0) for key in (5, 6)]
    if kind not in (BOOL_TRUE, BOOL_FALSE) or min(levels) < 0:
        raise BundleError("a Parquet page header is damaged")
    return sum(levels), compressed


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
