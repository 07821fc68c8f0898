"""Grok CLI: `sessions/<workspace>/<session>/chat_history.jsonl`, messages without ids and times.

User records with a `synthetic_reason` are injected; `prior_turn_interrupt` marks a prompt that follows an interrupted
answer. The session is named by its folder, anchors are ordinals. Deliberately absent: `summary.json` beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, readable, string, words
from backfill.sources.typed import user_acts

_TYPES = frozenset(("system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call"))
_MARKS = frozenset(("synthetic_reason", "prompt_index", "prior_turn_interrupt", "model_id", "model_fingerprint"))
_FOLDER = re.compile(r"(?:^|/)sessions/[^/]+/([^/]+)/[^/]+$")
_WORKSPACE = re.compile(r"^Workspace Path: (.+)$", re.MULTILINE)
_QUERY = re.compile(r"\s*<user_query>\s*(.*?)\s*</user_query>\s*", re.DOTALL)


class _Line(msgspec.Struct, gc=False):
    """A record of the history."""

    type: str | None = None
    content: Any = None
    synthetic_reason: Any = None
    summary: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    model_id: Any = None
    kind: Any = None


class GrokReader(LineByLine):
    """Reads the chat histories of the Grok CLI."""

    name = "grok"
    version = 1

    def claims(self, head: Head) -> bool:
        """By types and marks of its records; there is no header."""
        seen = head.objects[:8]
        if not seen or any(
            not one_of(value.get("type"), _TYPES) or "uuid" in value or "role" in value for value in seen
        ):
            return False
        return any(value.keys() & _MARKS for value in head.objects)

    def begin(self, unit: Unit) -> tuple[()]:
        """A line needs no other one."""
        return ()

    def go_on(self, state: tuple[()], unit: Unit) -> Iterator[Record]:
        """One record per line."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        found = _FOLDER.search(unit.source)
        session = found[1] if found else unit.source
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            record = Record(piece.start, piece.end, _acts(line), session, model=string(line.model_id))
            if line.type == "user" and line.synthetic_reason:
                place = _WORKSPACE.search(words(line.content))
                record.cwd = place[1].strip() if place else ""
            yield record


def _acts(line: _Line) -> list[Act]:
    kind = line.type
    if kind == "user":
        if line.synthetic_reason:
            return [Skip("injected")]
        text = words(line.content)
        query = _QUERY.fullmatch(text)
        if not text.strip() and objects(line.content):
            return [Prompt("", unanswered="empty")]
        return user_acts(query[1] if query else text)
    if kind == "reasoning":
        return [Thinking("\n\n".join(string(block.get("text")) for block in objects(line.summary)))]
    if kind == "assistant":
        calls: list[Act] = [
            ToolUse(string(call.get("id")), string(call.get("name")), parse_arguments(call.get("arguments")))
            for call in objects(line.tool_calls)
        ]
        return [AgentText(words(line.content)), *calls]
    if kind == "tool_result":
        return [ToolResult(string(line.tool_call_id), readable(line.content))]
    if kind == "backend_tool_call":
        call = mapping(line.kind)
        return [ToolUse(string(call.get("id")), string(call.get("tool_type")), parse_arguments(call.get("action")))]
    return [Skip("system" if kind == "system" else "unknown_type")]


def _is_record(line: _Line) -> bool:
    return line.type in _TYPES
