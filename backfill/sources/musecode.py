"""Muse Code: an event log, one `{stream, sequence, recorded_at, payload}` per line, times in microseconds.

A run's `started` event is the prompt; committed messages, calls and results are what was said and done. Deliberately
absent: statuses, diagnostics and usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import user_acts


class _Line(msgspec.Struct, gc=False):
    """An event of the log."""

    id: Any = None
    stream: Any = None
    recorded_at: Any = None
    payload_type: str | None = None
    payload: Any = None


class MusecodeReader:
    """Reads the event logs of Muse Code."""

    name = "musecode"
    version = 1

    def claims(self, head: Head) -> bool:
        """By an event with its stream, time and type of payload."""
        first = head.objects[0] if head.objects else {}
        return {"stream", "recorded_at", "payload_type", "payload"} <= first.keys()

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per event."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        session = ""
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            session = string(mapping(line.stream).get("id")) or session or unit.source
            payload = mapping(line.payload)
            event, about = mapping(payload.get("event")), mapping(payload.get("record"))
            record = Record(piece.start, piece.end, _acts(string(event.get("kind")), event), session)
            record.uuid = string(line.id)
            record.at, record.tz_assumed = parse_time(line.recorded_at, unit.assume_tz)
            record.cwd = string(about.get("workspace_root"))
            record.model = string(about.get("model_id")) or string(event.get("model"))
            yield record


def _acts(kind: str, event: dict[str, Any]) -> list[Act]:
    if kind == "started":
        return user_acts(readable(event.get("prompt")))
    if kind == "assistant_message_committed":
        return [AgentText(string(event.get("text")))]
    if kind == "reasoning_committed":
        return [Thinking(string(event.get("text")) or readable(event.get("summary")))]
    if kind == "assistant_tool_calls_committed":
        said: list[Act] = [AgentText(event["text"])] if string(event.get("text")) else []
        return said + [
            ToolUse(string(call.get("call_id")), string(call.get("name")), parse_arguments(call.get("args")))
            for call in objects(event.get("tool_calls"))
        ] or [AgentText("")]
    if kind == "tool_result_batch_committed":
        return [
            ToolResult(string(result.get("tool_call_id")), readable(result.get("text")))
            for result in objects(event.get("results"))
        ] or [Skip("empty")]
    return [Skip("meta")]


def _is_record(line: _Line) -> bool:
    return isinstance(line.payload_type, str) and isinstance(line.payload, dict)
