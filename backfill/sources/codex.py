"""Codex CLI rollouts: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, one `{timestamp, type, payload}` per line.

Everything is written twice: `response_item` is what is read, `event_msg` repeats it for the screen; an event that no
item repeats counts as what it says. Old rollouts are a header line and bare items. Messages have no ids: anchors are
ordinals, of the event where a prompt's event comes before its item. Deliberately absent: `compacted` histories, which
repeat what stands before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Compacted, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.doubles import COPY, Doubles, Held
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, readable, string
from backfill.sources.typed import user_acts

_WRAPPED = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_META = frozenset(("turn_context", "world_state", "inter_agent_communication_metadata"))
_CALLS = frozenset((
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "tool_call",
    "image_generation_call", "mcp_tool_call",
))  # fmt: skip
_RESULTS = frozenset((
    "function_call_output", "custom_tool_call_output", "tool_search_output", "tool_result", "function_result",
    "local_shell_call_output", "mcp_tool_call_output",
))  # fmt: skip
_BARE = frozenset(("message", "reasoning")) | _CALLS | _RESULTS
_FOREIGN = frozenset(("uuid", "parentId", "parentUuid", "sessionId", "session_id", "seq", "ts"))
# Events that repeat items or results of tools; those of messages are paired with their items.
_COPIES = ("agent_reasoning", "exec_command_", "patch_apply_", "mcp_tool_call_", "web_search_", "dynamic_tool_call_",
           "image_generation_", "view_image_", "item_", "raw_response_item")  # fmt: skip
_IDE_CONTEXT, _IDE_REQUEST = "# Context from my IDE setup:", "## My request for Codex:"


class _Item(msgspec.Struct, gc=False):
    """A payload, or a bare item of an old rollout."""

    type: str | None = None
    role: str | None = None
    content: Any = None
    message: Any = None
    name: Any = None
    arguments: Any = None
    function: Any = None
    call_id: Any = None
    input: Any = None
    action: Any = None
    output: Any = None
    result: Any = None
    tools: Any = None
    summary: Any = None
    id: Any = None
    session_id: Any = None
    cwd: Any = None
    model: Any = None
    git: Any = None
    source: Any = None
    forked_from_id: Any = None
    thread_name: Any = None
    timestamp: Any = None
    created_at: Any = None
    record_type: Any = None


class _Line(msgspec.Struct, gc=False):
    """The envelope of a line."""

    timestamp: Any = None
    type: str | None = None
    payload: _Item | None = None


_bare = msgspec.json.Decoder(_Item)
_lenient_item = loosely(_Item)


class CodexReader(LineByLine):
    """Reads the rollouts of the Codex CLI."""

    name = "codex"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Rollout, Doubles, Held)

    def claims(self, head: Head) -> bool:
        """By a line with a payload of a known type, by the header of an old rollout, or by its bare items."""
        first = head.objects[0] if head.objects else {}
        if any(
            one_of(value.get("type"), _WRAPPED) and isinstance(value.get("payload"), dict) for value in head.objects[:5]
        ):
            return True
        if {"id", "timestamp", "instructions"} <= first.keys() and "messages" not in first:
            return True
        if (
            first
            and all("role" in v or one_of(v.get("type"), _BARE) for v in head.objects[:3])
            and not first.keys() & _FOREIGN
        ):
            bare = [value for value in head.objects if one_of(value.get("type"), _BARE - {"message"})]
            return any(value.keys() & {"call_id", "function", "summary", "result"} for value in bare)
        begins = head.raw[:200]
        return not head.complete_lines and b'"payload"' in begins and b'"session_meta"' in begins

    def begin(self, unit: Unit) -> _Rollout:
        """See `LineByLine`."""
        return _Rollout(unit)

    def go_on(self, rollout: _Rollout, unit: Unit) -> Iterator[Record]:
        """The records of the lines from where the unit has been read to, but for events that wait for their item."""
        decoder = Decoder(_Line, _lenient, _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield from rollout.doubles.other(Record(piece.start, piece.end, acts))
                continue
            item = line.payload
            if item is None:
                item = _bare_item(piece.data)
                yield from rollout.item(piece.start, piece.end, item, item.timestamp or item.created_at)
            else:
                yield from rollout.line(piece.start, piece.end, line, item)

    def end(self, rollout: _Rollout) -> Iterator[Record]:
        """What waited."""
        return rollout.doubles.finish()


class _Rollout:
    """What must be remembered from line to line."""

    def __init__(self, unit: Unit) -> None:
        self.doubles = Doubles()
        self._unit = unit
        self._session = ""
        self._parent = ""
        self._n = 0
        self._unnamed = ""

    def line(self, start: int, end: int, line: _Line, payload: _Item) -> Iterator[Record]:
        """A line with a payload."""
        if line.type == "response_item":
            return self.item(start, end, payload, line.timestamp)
        if line.type == "session_meta":
            self._begin(payload)
        record = self._record(start, end, [Skip("meta")], line.timestamp)
        if line.type == "event_msg":
            return self._event(record, payload)
        if line.type == "compacted":
            record.acts = [Compacted(), Skip("compact_summary")]
        elif line.type == "session_meta" or line.type in _META:
            record.cwd = string(payload.cwd)
            record.model = string(payload.model)
            record.branch = string(mapping(payload.git).get("branch"))
        else:
            record.acts = [Skip("unknown_type")]
        return self.doubles.other(record)

    def item(self, start: int, end: int, item: _Item, timestamp: Any) -> Iterator[Record]:
        """An item of the conversation."""
        kind = item.type or ("message" if item.role else None)
        if kind is None and item.id and not self._session:
            self._begin(item)
        record = self._record(start, end, [], timestamp)
        if kind == "message":
            text = _message_text(item)
            if item.role == "user":
                record.acts = [act for part in _typed_parts(item) for act in user_acts(_asked(part))]
                record.acts = _one_prompt(record.acts) or [Prompt("", unanswered="empty")]
                if any(isinstance(act, Prompt) and not act.unanswered for act in record.acts):
                    return self.doubles.item(record, "user", text)
                return self.doubles.other(record)
            if item.role == "assistant":
                record.acts = [AgentText(text)]
                record.model = string(item.model)
                return self.doubles.item(record, "agent", text)
            record.acts = [Skip("system")]
            return self.doubles.other(record)
        if not item.call_id and kind in _CALLS | _RESULTS:
            # old rollouts name no call: a result belongs to the call before it
            self._unnamed = f"#{self._n}" if kind in _CALLS and not item.id else self._unnamed
            item.call_id = item.id if kind in _CALLS and item.id else self._unnamed
        record.acts = _item_acts(str(kind), item)
        if not isinstance(record.acts[0], Skip):
            self.doubles.turn("user")
        return self.doubles.other(record)

    def _event(self, record: Record, payload: _Item) -> Iterator[Record]:
        kind, text = string(payload.type), string(payload.message)
        if kind == "user_message":
            record.acts = user_acts(_asked(text))
            if isinstance(record.acts[0], Prompt):
                return self.doubles.event(record, "user", text, self._n)
            record.acts = [Skip(COPY)]
        elif kind == "agent_message" and text:
            record.acts = [AgentText(text)]
            return self.doubles.event(record, "agent", text, self._n)
        elif kind == "thread_name_updated" and string(payload.thread_name):
            record.acts = [Titled(payload.thread_name, given=True)]
        elif kind.startswith(_COPIES):
            record.acts = [Skip(COPY)]
        elif kind == "turn_aborted":
            record.acts = [Skip("interrupted")]
        elif kind in ("error", "stream_error"):
            record.acts = [Skip("api_error")]
        return self.doubles.other(record)

    def _begin(self, meta: _Item) -> None:
        """The first header names the session; a fork repeats its parent's after its own."""
        if self._session:
            return
        self._session = string(meta.id) or string(meta.session_id)
        spawn = mapping(mapping(mapping(meta.source).get("subagent")).get("thread_spawn"))
        parent = string(meta.forked_from_id) or string(spawn.get("parent_thread_id"))
        self._parent = parent if parent != self._session else ""

    def _record(self, start: int, end: int, acts: list[Act], timestamp: Any) -> Record:
        self._session = self._session or self._unit.source
        self._n += 1
        record = Record(start, end, acts, self._session, self._parent)
        if timestamp is not None:
            record.at, record.tz_assumed = parse_time(timestamp, self._unit.assume_tz)
        return record


