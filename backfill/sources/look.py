"""The beginning of a file, as detection sees it: its first JSON values, and whether they are an agent's own lists.

Reads bytes that were read already. Deliberately absent: which reader claims them (`registry`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from backfill.nesting import WALKED_DEPTH, too_deep
from backfill.sources.base import Head
from backfill.sources.jsonl import loads

HEAD_BYTES = 256 << 10
_MAX_HEAD_LINES, _MAX_HEAD_VALUES = 200, 20


def look(head: bytes, source: str) -> Head:
    """The first JSON values of a unit: of its lines, or of the document that it is."""
    body = head.removeprefix(b"\xef\xbb\xbf")
    lines = body.split(b"\n")
    # An array over several lines begins with its first element, not with the first one that fills a line.
    objects = list(_document(body)) if body.lstrip()[:1] == b"[" else []
    objects = objects or list(islice(_objects(lines[:_MAX_HEAD_LINES]), _MAX_HEAD_VALUES)) or list(_document(body))
    return Head(source, head, objects, len(lines) - 1)


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        body = line.strip(b" \t\r\n\0")
        if not body.startswith((b"{", b"[")):
            continue  # prose, or a value that carries nothing
        if too_deep(body, WALKED_DEPTH):
            continue
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                value = loads(body)[0]
            except (ValueError, RecursionError):
                continue
        yield from _dictionaries(value)


def _document(body: bytes) -> Iterator[dict[str, Any]]:
    """The first value of a document, or the first element of its array."""
    text = body.decode("utf-8", "replace").lstrip()
    for start in (text, text[1:].lstrip() if text[:1] == "[" else ""):
        if not start.startswith(("{", "[")) or too_deep(body, WALKED_DEPTH):
            continue
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(start)
        except (ValueError, RecursionError):
            continue
        yield from _dictionaries(value)
        return


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for item in value[:3]:
            yield from _dictionaries(item) if isinstance(item, list) else [item] if isinstance(item, dict) else []


def is_too_deep(head: bytes) -> bool:
    """Whether a file that nobody claims is JSON nested deeper than anything is read."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") and too_deep(head)


def is_index(head: Head) -> bool:
    """Lists of prompts or sessions that agents keep beside the transcripts."""
    if not head.objects:
        return False
    keys = head.objects[0].keys()
    for index in ({"display", "pastedContents"}, {"id", "ts", "task", "totalCost"}, {"sessionId", "dateCreated"}):
        if index <= keys and "history" not in keys:
            return True
    return keys in ({"session_id", "ts", "text"}, {"entries", "version"})
