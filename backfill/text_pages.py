"""Single cells of long text out of Parquet files: the pages that hold them are decoded, not their row groups.

A row group of verbatim text is half a megabyte, and a hit is a line of it. The writer (`tables.write_table`) puts long
texts down plain, in pages of about 16 KiB; here the pages that are wanted, of any number of files, are put together to
one small Parquet file of one column, a row group a page, and decoded at once. A chunk that is laid out otherwise (an
older bundle, another writer) is read by its row group. Deliberately absent: lists, and columns of anything but text.

Sources: parquet.thrift, the Thrift compact protocol specification.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from backfill.columns import MAX_DECODED_BYTES, PARQUET_MAGIC, ParquetFile
from backfill.parquet_pages import check_page
from backfill.recent import Recent
from backfill.thrift import BINARY, I32, LIST, STRUCT, ThriftStruct, list_start, number, thrift_bytes

# The cells of 1,000 hits of 4,000 characters; a character takes 1 to 4 bytes.
MAX_RECENT_CHARS = 4 << 20
# A chunk's list of pages takes 2 KB.
MAX_RECENT_CHUNKS = 2048
_MAX_RUN_BYTES = 64 << 20

Cell: TypeAlias = tuple[ParquetFile, str, int]
"""A file, the name of a text column and the position of a row."""

_NUMBER = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
# A data page of version 1: type 0, bytes decoded and stored, then values, encoding PLAIN (0), levels RLE (3); the empty
# struct at the end are the statistics of a writer that was told to leave them out.
_PLAIN_PAGE = re.compile(
    rb"\x15\x00\x15%b\x15%b\x2c\x15%b\x15\x00\x15\x06\x15\x06(?:\x1c\x00)?\x00\x00" % (_NUMBER, _NUMBER, _NUMBER),
    re.DOTALL,
)
_BYTE_ARRAY, _TEXT = 6, b"text"
# What the pattern takes at the most: 16 fixed bytes and three numbers of 5.
_HEADER_BYTES = 32


class _Page(NamedTuple):
    """A page: its bytes in the file with their header, what they decode to, and the rows of the table in it.

    A search makes some hundred; a frozen dataclass takes four times as long to make.
    """

    start: int
    header_bytes: int
    end: int
    decoded: int
    first_row: int
    n_rows: int
    codec: int


class _Chunk(NamedTuple):
    """The pages of a chunk as far as they were walked, their first rows, and where the next one begins.

    Of a chunk that is laid out otherwise there are no pages, and none to come.
    """

    pages: list[_Page]
    firsts: list[int]
    next_start: int
    next_row: int


_NO_PAGES = _Chunk([], [], 0, 1 << 62)


class _Wanted(msgspec.Struct, frozen=True):
    """A page of a file's column, and the cells that are wanted of it."""

    file: ParquetFile
    name: str
    page: _Page
    cells: list[Cell]

    @property
    def element(self) -> ThriftStruct:
        """The schema of the column, under a name that is the same for all."""
        return {**self.file.element(self.name), 4: (BINARY, _TEXT)}


_recent_cells: Recent[str | None] = Recent(MAX_RECENT_CHARS)
_recent_chunks: Recent[_Chunk] = Recent(MAX_RECENT_CHUNKS)
_recent_schemas: Recent[bytes] = Recent(MAX_RECENT_CHUNKS)


def read_cells(cells: Sequence[Cell]) -> dict[Cell, Any]:
    """The values of the cells. Raises BundleError for an unknown column or row, and where a file is damaged."""
    found: dict[Cell, Any] = {}
    wanted: dict[tuple[ParquetFile, int], _Wanted] = {}
    by_group: dict[ParquetFile, list[Cell]] = {}
    for cell in dict.fromkeys(cells):
        file, name, position = cell
        known = _recent_cells.get(_key(cell))
        if known is not None:
            found[cell] = known
        elif (page := _page_of(file, name, position)) is None:
            by_group.setdefault(file, []).append(cell)
        else:
            wanted.setdefault((file, page.start), _Wanted(file, name, page, [])).cells.append(cell)
    for file, asked in by_group.items():
        rows = file.rows_at(tuple(dict.fromkeys(name for _, name, _ in asked)), {at for _, _, at in asked})
        found.update((cell, rows[cell[2]][cell[1]]) for cell in asked)
    for run in _runs(wanted.values()):
        _read_pages(run, found)
    return found


def _key(cell: Cell) -> Hashable:
    file, name, position = cell
    return file.key, name, position


def _runs(wanted: Iterable[_Wanted]) -> Iterator[list[_Wanted]]:
    """Pages that are decoded together: of columns with one schema, up to 64 MiB."""
    alike: dict[bytes, list[_Wanted]] = {}
    for one in wanted:
        run = alike.setdefault(_schema_key(one), [])
        if run and sum(other.page.decoded for other in run) + one.page.decoded > _MAX_RUN_BYTES:
            yield run.copy()
            run.clear()
        run.append(one)
    yield from alike.values()


