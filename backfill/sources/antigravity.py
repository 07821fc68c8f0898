"""Antigravity: `transcript.jsonl`, one step `{step_index, source, type, created_at, content}` per line.

Only `USER_EXPLICIT` steps are a person's; what was typed stands in `<USER_REQUEST>`. Steps of the model that are no
response are tools, named by their type. Steps name no session: it is the unit's source. Deliberately absent: what
`truncated_fields` says was cut before the file was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import user_acts

_REQUEST = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)


class _Line(msgspec.Struct, gc=False):
    """A step."""

    step_index: Any = None
    source: str | None = None
    type: str | None = None
    created_at: Any = None
    content: Any = None
    thinking: Any = None
    tool_calls: Any = None
    error: Any = None


class AntigravityReader:
    """Reads the transcripts of Antigravity."""

    name = "antigravity"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a numbered step with a source and a type."""
        first = head.objects[0] if head.objects else {}
        return {"step_index", "source", "type"} <= first.keys()

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per step; a step that is written again without a change is a duplicate."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        seen: dict[str, int] = {}
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            record = Record(piece.start, piece.end, _acts(line), unit.source)
            record.uuid = "" if line.step_index is None else str(line.step_index)
            said = hash((string(line.content), string(line.thinking), readable(line.tool_calls)))
            if seen.setdefault(record.uuid, said) != said:
                record.uuid = ""
            if line.created_at is not None:
                record.at, record.tz_assumed = parse_time(line.created_at, unit.assume_tz)
            yield record


def _acts(line: _Line) -> list[Act]:
    text = readable(line.content)
    if line.source == "USER_EXPLICIT":
        request = _REQUEST.search(text)
        return user_acts(request[1] if request else text) if text else [Prompt("", unanswered="empty")]
    if line.source != "MODEL":
        return [Skip("injected" if text else "meta")]
    acts: list[Act] = [Thinking(line.thinking)] if isinstance(line.thinking, str) and line.thinking else []
    if line.type == "PLANNER_RESPONSE":
        acts.append(AgentText(text))
        for call in objects(line.tool_calls):
            called = mapping(call.get("function")) or call
            arguments = next((called[key] for key in ("arguments", "args", "input") if key in called), None)
            acts.append(ToolUse(string(call.get("id")), string(called.get("name")), parse_arguments(arguments)))
        return acts
    call_id = f"step-{line.step_index}"
    return [*acts, ToolUse(call_id, string(line.type).lower(), {}), ToolResult(call_id, text or readable(line.error))]


def _is_record(line: _Line) -> bool:
    return line.step_index is not None and isinstance(line.type, str)