def _item_acts(kind: str, item: _Item) -> list[Act]:
    if kind == "reasoning":
        blocks = [*objects(item.summary), *objects(item.content)]
        return [Thinking("\n\n".join(text for text in (string(block.get("text")) for block in blocks) if text))]
    if kind in _CALLS:
        name = string(item.name) or string(mapping(item.function).get("name")) or kind.removesuffix("_call")
        arguments = next((a for a in (item.arguments, item.input, item.action) if a is not None), None)
        return [ToolUse(string(item.call_id), name, parse_arguments(arguments))]
    if kind in _RESULTS:
        output = next((o for o in (item.output, item.result, item.tools) if o is not None), None)
        return [ToolResult(string(item.call_id), _output(output))]
    if kind == "agent_message":
        return [Skip("injected")]  # from another agent; its own answers are messages
    return [Skip("meta" if kind in ("ghost_snapshot", "None", "compaction", "context_compaction") else "unknown_type")]


def _output(output: Any) -> str:
    """The text of a result; often JSON text of `{output, metadata}`."""
    if isinstance(output, str) and output.startswith('{"output":'):
        output = parse_arguments(output)
    if isinstance(output, dict) and isinstance(output.get("output", output.get("stdout")), str):
        errors = string(output.get("stderr"))
        return string(output.get("output", output.get("stdout"))) + (f"\n{errors}" if errors else "")
    return readable(output)


def _typed_parts(item: _Item) -> list[str]:
    content = item.content if item.content is not None else item.message
    if isinstance(content, str):
        return [content]
    texts = [string(block.get("text")) for block in objects(content)]
    return [t for t in texts if t and not (t.startswith(("<image", "</image")) and t.endswith(">") and "\n" not in t)]


def _message_text(item: _Item) -> str:
    return "\n".join(_typed_parts(item))


def _asked(text: str) -> str:
    """What follows the context that an editor puts before a prompt."""
    if text.lstrip().startswith(_IDE_CONTEXT) and _IDE_REQUEST in text:
        return text.partition(_IDE_REQUEST)[2].strip()
    return text


def _one_prompt(acts: list[Act]) -> list[Act]:
    typed = [act.text for act in acts if isinstance(act, Prompt) and not act.unanswered]
    return [Prompt("\n\n".join(typed))] if typed else acts


def _bare_item(data: bytes) -> _Item:
    try:
        return _bare.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Item()


def _is_record(line: _Line) -> bool:
    return line.payload is not None and line.type in _WRAPPED


_lenient_line = loosely(_Line)


def _lenient(value: Any) -> _Line | None:
    line = _lenient_line(value)
    if line is not None and line.payload is None and isinstance(value.get("payload"), dict):
        line.payload = _lenient_item(value["payload"])
    return line
