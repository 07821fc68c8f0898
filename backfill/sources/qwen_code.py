"""Qwen Code chats: `~/.qwen/projects/*/chats/*.jsonl`, an envelope like Claude Code's around Gemini's parts.

`systemPayload.displayText` is what the user typed; the parts may carry more (hooks, files). Two records may share a
uuid where one answer was written in two steps. Deliberately absent: `ui_telemetry` and the history inside a
`chat_compression`, which repeats what stands before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backfill.ids import ID_BYTES
from backfill.records import Act, AgentText, Compacted, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.gemini_cli import response_text
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, string
from backfill.sources.typed import user_acts

_TYPES = frozenset(("user", "assistant", "tool_result", "system"))


class _Line(msgspec.Struct, gc=False):
    """What is read of one line."""

    type: str | None = None
    subtype: str | None = None
    uuid: Any = None
    parentUuid: Any = msgspec.UNSET  # noqa: N815
    sessionId: Any = None  # noqa: N815
    timestamp: Any = None
    cwd: Any = None
    gitBranch: Any = None  # noqa: N815
    model: Any = None
    provenance: str | None = None
    message: Any = None
    systemPayload: Any = None  # noqa: N815
    toolCallResult: Any = None  # noqa: N815


@dataclass(slots=True)
class _Session:
    """What must be remembered from line to line: the session's id, and of each uuid the hash of its first record."""

    id: str = ""
    seen: dict[str, bytes] = field(default_factory=dict)


class QwenCodeReader(LineByLine):
    """Reads the chats of Qwen Code."""

    name = "qwen_code"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Session,)

    def claims(self, head: Head) -> bool:
        """By the first record: the envelope with a message of parts, or a system record with its payload."""
        for value in head.objects:
            if not one_of(value.get("type"), _TYPES) or not isinstance(value.get("sessionId"), str):
                return False
            message = value.get("message")
            if isinstance(message, dict):
                return isinstance(message.get("parts"), list)
            if "systemPayload" in value:
                return True
        return not head.complete_lines and b'"sessionId":' in head.raw[:2000] and b'"parts":' in head.raw

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
            state.id = string(line.sessionId) or state.id or unit.source
            record = Record(piece.start, piece.end, _acts(line), state.id)
            record.uuid = string(line.uuid)
            said = hashlib.blake2b(piece.data, digest_size=ID_BYTES).digest()
            if record.uuid and state.seen.setdefault(record.uuid, said) != said:
                record.turn, record.uuid = record.uuid, ""
            if line.parentUuid is not msgspec.UNSET:
                record.linked = True
                record.parent = line.parentUuid if isinstance(line.parentUuid, str) else None
            if line.timestamp is not None:
                record.at, record.tz_assumed = parse_time(line.timestamp, unit.assume_tz)
            record.cwd, record.branch, record.model = string(line.cwd), string(line.gitBranch), string(line.model)
            if line.type == "assistant" and not record.turn:
                record.turn = record.uuid
            yield record


def _acts(line: _Line) -> list[Act]:
    parts = objects(mapping(line.message).get("parts"))
    if line.type == "assistant":
        return _agent_acts(parts) or [AgentText("")]
    if line.type == "tool_result":
        return _results(parts) or [Skip("empty")]
    if line.type == "user":
        return _user_acts(line, parts)
    return _system_acts(line) if line.type == "system" else [Skip("unknown_type")]


def _user_acts(line: _Line, parts: list[dict[str, Any]]) -> list[Act]:
    if line.subtype in ("notification", "cron", "hook") or line.provenance not in (None, "real_user", "user"):
        return [Skip("injected")]
    results = _results(parts)
    if results:
        return results
    typed = string(mapping(line.systemPayload).get("displayText"))
    if not typed:
        typed = "\n".join(text for text in (string(part.get("text")) for part in parts) if text)
    if not typed and parts:
        return [Prompt("", unanswered="empty")]
    return user_acts(typed)


def _agent_acts(parts: list[dict[str, Any]]) -> list[Act]:
    acts: list[Act] = []
    for part in parts:
        if isinstance(part.get("functionCall"), dict):
            call = part["functionCall"]
            acts.append(ToolUse(string(call.get("id")), string(call.get("name")), parse_arguments(call.get("args"))))
        elif part.get("thought"):
            acts.append(Thinking(string(part.get("text"))))
        else:
            acts.append(AgentText(string(part.get("text"))))
    return acts


def _results(parts: list[dict[str, Any]]) -> list[Act]:
    responses = [mapping(part["functionResponse"]) for part in parts if "functionResponse" in part]
    return [ToolResult(string(r.get("id")), response_text(r.get("response"))) for r in responses]


def _system_acts(line: _Line) -> list[Act]:
    payload = mapping(line.systemPayload)
    if line.subtype == "chat_compression":
        return [Compacted(), Skip("compact_summary")]
    if line.subtype == "slash_command":
        command = string(payload.get("rawCommand"))
        sent = payload.get("phase") == "invocation" and payload.get("sentToModel") is not False
        return [Prompt(command, unanswered="command")] if sent and command else [Skip("command")]
    if line.subtype == "custom_title" and string(payload.get("customTitle")):
        return [Titled(payload["customTitle"], given=payload.get("titleSource") == "manual")]
    if line.subtype == "api_error":
        return [Skip("api_error")]
    return [Skip("meta" if line.subtype else "unknown_type")]


def _is_record(line: _Line) -> bool:
    return line.type in _TYPES and isinstance(line.sessionId, str)
