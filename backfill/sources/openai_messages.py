"""Messages in the shape of OpenAI's chat API: role, content, tool_calls.

Reads JSONL with one message or one conversation (`messages`, `traj`, `messages_display`) per line, and JSON documents:
an array of messages or of conversations, or one conversation. The format has no session ids of its own: they are made
of the source path, `#k` for the k-th conversation from 0. Deliberately absent: message ids as identity; exports repeat
them from one conversation to the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.segment import OWN_MARKER
from backfill.sources.base import Head, Unit, parse_arguments, parse_time, text_of
from backfill.sources.jsonl import Decoder, Line, elements, lines, loads
from backfill.sources.typed import merge_prompts, user_acts

_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_CONVERSATIONS = ("messages", "traj")
# Keys of formats that speak in roles too but have readers, and meanings, of their own.
_FOREIGN = frozenset((
    "type", "uuid", "sessionId", "parentUuid", "parentId", "ts", "projectHash", "platform", "session_start",
    "payload", "trajectory", "trajectory_format", "chat_messages", "mapping", "message",
))  # fmt: skip
_DISPLAY = re.compile(rb'"messages_display"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_DISPLAY_ROLE = re.compile(rb"\\n(user|assistant|tool|system): ")
_ARRAY = re.compile(rb'\A\s*\[|"(?:messages|traj)"\s*:\s*\[')
_DISPLAY_FIRST = re.compile(rb"(user|assistant|tool|system): ")


class _Entry(msgspec.Struct, gc=False):
    """A message, or a conversation with its messages still raw."""

    role: str | None = None
    content: Any = None
    tool_calls: Any = None
    function_call: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    timestamp: Any = None
    created_at: Any = None
    created: Any = None
    model: Any = None
    title: Any = None
    messages: list[msgspec.Raw] | None = None
    traj: list[msgspec.Raw] | None = None
    messages_display: str | None = None
    loose: bool = False  # holds messages, in a shape that was not expected


_decode = msgspec.json.Decoder(_Entry).decode


class OpenAIMessagesReader:
    """Reads chat messages; a generic format, so it is asked after all others."""

    name = "openai_messages"
    version = 1

    def claims(self, head: Head) -> bool:
        """By the first value: a message with a role, or a conversation of such messages."""
        if head.objects:
            return _is_message(head.objects[0]) or _is_conversation(head.objects[0])
        begins = head.raw[:4096]
        return not head.complete_lines and (
            re.search(rb'(?<!\\)"role"\s*:\s*"(?:system|user|assistant|tool|developer)"', begins) is not None
            and b'"content"' in head.raw
            and re.search(rb'(?<!\\)"(?:parentUuid|uuid|ts|info|mapping|payload|sessionId)"\s*:', begins) is None
        )

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        decoder = Decoder(_Entry, _lenient, _is_known, unit)
        conversations = 0
        for piece, entry, acts in decoder.read(elements(unit) if _is_document(unit.head) else lines(unit)):
            if entry is None:
                yield Record(piece.start, piece.end, acts)
            elif entry.messages_display is not None:
                yield from _displayed(piece, entry, f"{unit.source}#{conversations}")
                conversations += 1
            elif entry.loose or entry.messages is not None or entry.traj is not None:
                yield from _conversation(piece, entry, f"{unit.source}#{conversations}", unit)
                conversations += 1
            else:
                yield _message(piece.start, piece.end, entry, unit.source, unit.assume_tz)


def _is_document(head: bytes) -> bool:
    """Whether the unit is one JSON document rather than a value per line."""
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if body[:1] == b"[":
        return True
    line, ended, _ = body.partition(b"\n")
    return (bool(ended) and line.rstrip() in (b"{", b"")) or line.rstrip().endswith((b"[", b"{", b","))


def _conversation(piece: Line, entry: _Entry, session: str, unit: Unit) -> Iterator[Record]:
    """The messages of one conversation, each with its own bytes of the line."""
    title = entry.title if isinstance(entry.title, str) else ""
    model = entry.model if isinstance(entry.model, str) else ""
    ranges = list(_loose_ranges(piece.data) if entry.loose else _raw_ranges(piece.data, entry))
    if not ranges:
        yield Record(piece.start, piece.end, [Skip("empty")])
    for start, end in ranges:
        message = _decoded(piece.data[start:end])
        if message is None:
            yield Record(piece.start + start, piece.start + end, [Skip("empty")], session)
            continue
        record = _message(piece.start + start, piece.start + end, message, session, unit.assume_tz)
        record.model = record.model or model
        if title:
            record.acts.insert(0, Titled(title))
            title = ""
        yield record


def _raw_ranges(data: bytes, entry: _Entry) -> Iterator[tuple[int, int]]:
    """Where the messages of a well-formed conversation stand in it."""
    at = 0
    for raw in entry.messages if entry.messages is not None else entry.traj or ():
        body = bytes(raw)
        start = data.find(body, at)
        at = start + len(body)
        yield start, at


def _loose_ranges(data: bytes) -> Iterator[tuple[int, int]]:
    """The same for a bare array or broken text; in Latin-1, where one character is one byte."""
    begin = _ARRAY.search(data)
    if begin is None:
        return
    text = data.decode("latin-1")
    decoder = json.JSONDecoder(strict=False)
    at = begin.end()
    while True:
        while text[at : at + 1] in (" ", "\t", "\r", "\n", ","):
            at += 1
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield at, end
        at = end


def _decoded(data: bytes) -> _Entry | None:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(loads(data)[0])


def _displayed(piece: Line, entry: _Entry, session: str) -> Iterator[Record]:
    """The turns of a conversation that is kept as one text, `role: text` per line."""
    field = _DISPLAY.search(piece.data)
    turns = _display_turns(field[1]) if field else []
    if field is None or not turns:
        yield Record(piece.start, piece.end, [Skip("empty")])
        return
    offset = piece.start + field.start(1)
    ends = [turn.start() for turn in turns[1:]] + [len(field[1])]
    for turn, end in zip(turns, ends, strict=True):
        role = turn[1].decode()
        text = loads(b'"' + field[1][turn.end() : end] + b'"')[0]
        shown = _Entry(role=role, content=None if role == "assistant" and text.strip() == "None" else text)
        yield _message(offset + turn.start(), offset + end, shown, session, "UTC")


def _display_turns(text: bytes) -> list[re.Match[bytes]]:
    """Where turns begin in a JSON-escaped text: at an escaped line break that is not an escaped backslash and an n."""
    first = _DISPLAY_FIRST.match(text)
    if first is None:
        return []
    turns = [first]
    for match in _DISPLAY_ROLE.finditer(text):
        before = text[: match.start()]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            turns.append(match)
    return turns


def _message(start: int, end: int, entry: _Entry, session: str, assume_tz: str) -> Record:
    record = Record(start, end, _acts(entry), session)
    for value in (entry.timestamp, entry.created_at, entry.created):
        if value is not None:
            record.at, record.tz_assumed = parse_time(value, assume_tz)
            break
    if isinstance(entry.model, str):
        record.model = entry.model
    return record


def _acts(entry: _Entry) -> list[Act]:
    role = entry.role
    if role == "assistant":
        return _assistant_acts(entry)
    if role == "user":
        return _user_acts(entry.content)
    if role in ("tool", "function"):
        return [ToolResult(entry.tool_call_id or entry.name or "", text_of(entry.content))]
    if role in ("system", "developer"):
        text = text_of(entry.content)
        return [Prompt(text)] if text.startswith(OWN_MARKER) else [Skip("system")]
    return [Skip("meta" if role else "empty")]


def _user_acts(content: Any) -> list[Act]:
    if not isinstance(content, list):
        return user_acts(text_of(content))
    acts: list[Act] = []
    typed: list[Act] = []
    images = False
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else "text"
        if kind == "tool_result":
            acts.append(ToolResult(str(block.get("tool_use_id") or ""), text_of(block.get("content"))))
        elif kind in ("text", "input_text"):
            typed += user_acts(text_of([block]))
        else:
            images = True
    acts += merge_prompts(typed)
    if not acts:
        acts.append(Prompt("", unanswered="empty") if images else Skip("empty"))
    return acts


def _assistant_acts(entry: _Entry) -> list[Act]:
    acts: list[Act] = []
    thought = text_of(entry.reasoning_content) or text_of(entry.reasoning)
    if thought:
        acts.append(Thinking(thought))
    if isinstance(entry.content, list):
        acts += [act for block in entry.content for act in _assistant_block(block)]
    else:
        acts.append(AgentText(text_of(entry.content)))
    for call in entry.tool_calls if isinstance(entry.tool_calls, list) else ():
        if isinstance(call, dict):
            acts.append(_tool_use(call.get("id"), call.get("function") or call.get("custom") or call))
    if isinstance(entry.function_call, dict):
        acts.append(_tool_use(entry.function_call.get("name"), entry.function_call))
    return acts or [AgentText("")]


def _assistant_block(block: Any) -> list[Act]:
    kind = block.get("type") if isinstance(block, dict) else "text"
    if kind == "tool_use":
        return [_tool_use(block.get("id"), {"name": block.get("name"), "arguments": block.get("input")})]
    if kind in ("thinking", "reasoning"):
        return [Thinking(text_of(block.get("thinking") or block.get("text")))]
    if kind == "refusal":
        return [AgentText(text_of(block.get("refusal")))]
    return [AgentText(text_of([block]))]


def _tool_use(call_id: Any, function: Any) -> ToolUse:
    named = function if isinstance(function, dict) else {}
    arguments = named.get("arguments", named.get("input"))
    name = named.get("name")
    return ToolUse(
        call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", parse_arguments(arguments)
    )


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and value["role"] in _ROLES
        and ("content" in value or "tool_calls" in value)
        and not (_FOREIGN & value.keys() - ({"type"} if value.get("type") == "message" else set()))
    )


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("messages_display"), str):
        return True
    for key in _CONVERSATIONS:
        messages = value.get(key)
        if isinstance(messages, list) and messages:
            if key == "messages" and (_FOREIGN | {"info", "session_id"}) & value.keys():
                return False
            return all(_is_message(message) for message in messages[:3])
    return False


def _is_known(entry: _Entry) -> bool:
    return entry.role in _ROLES or entry.loose


def _lenient(value: Any) -> _Entry | None:
    """An entry of any JSON value: fields of an unexpected type are left out."""
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        return None
    entry = _Entry()
    for name in ("role", "tool_call_id", "name", "messages_display"):
        if isinstance(value.get(name), str):
            setattr(entry, name, value[name])
    for name in (
        "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "timestamp", "created_at",
        "created", "model", "title",
    ):  # fmt: skip
        setattr(entry, name, value.get(name))
    entry.loose = any(isinstance(value.get(name), list) for name in _CONVERSATIONS)
    return entry
