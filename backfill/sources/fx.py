"""fx checkpoints: one JSON object whose `state.history` holds turns, each with its prompt and its steps.

A record is a prompt, or a step with its calls and results; what follows the steps (the final answer) is one more. The
session is `session_id`, anchors are ordinals, the only times are those of results (`created_at_ms`). Deliberately
absent: `session.json` beside it, which holds no message, and the event log, of which no file was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, elements
from backfill.sources.typed import user_acts


class _Preferences(msgspec.Struct, gc=False, frozen=True):
    model: str = ""


class _State(msgspec.Struct, gc=False, frozen=True):
    workspace_root: str = ""
    preferences: _Preferences = _Preferences()
    history: tuple[msgspec.Raw, ...] = ()


class _Checkpoint(msgspec.Struct, gc=False):
    session_id: str = ""
    state: _State = _State()


class _Execution(msgspec.Struct, gc=False, frozen=True):
    tool_steps: tuple[msgspec.Raw, ...] = ()


class _User(msgspec.Struct, gc=False, frozen=True):
    text: str = ""


class _Turn(msgspec.Struct, gc=False):
    kind: str = ""
    user: _User = _User()
    assistant: Any = None
    execution: _Execution = _Execution()
    tool_call: Any = None


class _Step(msgspec.Struct, gc=False):
    assistant: Any = None
    tool_calls: Any = None
    tool_results: Any = None


_turn = msgspec.json.Decoder(_Turn).decode
_step = msgspec.json.Decoder(_Step).decode


class FxReader:
    """Reads checkpoints of fx."""

    name = "fx"
    version = 1

    def claims(self, head: Head) -> bool:
        """By the fields that a checkpoint begins with."""
        raw = head.raw
        return raw.lstrip()[:1] == b"{" and b'"through_seq"' in raw and b'"session_id"' in raw and b'"state"' in raw

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per prompt, step and final answer."""
        decoder = Decoder(_Checkpoint, _lenient, lambda checkpoint: bool(checkpoint.state.history), unit)
        for piece, checkpoint, acts in decoder.read(elements(unit)):
            if checkpoint is None:
                yield Record(piece.start, piece.end, acts)
                continue
            state, at = checkpoint.state, 0
            for raw in state.history:
                body = bytes(raw)
                start = piece.data.find(body, at)
                at = at if start < 0 else start + len(body)
                for record in _records(piece.start + start, body):
                    if start < 0:  # JSON that had to be mended: nobody knows where the turn stood
                        record.start = record.end = piece.start + at
                    record.session = checkpoint.session_id or unit.source
                    record.cwd, record.model = state.workspace_root, state.preferences.model
                    yield record
            if not state.history:
                yield Record(piece.start, piece.end, [Skip("empty")])


def _records(offset: int, body: bytes) -> Iterator[Record]:
    """The records of one turn; `offset` is where it begins."""
    end = offset + len(body)
    try:
        turn = _turn(body)
    except msgspec.DecodeError:
        yield Record(offset, end, [Skip("unknown")])
        return
    if turn.kind == "compacted_summary":
        yield Record(offset, end, [Skip("compact_summary")])
        return
    prompt = user_acts(turn.user.text)
    last: list[Act] = [AgentText(turn.assistant)] if isinstance(turn.assistant, str) else []
    last += _calls([turn.tool_call])
    if not turn.execution.tool_steps:
        yield Record(offset, end, [*prompt, *last])
        return
    at = max(0, body.find(b'"tool_steps"'))  # the key may be escaped
    yield Record(offset, offset + at, prompt)
    for raw in turn.execution.tool_steps:
        step_body = bytes(raw)
        start = body.find(step_body, at)
        at = start + len(step_body)
        record = Record(offset + start, offset + at, [])
        try:
            record.acts, record.at = _step_acts(_step(step_body))
        except msgspec.DecodeError:
            record.acts = [Skip("unknown")]
        yield record
    if last:
        yield Record(offset + at, end, last)


def _step_acts(step: _Step) -> tuple[list[Act], int | None]:
    acts: list[Act] = [AgentText(step.assistant if isinstance(step.assistant, str) else ""), *_calls(step.tool_calls)]
    at = None
    for result in step.tool_results if isinstance(step.tool_results, list) else ():
        if isinstance(result, dict):
            acts.append(ToolResult(_text(result.get("tool_call_id")), _text(result.get("output"))))
            at = parse_time(result.get("created_at_ms"), "UTC")[0]
    return acts, at


def _calls(calls: Any) -> Iterator[ToolUse]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            arguments = parse_arguments(call.get("arguments_json"))
            yield ToolUse(_text(call.get("id")), _text(call.get("name")), arguments)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lenient(value: Any) -> _Checkpoint | None:
    """A checkpoint of JSON that msgspec refuses (a lone surrogate, a field of another type)."""
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=_Checkpoint)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return _Checkpoint()
