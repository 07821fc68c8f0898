"""OpenHands: event streams of version 0 (actions and observations) and of the SDK (events with a `kind`).

Reads an array of events, events line by line, one event, and evaluation output with one run per line whose `history`
holds events or pairs of them. Where no session is named it is made of the source, `#k` for the k-th run from 0; anchors
are the SDK's event ids, else ordinals. Times have no zone. Deliberately absent: what the environment tells itself
(states, recalled notes, condensation).
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time, text_of
from backfill.sources.document import fields
from backfill.sources.jsonl import Decoder, elements, lines, objects_in
from backfill.sources.typed import user_acts

_SOURCES = frozenset(("agent", "user", "environment", "hook"))
_OPENED = frozenset(("history",))
_RUN = re.compile(rb'\A\s*\{\s*"instance_id"\s*:')
_RUN_KEYS = (b'"test_result"', b'"agent_class"', b'"instruction"')
# What the evaluation harness answers where a person would.
_HARNESS = ("Please continue working on the task on whatever approach you think is suitable",)
_META_ACTIONS = frozenset((
    "recall", "change_agent_state", "null", "condensation", "condensation_request", "start", "pause", "resume",
))  # fmt: skip
_META_OBSERVATIONS = frozenset(("null", "agent_state_changed", "recall", "condense", "think", "success"))
_NOT_ARGUMENTS = frozenset((
    "thought", "is_confirmed", "confirmation_state", "security_risk", "hidden", "blocking", "wait_for_response",
))  # fmt: skip


class _Event(msgspec.Struct, gc=False):
    """An event of either version, or a run with its history."""

    id: Any = None
    timestamp: Any = None
    source: str | None = None
    kind: str | None = None
    message: Any = None
    # version 0
    action: Any = None
    observation: Any = None
    args: Any = None
    content: Any = None
    cause: Any = None
    tool_call_metadata: Any = None
    # the SDK
    llm_message: Any = None
    thought: Any = None
    reasoning_content: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_call: Any = None
    error: Any = None
    rejection_reason: Any = None
    # evaluation output
    instance_id: Any = None
    history: Any = None


class OpenHandsReader:
    """Reads event streams of OpenHands."""

    name = "openhands"
    version = 1
    spans_files = True

    def claims(self, head: Head) -> bool:
        """By the shape of the first event, or of a run of an evaluation."""
        if _RUN.match(head.raw) and any(key in head.raw for key in _RUN_KEYS):
            return b'"history"' in head.raw or not head.complete_lines
        return any(_is_event(value) for value in head.objects[:3])

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per event."""
        decoder = Decoder(_Event, _lenient, _is_known, unit)
        body = unit.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        session = unit.source
        if unit.members:  # the SDK keeps a conversation as CONVERSATION/events/event-NUMBER-ID.json
            pieces, session = elements(unit), unit.source.rpartition("/events/")[0] or unit.source
        elif body[:1] == b"[" or body.partition(b"\n")[0].rstrip() == b"{":
            pieces = elements(unit)
        else:
            pieces = lines(unit)
        runs = 0
        for piece, event, acts in decoder.read(pieces):
            if event is None:
                yield Record(piece.start, piece.end, acts)
            elif isinstance(event.history, list) and event.source is None:
                yield from _run(piece.start, piece.data, f"{unit.source}#{runs}", unit)
                runs += 1
            else:
                yield _record(piece.start, piece.end, event, session, unit.assume_tz)


def _run(offset: int, data: bytes, session: str, unit: Unit) -> Iterator[Record]:
    """The events of one line of evaluation output, each with its own bytes."""
    part = Unit(io.BytesIO(data), unit.source, len(data), unit.assume_tz, hashlib.blake2b())
    decoder = Decoder(_Event, _lenient, _is_known, unit)
    n_events = 0
    for key, value in fields(part, _OPENED):
        if key != "history" or value.too_long:
            yield Record(offset + value.start, offset + value.end, [Skip("meta")])
            continue
        # before 2024-10 an action and its observation stood in a pair
        pair = value.data[:1] == b"["
        inner = [value.piece(*place) for place in objects_in(value.data)] if pair else [value]
        for piece, event, acts in decoder.read(inner):
            n_events += 1
            if event is None:
                yield Record(offset + piece.start, offset + piece.end, acts)
            else:
                yield _record(offset + piece.start, offset + piece.end, event, session, unit.assume_tz)
    if not n_events:
        yield Record(offset, offset + len(data), [Skip("empty")])


def _record(start: int, end: int, event: _Event, session: str, assume_tz: str) -> Record:
    record = Record(start, end, _acts(event), session)
    if event.kind and isinstance(event.id, str):
        record.uuid = event.id
    record.at, record.tz_assumed = parse_time(event.timestamp, assume_tz)
    response = _dict(_dict(event.tool_call_metadata).get("model_response"))
    record.model = _text(response.get("model"))
    return record


def _acts(event: _Event) -> list[Act]:
    if event.kind:
        return _sdk_acts(event)
    if isinstance(event.observation, str):
        return _observation_acts(event)
    if isinstance(event.action, str):
        return _action_acts(event, event.action, _dict(event.args))
    return [Skip("meta")]


