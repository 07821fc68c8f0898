"""CodeBuddy and WorkBuddy: event lines whose fields drift between versions.

Both name their session in every line and give no ids; texts may lie under `text`, `value` or `content`, times come as
ISO text or as epoch numbers in s, ms, us or ns. Calls and results meet by order. Reads lines; anchors are ordinals.
Deliberately absent: events that nobody has described; they are `meta`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backfill.records import Act, AgentText, Record, Skip, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.typed import user_acts

_TEXT_KEYS = ("text", "value", "content", "message", "result", "output")
_TIME_KEYS = ("created_at", "createdAt", "time", "timestamp", "updatedAt", "updated_at")
_MAX_DEPTH = 6


class _BuddyReader:
    """Reads one of the two; they differ in the names of their event and session fields."""

    version = 1

    def __init__(self, name: str, kind_key: str, session_key: str) -> None:
        self.name = name
        self._kind_key = kind_key
        self._session_key = session_key

    def claims(self, head: Head) -> bool:
        """By the fields that name event and session in the first lines."""
        return any(self._is_event(value) for value in head.objects[:3])

    def _is_event(self, value: Any) -> bool:
        if not isinstance(value, dict) or "type" in value or "uuid" in value:
            return False
        named = isinstance(value.get(self._kind_key), str) and isinstance(value.get(self._session_key), str)
        return named and any(key in value for key in _TIME_KEYS)

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        decoder = Decoder(dict, lambda value: value if isinstance(value, dict) else None, self._is_event, unit)
        cwd = model = call = ""
        n_calls = 0
        for piece, event, acts in decoder.read(lines(unit)):
            if event is None:
                yield Record(piece.start, piece.end, acts)
                continue
            kind = str(event.get(self._kind_key)).replace("-", "_")
            if kind == "tool_use" or kind == "tool_call":
                n_calls += 1
                call = f"call {n_calls}"
            record = Record(piece.start, piece.end, _acts(event, kind, call), _text(event.get(self._session_key)))
            cwd, model = _cwd(event) or cwd, _model(event) or model
            record.cwd, record.model = cwd, model
            for key in _TIME_KEYS:
                if key in event:
                    record.at, record.tz_assumed = _time(event[key], unit.assume_tz)
                    break
            yield record


class CodeBuddyReader(_BuddyReader):
    """Reads CodeBuddy."""

    def __init__(self) -> None:
        super().__init__("codebuddy", "event_type", "session_id")


class WorkBuddyReader(_BuddyReader):
    """Reads WorkBuddy."""

    def __init__(self) -> None:
        super().__init__("workbuddy", "kind", "conversation_id")


def _acts(event: dict[str, Any], kind: str, call: str) -> list[Act]:
    if kind in ("message", "user_message", "assistant_message"):
        role = kind.partition("_")[0] if kind != "message" else ""
        for holder in (event, event.get("message"), event.get("author")):
            if isinstance(holder, dict) and isinstance(holder.get("role"), str):
                role = holder["role"]
        text = _deep_text(event.get("content")) or _deep_text(event.get("message"))
        if role in ("user", "human"):
            return user_acts(text)
        return [AgentText(text)] if role in ("assistant", "agent") else [Skip("system" if role == "system" else "meta")]
    if kind in ("tool_use", "tool_call"):
        tool: dict[str, Any] = next(
            (event[key] for key in ("tool", "function") if isinstance(event.get(key), dict)), {}
        )
        arguments = next((event[key] for key in ("input", "parameters", "arguments") if key in event), None)
        return [ToolUse(call, _text(tool.get("name")), parse_arguments(arguments))]
    if kind == "tool_result":
        return [ToolResult(call, _deep_text({key: event[key] for key in _TEXT_KEYS if key in event}))]
    return [Skip("meta")]


def _deep_text(value: Any, depth: int = 0) -> str:
    """The text of a value whose shape drifts: the first known key of an object, the parts of a list."""
    if isinstance(value, str) or depth > _MAX_DEPTH:
        return value if isinstance(value, str) else ""
    if isinstance(value, list):
        return "\n".join(text for item in value if (text := _deep_text(item, depth + 1)))
    if isinstance(value, dict):
        return next((text for key in _TEXT_KEYS if (text := _deep_text(value.get(key), depth + 1))), "")
    return ""


def _time(value: Any, assume_tz: str) -> tuple[int | None, bool]:
    return parse_time(int(value) if isinstance(value, str) and value.isdecimal() else value, assume_tz)


def _cwd(event: dict[str, Any]) -> str:
    workspace = event.get("workspace")
    return _text(workspace.get("path")) if isinstance(workspace, dict) else _text(event.get("projectRoot"))


def _model(event: dict[str, Any]) -> str:
    found = event.get("metadata")
    return _text(found.get("model") if isinstance(found, dict) else event.get("model"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
