"""Transcripts that an OpenCode plugin keeps: `ses_*.jsonl`, one prompt, tool call or tool result per line.

The lines carry no ids: calls and results are paired by order, and the session is named by the file. Deliberately
absent: what the agent said; the plugin does not write it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, as_text, parse_time, text_of
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely
from backfill.sources.typed import user_acts

_TYPES = frozenset(("user", "assistant", "tool_use", "tool_result"))
_KEYS = frozenset(("type", "timestamp", "content", "tool_name", "tool_input", "tool_output"))


class _Line(msgspec.Struct, gc=False):
    """One line."""

    type: str = ""
    timestamp: Any = None
    content: Any = None
    tool_name: str = ""
    tool_input: Any = None
    tool_output: Any = None


class OpenCodeTranscriptsReader:
    """Reads the plugin's lines."""

    name = "opencode_transcripts"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a first line that has a type, a time, and a text or a tool, and nothing else."""
        if not head.objects:
            return not head.complete_lines and head.raw.startswith(b'{"type":"user","timestamp":"')
        first = head.objects[0]
        return (
            str(first.get("type")) in _TYPES
            and "timestamp" in first
            and first.keys() <= _KEYS
            and bool({"content", "tool_name"} & first.keys())
        )

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        stem = PurePosixPath(unit.source).stem
        session = stem if stem.startswith("ses_") else unit.source
        waiting: dict[str, deque[str]] = defaultdict(deque)
        decoder = Decoder(_Line, loosely(_Line), lambda line: line.type in _TYPES, unit)
        for n, (piece, line, acts) in enumerate(decoder.read(lines(unit))):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            record = Record(piece.start, piece.end, _acts(line, str(n), waiting), session)
            record.at, record.tz_assumed = parse_time(line.timestamp, unit.assume_tz)
            yield record


def _acts(line: _Line, n: str, waiting: dict[str, deque[str]]) -> list[Act]:
    if line.type == "user":
        return user_acts(text_of(line.content))
    if line.type == "assistant":
        return [AgentText(text_of(line.content))]
    if line.type == "tool_use":
        waiting[line.tool_name].append(n)
        return [ToolUse(n, line.tool_name, line.tool_input or {})]
    if line.type != "tool_result":
        return [Skip("unknown_type")]
    result = _output(line.tool_output)
    if waiting[line.tool_name]:
        return [ToolResult(waiting[line.tool_name].popleft(), result)]
    return [ToolUse(n, line.tool_name, line.tool_input or {}), ToolResult(n, result)]


def _output(value: Any) -> str:
    """The text of a result, which some tools wrap."""
    if isinstance(value, dict) and isinstance(value.get("output"), str):
        return str(value["output"])
    return as_text(value)