# -- version 0 ----------------------------------------------------------------------------------------------------


def _action_acts(event: _Event, action: str, args: dict[str, Any]) -> list[Act]:
    thought = _text(args.get("thought"))
    if action == "message":
        text = _text(args.get("content")) or _text(event.message)
        if event.source == "user":
            return [Skip("injected")] if text.startswith(_HARNESS) else user_acts(text)
        return [AgentText(text)]
    if action == "system":
        return [Skip("system")]
    if action in _META_ACTIONS:
        return [Skip("meta")]
    if event.source == "user":  # typed into the terminal beside the conversation
        return [Skip("command")]
    if action == "think":
        return [Thinking(thought)]
    if action in ("finish", "reject"):
        outputs = _dict(args.get("outputs"))
        said = (args.get("final_thought"), thought, outputs.get("content"), outputs.get("reason"), event.message)
        return [AgentText(next((text for text in said if isinstance(text, str) and text.strip()), ""))]
    name = _text(_dict(event.tool_call_metadata).get("function_name")) or action
    arguments = {key: value for key, value in args.items() if key not in _NOT_ARGUMENTS}
    call = ToolUse(_call_id(event, event.id), name, arguments)
    return [AgentText(thought), call] if thought.strip() else [call]


def _observation_acts(event: _Event) -> list[Act]:
    if event.observation in _META_OBSERVATIONS:
        return [Skip("injected" if event.observation == "recall" else "meta")]
    if event.source == "user" and event.observation != "user_rejected":
        return [Skip("command")]
    text = _text(event.content) or _text(event.message)
    if event.cause is None and not event.tool_call_metadata and event.observation == "error":
        return [Skip("api_error")]
    return [ToolResult(_call_id(event, event.cause), text)]


def _call_id(event: _Event, number: Any) -> str:
    named = _text(_dict(event.tool_call_metadata).get("tool_call_id"))
    return named or (f"event {number}" if isinstance(number, int) and number >= 0 else "")


# -- the SDK ------------------------------------------------------------------------------------------------------


def _sdk_acts(event: _Event) -> list[Act]:
    kind, call_id = event.kind, event.tool_call_id or ""
    if kind == "MessageEvent":
        text = text_of(_dict(event.llm_message).get("content"))
        if event.source == "user":
            return user_acts(text)
        if event.source == "agent":
            thought = text_of(_dict(event.llm_message).get("reasoning_content"))
            return [*([Thinking(thought)] if thought else []), AgentText(text)]
        return [Skip("injected")]
    if kind == "ActionEvent":
        return _sdk_action(event, call_id)
    if kind == "ObservationEvent":
        if event.tool_name in ("think", "finish"):
            return [Skip("meta")]
        observation = _dict(event.observation)
        text = next((found for key in ("content", "output", "error") if (found := text_of(observation.get(key)))), "")
        return [ToolResult(call_id, text)]
    if kind == "AgentErrorEvent":
        return [ToolResult(call_id, _text(event.error))]
    if kind == "UserRejectObservation":
        return [ToolResult(call_id, _text(event.rejection_reason))]
    if kind == "CondensationSummaryEvent":
        return [Skip("compact_summary")]
    return [Skip("system" if kind == "SystemPromptEvent" else "meta")]


def _sdk_action(event: _Event, call_id: str) -> list[Act]:
    action = _dict(event.action)
    reasoning, thought = text_of(event.reasoning_content), text_of(event.thought)
    acts: list[Act] = [Thinking(reasoning)] if reasoning else []
    if thought.strip():
        acts.append(AgentText(thought))
    if event.tool_name == "think":
        return [*acts, Thinking(_text(action.get("thought")))]
    if event.tool_name == "finish":
        return [*acts, AgentText(_text(action.get("message")))]
    call = _dict(event.tool_call)
    arguments = call.get("arguments", _dict(call.get("function")).get("arguments"))
    if arguments is None:
        arguments = {key: value for key, value in action.items() if key != "kind"}
    return [*acts, ToolUse(call_id, event.tool_name or "", parse_arguments(arguments))]


# -- shapes -------------------------------------------------------------------------------------------------------


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict) or "timestamp" not in value:
        return False
    if not isinstance(value.get("source"), str) or value["source"] not in _SOURCES:
        return False
    kind = value.get("kind")
    if isinstance(kind, str):
        return kind.endswith(("Event", "Observation")) or kind in ("Condensation", "CondensationRequest")
    return isinstance(value.get("action", value.get("observation")), str) and not value.keys().isdisjoint(
        ("args", "extras", "content")
    )


def _is_known(event: _Event) -> bool:
    if event.source is None:
        return isinstance(event.history, list)
    return event.source in _SOURCES and bool(event.kind or event.action or event.observation)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lenient(value: Any) -> _Event | None:
    """An event of any JSON value: texts of an unexpected type are left out."""
    if not isinstance(value, dict):
        return None
    event = _Event()
    for name in _Event.__struct_fields__:
        found = value.get(name)
        if name not in ("source", "kind", "tool_name", "tool_call_id") or isinstance(found, str):
            setattr(event, name, found)
    return event
