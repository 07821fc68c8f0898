"""Factory's Droid: session files of a `session_start` and `message` lines, and the output of its stream-json mode.

Session files hold Anthropic's content blocks; the stream says `message`, `tool_call`, `tool_result`, `completion` with
times in milliseconds. Deliberately absent: to-do states and settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Compacted, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import merge_prompts, user_acts

_TYPES = frozenset((
    "session_start", "message", "todo_state", "system", "tool_call", "tool_result", "completion", "error",
    "session_end", "compaction_state",
))  # fmt: skip


class _Line(msgspec.Struct, gc=False):
    """A line of a session file or of the stream."""

    type: str | None = None
    id: Any = None
    timestamp: Any = None
    message: Any = None
    cwd: Any = None
    title: Any = None
    sessionTitle: Any = None  # noqa: N815
    sessionId: Any = None  # noqa: N815
    session_id: Any = None
    parent: Any = None
    model: Any = None
    role: str | None = None
    text: Any = None
    toolName: Any = None  # noqa: N815
    parameters: Any = None
    value: Any = None
    finalText: Any = None  # noqa: N815


@dataclass(slots=True)
class _Session:
    """What must be remembered from line to line: the session's id and what the agent said last."""

    id: str = ""
    said: str = ""


class DroidReader(LineByLine):
    """Reads Droid's sessions and its stream."""

    name = "droid"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Session,)

    def claims(self, head: Head) -> bool:
        """By the header of a session, or the first event of a stream with a time in milliseconds."""
        first = head.objects[0] if head.objects else {}
        if first.get("type") == "session_start":
            return isinstance(first.get("id"), str)
        if first.get("type") == "system" and first.get("subtype") == "init":
            return isinstance(first.get("sessionId"), str) and isinstance(first.get("timestamp"), int)
        return not head.complete_lines and head.raw.lstrip().startswith(b'{"type":"session_start",')

    def begin(self, unit: Unit) -> _Session:
        """See `LineByLine`."""
        return _Session()

    def go_on(self, state: _Session, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            own = line.id if line.type == "session_start" else line.sessionId or line.session_id
            state.id = state.id or string(own) or unit.source
            record = Record(piece.start, piece.end, _acts(line, state.said), state.id)
            record.parent_session = string(line.parent) if line.type == "session_start" else ""
            if line.timestamp is not None:
                record.at, record.tz_assumed = parse_time(line.timestamp, unit.assume_tz)
            record.cwd, record.model = string(line.cwd), string(line.model)
            record.uuid = string(line.id) if line.type == "message" else ""
            state.said = next((act.text for act in record.acts if isinstance(act, AgentText)), state.said)
            yield record


def _acts(line: _Line, said: str) -> list[Act]:
    kind = line.type
    if kind == "message":
        message = mapping(line.message)
        if not message:
            text = readable(line.text)
            return user_acts(text) if line.role == "user" else [AgentText(text)]
        role = message.get("role")
        return _user_acts(message.get("content")) if role == "user" else _agent_acts(message.get("content"))
    if kind == "session_start" and (string(line.sessionTitle) or string(line.title)):
        return [Titled(string(line.sessionTitle) or string(line.title))]
    if kind == "tool_call":
        return [ToolUse(string(line.id), string(line.toolName), parse_arguments(line.parameters))]
    if kind == "tool_result":
        return [ToolResult(string(line.id), readable(line.value))]
    if kind == "completion":
        text = string(line.finalText)
        return [AgentText(text)] if text and text != said else [Skip("event_copy")]
    if kind == "compaction_state":
        return [Compacted(), Skip("compact_summary")]
    if kind == "error":
        return [Skip("api_error")]
    return [Skip("meta" if kind in _TYPES else "unknown_type")]


def _user_acts(content: Any) -> list[Act]:
    if isinstance(content, str):
        return user_acts(content)
    blocks = objects(content)
    acts: list[Act] = [
        ToolResult(string(block.get("tool_use_id")), readable(block.get("content")))
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    texts = [string(block.get("text")) for block in blocks if block.get("type") == "text"]
    typed = merge_prompts([act for text in texts for act in user_acts(text)])
    prompts = [act for act in typed if isinstance(act, Prompt)]
    if not typed and not acts and any(block.get("type") == "image" for block in blocks):
        return [Prompt("", unanswered="empty")]
    return acts + (list[Act](prompts) if prompts else typed) or [Skip("empty")]


def _agent_acts(content: Any) -> list[Act]:
    if isinstance(content, str):
        return [AgentText(content)]
    acts: list[Act] = []
    for block in objects(content):
        kind = block.get("type")
        if kind == "thinking":
            acts.append(Thinking(string(block.get("thinking"))))
        elif kind == "tool_use":
            acts.append(
                ToolUse(string(block.get("id")), string(block.get("name")), parse_arguments(block.get("input")))
            )
        else:
            acts.append(AgentText(string(block.get("text"))))
    return acts or [AgentText("")]


def _is_record(line: _Line) -> bool:
    return line.type in _TYPES
