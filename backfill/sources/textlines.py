"""Lines of text formats, exactly as they stand, with their byte range.

Unlike JSON lines, their indentation and blank lines mean something. Lines end at LF; a CR before it belongs to the end.
Deliberately absent: any meaning of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backfill.sources.base import Unit

# A longer line goes on as the next one: nothing is lost, and memory stays bounded.
MAX_LINE_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line. `end` is behind its line end, `text` is without it; `closed` says that it has one."""

    start: int
    end: int
    text: str
    closed: bool = True


def text_lines(unit: Unit) -> Iterator[TextLine]:
    """All lines of a unit; broken UTF-8 is read as U+FFFD and counted, a BOM is no text."""
    at, rest = 0, b""
    left = unit.size_bytes
    while left > 0 and (block := unit.read(min(_BLOCK_BYTES, left))):
        left -= len(block)
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            yield _line(unit, at, piece, closed=True)
            at += len(piece) + 1
        if len(rest) > MAX_LINE_BYTES:
            yield _line(unit, at, rest, closed=False)
            at, rest = at + len(rest), b""
    if rest:
        yield _line(unit, at, rest, closed=False)


def _line(unit: Unit, at: int, data: bytes, *, closed: bool) -> TextLine:
    end = at + len(data) + closed
    if at == 0:
        data = data.removeprefix(_BOM)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        unit.decode_errors += 1
    return TextLine(at, end, text.removesuffix("\r") if closed else text, closed)


def joined(lines: list[str]) -> str:
    """The lines as one text, without the blank lines around it."""
    return "\n".join(lines).strip("\n").rstrip()
