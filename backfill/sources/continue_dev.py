"""Continue: `~/.continue/sessions/<id>.json`, one document per session, and its index `sessions.json`.

Messages carry no times. Deliberately absent: context items and prompt logs, which repeat what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, Record, Skip, Thinking, Titled
from backfill.sources.base import Head, Unit
from backfill.sources.chat import chat_acts
from backfill.sources.jsonl import Decoder, elements
from backfill.sources.loose import loosely, mapping, string
from backfill.sources.nested import array_in, reading


class _Session(msgspec.Struct, gc=False):
    """What a document says of its session."""

    sessionId: str = ""  # noqa: N815
    title: str = ""
    workspaceDirectory: str = ""  # noqa: N815


class _Item(msgspec.Struct, gc=False):
    """An item of the history."""

    message: Any = None
    reasoning: Any = None


_item = reading(_Item)


class ContinueReader:
    """Reads session documents."""

    name = "continue"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a session id beside a history."""
        if head.objects:
            return {"sessionId", "history"} <= head.objects[0].keys()
        begins = head.raw[:4096]
        return b'"sessionId"' in begins and b'"workspaceDirectory"' in begins and b'"history"' in begins

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        decoder = Decoder(_Session, loosely(_Session), lambda session: bool(session.sessionId), unit)
        for piece, session, acts in decoder.read(elements(unit)):
            places = [] if session is None else array_in(piece, "history")
            if session is None or not places:
                yield Record(piece.start, piece.end, acts or [Skip("meta")])
                continue
            titled: list[Act] = [Titled(session.title)] if session.title not in ("", "New Session") else []
            for place in places:
                item = _item(place)
                acts = [Skip("empty")] if item is None else _acts(item)
                record = Record(place.start, place.end, titled + acts, session.sessionId or unit.source)
                record.cwd = session.workspaceDirectory.removeprefix("file://")
                titled = []
                yield record


def _acts(item: _Item) -> list[Act]:
    thought = string(mapping(item.reasoning).get("text"))
    return [Thinking(thought), *chat_acts(mapping(item.message))] if thought else chat_acts(mapping(item.message))
