"""mini-swe-agent's `*.traj.json`: one JSON object, or a bare list, with the messages of one run.

Before version 2 results come under the role of the user and commands stand in a code block of the answer. What `extra`
repeats (raw output, the whole response of the model) is not looked at, apart from its time. The format names no
session inside: it is named by its source, anchors are ordinals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_time, text_of
from backfill.sources.document import fields
from backfill.sources.jsonl import Decoder
from backfill.sources.swe_agent import tool_uses
from backfill.sources.typed import user_acts

_OPENED = frozenset(("messages",))
_INFO = re.compile(rb'\A\s*\{\s*"info"\s*:\s*\{')
_RUN = re.compile(rb'"(?:mini_version|model_stats|exit_status|agent_type)"\s*:')
_MESSAGES = re.compile(rb'"messages"\s*:\s*\[\s*\{')
_LIST = re.compile(rb'\A\s*\[\s*\{\s*"role"\s*:\s*"system"')
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
# What the interactive agent puts before words that a person typed between two steps.
_TYPED = ("Interrupted by user", "Command not executed. The user rejected", "The user added a new task")
_ROLES = frozenset(("system", "user", "assistant", "tool", "exit"))


class _Extra(msgspec.Struct, gc=False, frozen=True):
    timestamp: Any = None
    exception_str: Any = None


class _Named(msgspec.Struct, gc=False, frozen=True):
    cwd: Any = None
    model_name: Any = None


class _Config(msgspec.Struct, gc=False, frozen=True):
    environment: _Named = _Named()
    model: _Named = _Named()


class _Entry(msgspec.Struct, gc=False):
    """A message, or the `info` of the run."""

    role: str | None = None
    content: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    extra: _Extra = _Extra()
    config: _Config = _Config()


class MiniSweAgentReader:
    """Reads the trajectories of mini-swe-agent."""

    name = "mini_swe_agent"
    version = 1

    def claims(self, head: Head) -> bool:
        """By `info` about a run before the messages, or by the marks of its command blocks and results in a list."""
        raw = head.raw
        if _INFO.match(raw):
            return _RUN.search(raw) is not None and _MESSAGES.search(raw) is not None
        blocks = b"```mswea_bash_command" in raw or b"```bash" in raw
        return _LIST.match(raw) is not None and blocks and b'"<returncode>' in raw

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        decoder = Decoder(_Entry, _lenient, _is_message, unit)
        run = _Run()
        cwd = model = ""
        for key, value in fields(unit, _OPENED):
            if key not in ("", "messages"):
                if key == "info" and not value.too_long:
                    for _, info, _ in decoder.read((value,)):
                        if info is not None:
                            cwd, model = _text(info.config.environment.cwd), _text(info.config.model.model_name)
                yield Record(value.start, value.end, [Skip("meta")])
                continue
            for piece, entry, acts in decoder.read((value,)):
                if entry is None:
                    yield Record(piece.start, piece.end, acts)
                    continue
                record = Record(piece.start, piece.end, run.acts(entry), unit.source, cwd=cwd, model=model)
                record.at, record.tz_assumed = parse_time(entry.extra.timestamp, unit.assume_tz)
                yield record


class _Run:
    """How far a run is: the task until the agent answers, then steps whose result may name no call."""

    def __init__(self) -> None:
        self._answered = False
        self._steps = 0
        self._call = ""

    def acts(self, entry: _Entry) -> list[Act]:
        text = text_of(entry.content)
        if entry.role == "assistant":
            self._answered = True
            return self._answer(entry, text)
        if entry.role == "tool":
            return [ToolResult(entry.tool_call_id or self._call, text)]
        if entry.role == "user":
            typed = not self._answered or text.startswith(_TYPED)
            return user_acts(text) if typed else [ToolResult(self._call, text)]
        if entry.role == "exit":
            failed = entry.extra.exception_str or not text or not self._answered
            return [Skip("api_error")] if failed else [ToolResult(self._call, text)]
        return [Skip("system" if entry.role == "system" else "meta")]

    def _answer(self, entry: _Entry, text: str) -> list[Act]:
        thought = text_of(entry.reasoning_content)
        acts: list[Act] = [Thinking(thought)] if thought else []
        acts.append(AgentText(text))
        self._steps += 1
        self._call = f"step {self._steps}"
        calls = list(tool_uses(entry.tool_calls))
        if calls:
            self._call = calls[-1].call_id
        elif command := _COMMAND.search(text):
            calls = [ToolUse(self._call, "bash", {"command": command[1]})]
        return acts + calls


def _is_message(entry: _Entry) -> bool:
    return entry.role in _ROLES


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lenient(value: Any) -> _Entry | None:
    """An entry of any JSON value: fields of an unexpected type are left out."""
    if not isinstance(value, dict):
        return None
    entry = _Entry(
        content=value.get("content"),
        reasoning_content=value.get("reasoning_content"),
        tool_calls=value.get("tool_calls"),
    )
    for name in ("role", "tool_call_id"):
        if isinstance(value.get(name), str):
            setattr(entry, name, value[name])
    extra = value.get("extra")
    if isinstance(extra, dict):
        entry.extra = _Extra(extra.get("timestamp"), extra.get("exception_str"))
    return entry
