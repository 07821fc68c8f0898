"""Lines of text formats, exactly as they stand, with their byte range.

Unlike JSON lines, their indentation and blank lines mean something. Lines end at LF; a CR before it belongs to the end.
Deliberately absent: any meaning of a line.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from backfill.sources.base import Unit

# A longer line goes on as the next one: nothing is lost, and memory stays bounded.
MAX_LINE_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


class TextLine(msgspec.Struct, gc=False):
    """One line. `end` is behind its line end, `text` is without it; `closed` says that it has one."""

    start: int
    end: int
    text: str
    closed: bool = True


def text_lines(unit: Unit) -> Iterator[TextLine]:
    """A unit's lines from where it has been read to; broken UTF-8 is counted and read as U+FFFD, a BOM is no text."""
    at, rest = unit.bytes_read, b""
    left = unit.size_bytes - at
    while left > 0 and (block := unit.read(min(_BLOCK_BYTES, left))):
        left -= len(block)
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            end = at + len(piece) + 1
            # nearly every line: the rest takes the long way
            yield (
                TextLine(at, end, piece.decode())
                if piece.isascii() and piece[-1:] != b"\r"
                else _line(unit, at, piece, closed=True)
            )
            at = end
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
