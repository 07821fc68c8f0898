"""SWE-agent's `.traj` files: one JSON object with the run of one task.

`history` is read; `trajectory` holds the same steps again and is skipped, as are demonstrations, which are another
task's run shown to the model. Observations come under the role of the user: only messages before the first answer are
the task. The format has no ids and no times: the session is named by its source, anchors are ordinals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, text_of
from backfill.sources.document import fields
from backfill.sources.jsonl import Decoder
from backfill.sources.typed import user_acts

_OPENED = frozenset(("history", "trajectory"))
_HISTORY = re.compile(rb'"history"\s*:\s*\[\s*\{[^{}\[\]]*?"(?:role|agent|message_type)"\s*:')
_TRAJECTORY = re.compile(rb'"trajectory"\s*:\s*\[\s*\{\s*"(?:action|observation|response|thought|state)"\s*:')
_OWN_COMMAND = re.compile(r"""\s*(open|create)\s+["']?([^\s"']+)["']?(?:\s+\d+)?\s*\Z""")
_MESSAGE_FIELDS = ("role", "action", "agent")


class Message(msgspec.Struct, gc=False):
    """A message of a run in the shape of OpenAI's chat API, with the fields that SWE-agent adds."""

    role: str | None = None
    content: Any = None
    action: str | None = None
    agent: str | None = None
    is_demo: Any = None
    tool_calls: Any = None
    tool_call_ids: Any = None
    thinking_blocks: Any = None


class SweAgentReader:
    """Reads the trajectories of SWE-agent."""

    name = "swe_agent"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a history whose messages name their agent, or a trajectory of actions and observations."""
        raw = head.raw
        if raw.lstrip()[:1] != b"{" or (_HISTORY.search(raw) is None and _TRAJECTORY.search(raw) is None):
            return False
        return (b'"agent"' in raw and b'"role"' in raw) or (b'"observation"' in raw and b'"thought"' in raw)

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message and per repeated step."""
        decoder = Decoder(Message, lenient, is_message, unit)
        run = Run()
        for key, value in fields(unit, _OPENED):
            if key != "history":
                reason = "repeated" if key == "trajectory" else "meta"
                yield Record(value.start, value.end, [Skip(reason)])
                continue
            for piece, message, acts in decoder.read((value,)):
                if message is None:
                    yield Record(piece.start, piece.end, acts)
                elif message.is_demo:
                    yield Record(piece.start, piece.end, [Skip("demonstration")])
                else:
                    yield Record(piece.start, piece.end, run.acts(message), unit.source)


class Run:
    """How far a run is: the task until the agent answers, then steps whose result names no call."""

    def __init__(self) -> None:
        self._answered = False
        self._steps = 0
        self._call = ""

    def acts(self, message: Message) -> list[Act]:
        """What happened in one message."""
        text = text_of(message.content)
        if message.role == "assistant":
            self._answered = True
            return self._answer(message, text)
        if message.role == "tool" or (message.role == "user" and self._answered):
            ids = message.tool_call_ids
            named = ids[0] if isinstance(ids, list) and ids and isinstance(ids[0], str) else self._call
            return [ToolResult(named, text)]
        if message.role == "user":
            return user_acts(text)
        return [Skip("system" if message.role == "system" else "meta")]

    def _answer(self, message: Message, text: str) -> list[Act]:
        acts: list[Act] = [Thinking(thought) for thought in thoughts(message.thinking_blocks)]
        acts.append(AgentText(text))
        self._steps += 1
        self._call = f"step {self._steps}"
        calls = list(tool_uses(message.tool_calls))
        if calls:
            self._call = calls[0].call_id
        elif message.action and message.action.strip():
            calls = [_command(self._call, message.action)]
        return acts + calls


def _command(call_id: str, action: str) -> ToolUse:
    """A call in text mode: one of the agent's own commands on a file, else a shell command."""
    own = _OWN_COMMAND.match(action)
    if own is None:
        return ToolUse(call_id, "bash", {"command": action})
    return ToolUse(call_id, own[1], {"command": action, "path": own[2]})


def tool_uses(calls: Any) -> Iterator[ToolUse]:
    """The calls of a message's `tool_calls`."""
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            name, call_id = function.get("name"), call.get("id")
            arguments = parse_arguments(function.get("arguments"))
            yield ToolUse(call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", arguments)


def thoughts(blocks: Any) -> Iterator[str]:
    """The texts of thinking blocks."""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("thinking"), str):
            yield block["thinking"]


def is_message(message: Message) -> bool:
    """Whether an object on a torn line is a message."""
    return message.role is not None


def lenient(value: Any) -> Message | None:
    """A message of any JSON value: fields of an unexpected type are left out."""
    if not isinstance(value, dict):
        return None
    message = Message(
        content=value.get("content"),
        is_demo=value.get("is_demo"),
        tool_calls=value.get("tool_calls"),
        tool_call_ids=value.get("tool_call_ids"),
        thinking_blocks=value.get("thinking_blocks"),
    )
    for name in _MESSAGE_FIELDS:
        if isinstance(value.get(name), str):
            setattr(message, name, value[name])
    return message
