"""Messages inside one JSON value: the elements of an inner array with their own bytes.

Reads a line or a document that is held in memory. Deliberately absent: streaming (`document` does that for the fields
of a whole file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from backfill.sources.jsonl import Line, loads
from backfill.sources.loose import loosely, sequence

S = TypeVar("S", bound=msgspec.Struct)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


def array_in(piece: Line, *path: str) -> list[Line]:
    """The elements of the array at `path` below a JSON object, none where there is no array.

    Where the text is broken the elements are written anew and the first one has all the bytes of the object.
    """
    try:
        return _exact(piece, path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _rewritten(piece, path)


def reading(shape: type[S]) -> Callable[[Line], S | None]:
    """Decodes an element into `shape`, leniently where it has another shape; None where it carries nothing."""
    fast, lenient = msgspec.json.Decoder(shape).decode, loosely(shape)

    def read(piece: Line) -> S | None:
        try:
            return fast(piece.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                return lenient(loads(piece.data)[0])
            except (ValueError, RecursionError):
                return None

    return read


def _exact(piece: Line, path: tuple[str, ...]) -> list[Line]:
    data, offset = piece.data, 0
    for key in path:
        if data[:1] != b"{":
            return []
        at, found = 0, None
        for name, raw in _object.decode(data).items():
            body = bytes(raw)
            start = data.find(body, at)
            at = start + len(body)
            if name == key:
                found = (start, body)
        if found is None:
            return []
        offset, data = offset + found[0], found[1]
    if data[:1] != b"[":
        return []
    at, places = 0, []
    for raw in _array.decode(data):
        body = bytes(raw)
        start = data.find(body, at)
        at = start + len(body)
        places.append(Line(piece.start + offset + start, piece.start + offset + at, body))
    return places


def _rewritten(piece: Line, path: tuple[str, ...]) -> list[Line]:
    try:
        value: Any = loads(piece.data)[0]
    except (ValueError, RecursionError):
        return []
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    places = []
    for i, element in enumerate(sequence(value)):
        start = piece.start if i == 0 else piece.end
        places.append(Line(start, piece.end, msgspec.json.encode(element)))
    return places
