"""Bytes to JSON values with their byte range: lines with bounded reads, torn lines salvaged, broken text replaced.

Lines are split on LF bytes only; U+2028 and U+0085 are legal inside JSON strings. Reads a unit forward and keeps one
line in memory. Deliberately absent: the meaning of a value; that is the readers'.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from backfill.nesting import WALKED_DEPTH, too_deep
from backfill.records import Act, Pending, Quarantine, Skip
from backfill.sources.base import Unit
from backfill.text import clean_unicode

T = TypeVar("T")

MAX_LINE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_LINES_BLOCK_BYTES = 256 << 10  # what is split stays in the cache until its lines are decoded
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\0"
# How many objects are tried on one torn line; two writers tear a line into a handful of pieces.
_MAX_SALVAGE_TRIES = 64
# A run of strings with the scalars between them, or a bracket, or a string that does not end.
_TOKEN = re.compile(rb'(?>(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)++)|[{}\[\]"]', re.DOTALL)
_QUOTE, _BRACKET = ord('"'), ord("[")
_OBJECT_START = re.compile(rb'\{\s*"')


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its line end. `start` and `end` are byte offsets of `data`; `closed` says that the line ended.

    `too_long` lines have no data.
    """

    start: int
    end: int
    data: bytes
    closed: bool = True
    too_long: bool = False

    def piece(self, start: int, end: int) -> Line:
        """A piece of the line, by offsets into its data."""
        return Line(self.start + start, self.start + end, self.data[start:end])


def lines(unit: Unit) -> Iterator[Line]:
    """The lines of a unit that are not blank, from where it has been read to.

    Memory is bounded by MAX_LINE_BYTES plus one block.
    """
    at = unit.bytes_read  # offset of `rest`
    rest = b""
    parts: list[bytes] = []  # of a line longer than a block, before `rest`
    held = 0
    left = unit.size_bytes - at
    while left > 0:
        block = unit.read(min(_LINES_BLOCK_BYTES, left))
        if not block:
            break
        left -= len(block)
        pieces = block.split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            length = len(piece)
            if not held and piece[:1] == b"{" and piece[-1:] == b"}":  # nearly every line
                yield Line(at, at + length, piece)
                at += length + 1
                continue
            length += held
            if length > MAX_LINE_BYTES:
                yield Line(at, at + length, b"", too_long=True)
            else:
                data = b"".join((*parts, piece)) if parts else piece
                line = _line(at, data, closed=True)
                if line is not None:
                    yield line
            at += length + 1
            parts, held = [], 0
        held += len(rest)
        if held <= MAX_LINE_BYTES:
            if rest:
                parts.append(rest)
        else:
            parts = []
    if held > MAX_LINE_BYTES:
        yield Line(at, at + held, b"", closed=False, too_long=True)
    elif parts:
        line = _line(at, b"".join(parts), closed=False)
        if line is not None:
            yield line


def _line(at: int, data: bytes, *, closed: bool) -> Line | None:
    if at == 0 and data.startswith(_BOM):
        at, data = 3, data[3:]
    body = data.lstrip(_BLANK)
    start = at + len(data) - len(body)
    body = body.rstrip(_BLANK)
    return Line(start, start + len(body), body, closed) if body else None


def elements(unit: Unit) -> Iterator[Line]:
    """The objects and arrays of a document: elements of its top-level array, or values one after the other.

    Scalars between them carry nothing. Memory is bounded by MAX_LINE_BYTES; a longer element ends the reading.
    """
    buffer, base = b"", 0  # `base` is the offset of the buffer in the file
    at = depth = outer = 0
    start = -1
    left = unit.size_bytes
    while left > 0:
        block = unit.read(min(max(_BLOCK_BYTES, len(buffer)), left))
        if not block:
            break
        left -= len(block)
        buffer += block
        for token in _TOKEN.finditer(buffer, at):
            mark = buffer[token.start()]
            if mark == _QUOTE:
                if token.end() - token.start() == 1:
                    at = token.start()  # the string goes on in the next block
                    break
            elif mark in b"{[":
                if mark == _BRACKET and depth == 0:
                    outer = 1
                elif depth == outer:
                    start = token.start()
                depth += 1
            elif depth:
                depth -= 1
                if depth == outer and start >= 0:
                    yield Line(base + start, base + token.end(), buffer[start : token.end()])
                    start = -1
                elif depth == 0:
                    outer = 0
            at = token.end()
        else:
            at = len(buffer)
        if start >= 0 and len(buffer) - start > MAX_LINE_BYTES:
            while left > 0 and (block := unit.read(min(_BLOCK_BYTES, left))):
                left -= len(block)
            yield Line(base + start, unit.size_bytes - left, b"", too_long=True)
            return
        keep = at if start < 0 else min(start, at)
        buffer, base, at = buffer[keep:], base + keep, at - keep
        start = start - keep if start >= 0 else -1
    if start >= 0:
        yield Line(base + start, base + len(buffer), buffer[start:], closed=False)


