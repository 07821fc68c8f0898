"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`, one `{type, data, id, timestamp, parentId}` a line.

`data.content` is what was typed, `transformedContent` what was sent. `tool.execution_start` repeats the request of the
assistant's message. Events with a `parentToolCallId` are a sub-agent's and form a session of their own, opened by the
prompt of the call. Deliberately absent: `parentId`, which chains events, not messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Compacted, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.doubles import COPY
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import user_acts

_PREFIXES = ("session.", "user.", "assistant.", "tool.", "system.", "hook.", "subagent.", "skill.", "abort")
_SKIPPED = {"abort": "interrupted", "session.error": "api_error", "system.message": "system",
            "system.notification": "injected", "tool.user_requested": "command"}  # fmt: skip


class _Line(msgspec.Struct, gc=False):
    """An event."""

    type: str | None = None
    data: Any = None
    id: Any = None
    timestamp: Any = None
    agentId: Any = None  # noqa: N815


class CopilotCliReader(LineByLine):
    """Reads the event files of the Copilot CLI."""

    name = "copilot_cli"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Session,)

    def claims(self, head: Head) -> bool:
        """By the first event: a dotted type with data and an id."""
        for value in head.objects[:1]:
            kind = value.get("type")
            return isinstance(kind, str) and kind.startswith(_PREFIXES) and {"data", "id", "timestamp"} <= value.keys()
        return not head.complete_lines and head.raw.lstrip().startswith((b'{"type":"session.start"', b'{"type":"user.'))

    def begin(self, unit: Unit) -> _Session:
        """See `LineByLine`."""
        return _Session(unit)

    def go_on(self, session: _Session, unit: Unit) -> Iterator[Record]:
        """One record per event."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
            else:
                yield session.record(piece.start, piece.end, line)


class _Session:
    """What must be remembered from event to event."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._id = ""
        self._requested: dict[str, str] = {}  # call id -> the prompt that it gives a sub-agent

    def record(self, start: int, end: int, line: _Line) -> Record:
        """The record of an event."""
        kind, data = string(line.type), mapping(line.data)
        if kind == "session.start" and not self._id:
            self._id = string(data.get("sessionId"))
        self._id = self._id or self._unit.source
        record = Record(start, end, self._acts(kind, data), self._id)
        child = string(data.get("parentToolCallId")) or string(line.agentId)
        if kind.startswith("subagent."):
            child = string(data.get("toolCallId"))
        if child:
            record.session, record.parent_session = f"{self._id}/agent-{child}", self._id
        record.uuid = string(line.id)
        if line.timestamp is not None:
            record.at, record.tz_assumed = parse_time(line.timestamp, self._unit.assume_tz)
        context = mapping(data.get("context"))
        record.cwd, record.branch = string(context.get("cwd")), string(context.get("branch"))
        model = data.get("newModel") or data.get("selectedModel") or (data.get("model") if "message" in kind else "")
        record.model = string(model)
        return record

    def _acts(self, kind: str, data: dict[str, Any]) -> list[Act]:
        content = string(data.get("content"))
        if kind == "user.message":
            source = string(data.get("source"))
            if source and source not in ("user", "cli"):
                return [Skip("injected")]
            return user_acts(content)
        if kind == "assistant.message":
            return self._said(content, data)
        if kind == "assistant.reasoning":
            return [Thinking(content)]
        if kind == "tool.execution_start":
            call_id = string(data.get("toolCallId"))
            if call_id in self._requested:
                return [Skip(COPY)]
            return [self._call(call_id, data.get("toolName"), data.get("arguments"))]
        if kind == "tool.execution_complete":
            return [ToolResult(string(data.get("toolCallId")), _result(data))]
        if kind == "subagent.started":
            asked = self._requested.get(string(data.get("toolCallId"))) or string(data.get("agentDescription"))
            return [Prompt(asked)] if asked else [Skip("meta")]
        if kind == "session.title_changed" and string(data.get("title")):
            return [Titled(data["title"])]
        if kind == "session.compaction_complete":
            return [Compacted(), Skip("compact_summary")]
        if kind.endswith(("_delta", ".partial_result", "_partial_result")):
            return [Skip(COPY)]
        return [Skip(_SKIPPED.get(kind, "meta" if kind.startswith(_PREFIXES) else "unknown_type"))]

    def _said(self, content: str, data: dict[str, Any]) -> list[Act]:
        acts: list[Act] = []
        if string(data.get("reasoningText")):
            acts.append(Thinking(data["reasoningText"]))
        acts.append(AgentText(content))
        requests = objects(data.get("toolRequests"))
        acts += [self._call(string(r.get("toolCallId")), r.get("name"), r.get("arguments")) for r in requests]
        return acts

    def _call(self, call_id: str, name: Any, arguments: Any) -> ToolUse:
        parsed = parse_arguments(arguments)
        self._requested[call_id] = string(mapping(parsed).get("prompt"))
        return ToolUse(call_id, string(name), parsed)


def _result(data: dict[str, Any]) -> str:
    result = mapping(data.get("result"))
    for text in (result.get("content"), result.get("detailedContent"), mapping(data.get("error")).get("message")):
        if text:
            return readable(text)
    return ""


def _is_record(line: _Line) -> bool:
    return isinstance(line.type, str) and line.type.startswith(_PREFIXES) and isinstance(line.data, dict)
