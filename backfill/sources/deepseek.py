"""DeepSeek's terminal agent: `session.jsonl` with a header and `{type, seq, time, data}` events.

Events are written as they finish, not in the order of `seq`, which is the one that counts; a unit is therefore held
in memory. Answers come in chunks and again whole. `data.source.kind` tells what a person typed (`user`) from what a
plugin put in. Deliberately absent: turns and steps, which carry no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string, words
from backfill.sources.typed import user_acts

# Prompts weigh double: one that is written after its answer takes that answer from the exchange before.
_PROMPT_WEIGHT = 2


class _Line(msgspec.Struct, gc=False):
    """The header or an event."""

    type: str | None = None
    id: Any = None
    cwd: Any = None
    parentId: Any = None  # noqa: N815
    seq: int | None = None
    time: Any = None
    data: Any = None


class DeepSeekReader:
    """Reads the sessions of DeepSeek's agent."""

    name = "deepseek"
    version = 1

    def claims(self, head: Head) -> bool:
        """By the header, or by events with a slash in their type and a sequence number."""
        first = head.objects[0] if head.objects else {}
        if first.get("type") == "session" and "createdAt" in first and isinstance(first.get("id"), str):
            return True
        return isinstance(first.get("type"), str) and "/" in first["type"] and {"seq", "data"} <= first.keys()

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per line, in the order of their numbers."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        numbered: list[tuple[int, Record]] = []
        session = parent = ""
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts, scattered=True)
                continue
            record = Record(piece.start, piece.end, _acts(line), scattered=True)
            if line.type == "session":
                session, parent = session or string(line.id), parent or string(line.parentId)
                record.cwd = string(line.cwd)
            if line.time is not None:
                record.at, record.tz_assumed = parse_time(line.time, unit.assume_tz)
            if line.type == "user/message":
                record.weight = _PROMPT_WEIGHT
                record.uuid = "" if line.seq is None else str(line.seq)
            numbered.append((-1 if line.type == "session" else line.seq or 0, record))
        for _, record in sorted(numbered, key=lambda pair: pair[0]):
            record.session, record.parent_session = session or unit.source, parent
            yield record


def _acts(line: _Line) -> list[Act]:
    kind, data = string(line.type), mapping(line.data)
    message = mapping(data.get("message")) or data
    if kind == "user/message":
        source = mapping(data.get("source")).get("kind")
        return user_acts(words(data.get("content"))) if source in (None, "user") else [Skip("injected")]
    if kind == "assistant/message":
        acts: list[Act] = [
            Thinking(string(block.get("text")))
            if block.get("type") == "reasoning"
            else AgentText(string(block["text"]))
            for block in objects(message.get("content"))
            if isinstance(block.get("text"), str)
        ]
        return acts or [AgentText(string(message.get("content")))]
    if kind == "tool/call":
        return [ToolUse(string(data.get("callId")), string(data.get("name")), parse_arguments(data.get("arguments")))]
    if kind == "tool/result":
        call_id = string(mapping(message.get("source")).get("callId"))
        results = objects(message.get("content"))
        return [
            ToolResult(string(result.get("toolCallId")) or call_id, readable(result.get("content")))
            for result in results
        ] or [ToolResult(call_id, readable(message.get("content")))]
    if kind == "session/title" and string(data.get("title")):
        return [Titled(data["title"])]
    if "chunk" in kind:
        return [Skip("event_copy")]
    return [Skip("meta" if "/" in kind or kind == "session" else "unknown_type")]


def _is_record(line: _Line) -> bool:
    return isinstance(line.type, str) and (line.type == "session" or "/" in line.type or "chunks" in line.type)