class Decoder(Generic[T]):
    """Decodes lines into `T`: fast where the shape is the expected one, leniently where it is not.

    `lenient` builds a T of any JSON value, or gives None for one that carries nothing. `known` tells a record from an
    inner object when a torn line is searched for objects.
    """

    def __init__(
        self, shape: type[T], lenient: Callable[[Any], T | None], known: Callable[[T], bool], unit: Unit
    ) -> None:
        self._fast = msgspec.json.Decoder(shape)
        self._lenient = lenient
        self._known = known
        self._unit = unit

    def read(self, pieces: Iterable[Line]) -> Iterator[tuple[Line, T | None, list[Act]]]:
        """(bytes, value, acts) of lines or elements: a value, or the acts of a record that has none."""
        decode = self._fast.decode
        for line in pieces:
            data = line.data
            if too_deep(data):
                yield line, None, [Quarantine("too_deep")]
                continue
            try:
                value = decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield from self._slow(line)
                continue
            if not data.isascii() and not _is_utf8(data):
                self._unit.decode_errors += 1
            yield line, value, []

    def _slow(self, line: Line) -> Iterator[tuple[Line, T | None, list[Act]]]:
        if line.too_long:
            yield line, None, [Quarantine("line_too_long")]
            return
        if too_deep(line.data, WALKED_DEPTH):
            yield line, None, [Quarantine("too_deep")]
            return
        try:
            value, broken = loads(line.data)
        except (ValueError, RecursionError):
            if line.closed:
                yield from self._salvage(line)
            else:
                yield line, None, [Pending()]
            return
        self._unit.decode_errors += broken
        built = self._lenient(value)
        yield line, built, [] if built is not None else [Skip("empty")]

    def _salvage(self, line: Line) -> Iterator[tuple[Line, T | None, list[Act]]]:
        """Whole records on a torn or merged line; what is between them is quarantined, blanks go to neighbours."""
        done = 0
        for start, end in objects_in(line.data):
            try:
                value, broken = loads(line.data[start:end])
                built = self._lenient(value)
            except (ValueError, RecursionError):
                continue
            if built is None or not self._known(built):
                continue
            if line.data[done:start].strip(_BLANK):
                yield line.piece(done, start), None, [Quarantine("not_json")]
            self._unit.decode_errors += broken
            yield line.piece(start, end), built, []
            done = end
        if line.data[done:].strip(_BLANK):
            yield line.piece(done, len(line.data)), None, [Quarantine("not_json")]


def loads(data: bytes) -> tuple[Any, bool]:
    """A JSON value as Python's own parser takes it (NaN, control characters, lone surrogates), and whether any
    byte or surrogate had to be replaced. Raises ValueError or RecursionError."""
    text = data.decode("utf-8", "replace")
    value = json.loads(text, strict=False)
    broken = "\ufffd" in text and not _is_utf8(data)
    if "\\u" in text:
        cleaned = _clean(value)
        if cleaned != value:
            return cleaned, True
    return value, broken


def objects_in(data: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of JSON objects on a line, left to right, not overlapping.

    Searched in Latin-1, where one character is one byte and JSON's own characters are themselves.
    """
    text = data.decode("latin-1")
    decoder = json.JSONDecoder(strict=False)
    at = 0
    for _ in range(_MAX_SALVAGE_TRIES):
        match = _OBJECT_START.search(data, at)
        if match is None:
            return
        try:
            _, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            at = match.start() + 1
            continue
        yield match.start(), end
        at = end


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_unicode(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_unicode(key): _clean(item) for key, item in value.items()}
    return value