def _schema_key(one: _Wanted) -> bytes:
    key = (one.file.key, one.name)
    known = _recent_schemas.get(key)
    if known is None:
        known = thrift_bytes(one.element)
        _recent_schemas.put(key, known, 1)
    return known


def _page_of(file: ParquetFile, name: str, position: int) -> _Page | None:
    """The page of a cell, or None where its chunk has to be read whole."""
    group = file.group_of(position)
    key = (file.key, name, group)
    known = _recent_chunks.get(key)
    if known is None or known.next_row <= position:
        known = _walked(file, name, group, position, known)
        _recent_chunks.put(key, known, 1)
    return known.pages[bisect_right(known.firsts, position) - 1] if known.pages else None


def _walked(file: ParquetFile, name: str, group: int, position: int, known: _Chunk | None) -> _Chunk:
    """A chunk of plain text walked up to a row, from where it is known; none of a chunk that is anything else.

    Raises BundleError where pages and rows do not fit each other.
    """
    chunk = file.text_chunk(name, group)
    if chunk is None:
        return _NO_PAGES
    end, past_row = chunk.start + chunk.size, file.group_starts[group + 1]
    pages, firsts, at, row = known or _Chunk([], [], chunk.start, file.group_starts[group])
    pages, firsts = pages.copy(), firsts.copy()
    while row <= position:
        # Headers alone, and those before the row: the chunk is a hundred times as much to read.
        match = _PLAIN_PAGE.match(file.read_bytes(at, min(at + _HEADER_BYTES, end)))
        if match is None:
            return _NO_PAGES
        decoded, stored, n_rows = map(_zigzag, match.groups())
        past = at + match.end() + stored
        if not 0 <= decoded <= MAX_DECODED_BYTES or stored < 0 or n_rows < 0 or past > end or row + n_rows > past_row:
            raise file.damaged()
        pages.append(_Page(at, match.end(), past, decoded, row, n_rows, chunk.codec))
        firsts.append(row)
        at, row = past, row + n_rows
        if at == end and row != past_row:
            raise file.damaged()
    return _Chunk(pages, firsts, at, row)


def _zigzag(data: bytes) -> int:
    n = 0
    for byte in reversed(data):
        n = n << 7 | byte & 0x7F
    return n >> 1 ^ -(n & 1)


def _read_pages(run: Sequence[_Wanted], found: dict[Cell, Any]) -> None:
    """Decodes pages of columns with one schema and takes the cells out of them."""
    batches = run[0].file.decoded(_file_of(run))
    values: Any = ()
    first = start = 0
    for one in run:
        for cell in sorted(one.cells, key=lambda cell: cell[2]):
            at = start + cell[2] - one.page.first_row
            while at >= first + len(values):
                first += len(values)
                values = next(batches, None)
                if values is None:
                    raise one.file.damaged()
            value = found[cell] = values[at - first].as_py()
            if value is not None:
                _recent_cells.put(_key(cell), value, len(value))
        start += one.page.n_rows


def _file_of(run: Sequence[_Wanted]) -> bytes:
    """A Parquet file of one column, with a row group for each page."""
    out, groups = bytearray(PARQUET_MAGIC), bytearray()
    for one in run:
        data = one.file.read_bytes(one.page.start, one.page.end)
        check_page(memoryview(data)[one.page.header_bytes :], one.page.decoded, one.page.codec)
        groups += _row_group(one.page, len(out))
        out += data
    rows = sum(one.page.n_rows for one in run)
    root: ThriftStruct = {4: (BINARY, b"schema"), 5: (I32, 1)}
    # FileMetaData {version, schema, num_rows, row_groups}; its end is written after the row groups.
    schema = thrift_bytes({1: (I32, 2), 2: (LIST, (STRUCT, [root, run[0].element]))})[:-1]
    footer = b"".join((schema, b"\x16", number(rows), b"\x19", list_start(len(run), STRUCT), groups, b"\x00"))
    return b"".join((out, footer, len(footer).to_bytes(4, "little"), PARQUET_MAGIC))


def _row_group(page: _Page, offset: int) -> bytes:
    """RowGroup {columns [ColumnChunk {file_offset 0, meta_data}], total_byte_size, num_rows}."""
    size, rows = number(page.end - page.start), number(page.n_rows)
    decoded = number(page.decoded)
    return b"".join((
        b"\x19\x1c\x26\x00\x1c\x15", number(_BYTE_ARRAY),
        b"\x19\x25\x00\x06\x19\x18\x04", _TEXT,  # encodings [PLAIN, RLE], path_in_schema
        b"\x15", number(page.codec), b"\x16", rows, b"\x16", decoded, b"\x16", size, b"\x26", number(offset),
        b"\x00\x00\x16", decoded, b"\x16", rows, b"\x00",
    ))  # fmt: skip
