"""ShareGPT conversations: `{"id": ..., "conversations": [{"from": ..., "value": ...}]}`.

Reads JSONL with one conversation per line and JSON documents (an array of conversations, or one), streamed. The format
has neither message ids nor times: the anchor is the message's ordinal. A session's id is the conversation's where it
is the only one of that name so far, else the source path and `#k`, k counting from 0. Deliberately absent: `bbox` and
other grounding data beside the text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, ToolResult, ToolUse
from backfill.segment import OWN_MARKER
from backfill.sources.base import Head, Unit, parse_arguments, text_of
from backfill.sources.jsonl import Decoder, Line, elements, loads
from backfill.sources.typed import user_acts

_CLAIM = re.compile(rb'"conversations?"\s*:\s*\[\s*\{[^{}]{0,400}?"(?:from|value)"\s*:', re.DOTALL)
_TYPED = frozenset(("human", "user"))
_SPOKEN = frozenset(("gpt", "assistant", "chatgpt", "bing", "bard", "model"))
_CALLS = frozenset(("function_call", "tool_call"))
_RESULTS = frozenset(("observation", "tool", "function_response", "tool_response"))


class _Conversation(msgspec.Struct, gc=False):
    """A conversation with its messages still raw."""

    id: Any = None
    title: Any = None
    conversations: list[msgspec.Raw] | None = None
    conversation: list[msgspec.Raw] | None = None


class _Message(msgspec.Struct, gc=False):
    sender: Any = msgspec.field(default=None, name="from")
    value: Any = None


_message = msgspec.json.Decoder(_Message).decode


class ShareGPTReader:
    """Reads ShareGPT's conversations."""

    name = "sharegpt"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a list of conversations whose messages have a sender (`from`) and a `value`."""
        begins = head.raw.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        found = _CLAIM.search(head.raw) if begins in (b"[", b"{") else None
        return found is not None and b'"from"' in head.raw and b'"value"' in head.raw

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        decoder = Decoder(_Conversation, _lenient, lambda c: bool(_messages(c)), unit)
        seen: set[str] = set()
        for n, (piece, conversation, acts) in enumerate(decoder.read(elements(unit))):
            if conversation is None or not _messages(conversation):
                yield Record(piece.start, piece.end, acts or [Skip("empty")])
                continue
            named = conversation.id
            session = named if isinstance(named, str) and named and named not in seen else f"{unit.source}#{n}"
            seen.add(session)
            yield from _conversation(piece, conversation, session)


def _messages(conversation: _Conversation) -> list[msgspec.Raw]:
    return conversation.conversations or conversation.conversation or []


def _conversation(piece: Line, conversation: _Conversation, session: str) -> Iterator[Record]:
    at = 0
    waiting: deque[str] = deque()  # calls without a result yet: they have no ids, so they pair by order
    for raw in _messages(conversation):
        body = bytes(raw)
        found = piece.data.find(body, at)
        start = at if found < 0 else found
        at = start if found < 0 else found + len(body)
        acts = _acts(_decoded(body))
        for act in acts:
            if isinstance(act, ToolUse):
                act.call_id = str(start)
                waiting.append(act.call_id)
            elif isinstance(act, ToolResult) and waiting:
                act.call_id = waiting.popleft()
        yield Record(piece.start + start, piece.start + at, acts, session)


def _acts(message: _Message) -> list[Act]:
    text = text_of(message.value)
    sender = message.sender if isinstance(message.sender, str) else None
    if sender in _TYPED:
        return user_acts(text)
    if sender in _SPOKEN:
        return [AgentText(text)]
    if sender in _CALLS:
        return [_call(text)]
    if sender in _RESULTS:
        return [ToolResult("", text)]
    if text.startswith(OWN_MARKER):
        return [Prompt(text)]
    return [Skip("system" if sender == "system" else "meta" if sender is not None else "empty")]


def _call(text: str) -> ToolUse:
    """A call that is JSON with a name and arguments, or text."""
    call = parse_arguments(text)
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        return ToolUse("", call["name"], parse_arguments(call.get("arguments", call.get("parameters"))))
    return ToolUse("", "", call)


def _decoded(body: bytes) -> _Message:
    try:
        return _message(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value, _ = loads(body)
    except (ValueError, RecursionError):
        return _Message()
    return _Message(value.get("from"), value.get("value")) if isinstance(value, dict) else _Message()


def _lenient(value: Any) -> _Conversation | None:
    """A conversation of JSON that is not quite as expected; its messages are written anew where it had to be mended."""
    if not isinstance(value, dict):
        return None
    found = value.get("conversations") or value.get("conversation")
    messages = [msgspec.Raw(msgspec.json.encode(m)) for m in found] if isinstance(found, list) else []
    return _Conversation(value.get("id"), value.get("title"), messages)
