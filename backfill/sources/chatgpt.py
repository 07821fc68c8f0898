"""ChatGPT's data export: `conversations.json`, an array of conversations, each a tree of messages under `mapping`.

Streamed conversation by conversation. The session is `conversation_id`, else `id`, else the source path and `#k`; a
message's id is the anchor. Messages for a tool (`recipient`) are tool calls, those of a tool its results; images and
files are counted, not stored. Deliberately absent: `current_node`; every branch was said, so every branch is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.segment import OWN_MARKER
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, Line, elements, loads
from backfill.sources.tree import Node, name_apart, walk
from backfill.sources.typed import user_acts

_CLAIM = re.compile(rb'"mapping"\s*:\s*\{\s*"[^"]{1,100}"\s*:\s*\{')
_THOUGHTS = ("thoughts", "reasoning_recap")
_CONTEXT = ("user_editable_context", "model_editable_context")


class _Conversation(msgspec.Struct, gc=False):
    """A conversation with its messages still raw."""

    mapping: dict[str, msgspec.Raw] | None = None
    conversation_id: Any = None
    id: Any = None
    title: Any = None


class _Author(msgspec.Struct, gc=False):
    role: str | None = None
    name: str | None = None


class _Message(msgspec.Struct, gc=False):
    author: _Author | None = None
    create_time: Any = None
    content: dict[str, Any] | None = None
    recipient: str | None = None
    metadata: dict[str, Any] | None = None


class _Entry(msgspec.Struct, gc=False):
    """A node of the tree."""

    parent: str | None = None
    children: list[str] | None = None
    message: _Message | None = None


_entry = msgspec.json.Decoder(_Entry).decode


class ChatGPTReader:
    """Reads conversations of ChatGPT's export."""

    name = "chatgpt"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a document with a `mapping` of nodes whose messages have an author."""
        begins = head.raw.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        return begins in (b"[", b"{") and _CLAIM.search(head.raw) is not None and b'"author"' in head.raw

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message, in path order within a conversation."""
        decoder = Decoder(_Conversation, _lenient, lambda c: bool(c.mapping), unit)
        owners: dict[str, str] = {}
        for n, (piece, conversation, acts) in enumerate(decoder.read(elements(unit))):
            if conversation is None or not conversation.mapping:
                yield Record(piece.start, piece.end, acts or [Skip("empty")])
                continue
            named = conversation.conversation_id or conversation.id
            session = named if isinstance(named, str) else f"{unit.source}#{n}"
            yield from _conversation(piece, conversation, session, unit, owners)


def _conversation(
    piece: Line, conversation: _Conversation, session: str, unit: Unit, owners: dict[str, str]
) -> Iterator[Record]:
    nodes: list[Node] = []
    order: dict[str, int] = {}  # as parents list their children
    parents: dict[str, str] = {}
    at = 0
    for key, raw in (conversation.mapping or {}).items():
        body = bytes(raw)
        found = piece.data.find(body, at)
        start = at if found < 0 else found
        at = start if found < 0 else found + len(body)
        entry = _decoded(body)
        for child in entry.children or ():
            order.setdefault(child, len(order))
            parents.setdefault(child, key)
        record = Record(piece.start + start, piece.start + at, _acts(entry.message), session)
        _context(record, entry.message, unit)
        nodes.append(Node(key, entry.parent or "", record))
    for node in nodes:
        node.parent = node.parent or parents.get(node.id, "")
    nodes.sort(key=lambda node: order.get(node.id, -1))
    name_apart(nodes, session, owners)
    title = conversation.title if isinstance(conversation.title, str) else ""
    for record in walk(nodes):
        if title:
            record.acts.insert(0, Titled(title))
            title = ""
        yield record


def _context(record: Record, message: _Message | None, unit: Unit) -> None:
    if message is None:
        return
    record.at, record.tz_assumed = parse_time(message.create_time, unit.assume_tz)
    model = (message.metadata or {}).get("model_slug")
    if isinstance(model, str):
        record.model = model


def _acts(message: _Message | None) -> list[Act]:
    if message is None or message.content is None:
        return [Skip("empty")]
    role = (message.author and message.author.role) or ""
    kind = message.content.get("content_type")
    text, images = _text(message.content)
    if text.startswith(OWN_MARKER):
        return [Prompt(text)]
    if role == "system" or kind in _CONTEXT:
        return [Skip("system")]
    if role == "user":
        if (message.metadata or {}).get("is_visually_hidden_from_conversation") is True:
            return [Skip("injected")]
        return [Prompt("", unanswered="empty")] if images and not text.strip() else user_acts(text)
    if role == "tool":
        return [ToolResult((message.author and message.author.name) or "", text)]
    if role != "assistant":
        return [Skip("meta")]
    if kind in _THOUGHTS:
        return [Thinking(text)]
    recipient = message.recipient or "all"
    return [AgentText(text)] if recipient == "all" else [ToolUse(recipient, recipient, parse_arguments(text))]


def _text(content: dict[str, Any]) -> tuple[str, bool]:
    """(text, whether there are parts that are none) of a message's content."""
    parts = content.get("parts")
    if not isinstance(parts, list):
        thoughts = content.get("thoughts")
        if isinstance(thoughts, list):
            pieces = (t.get("content") or t.get("summary") for t in thoughts if isinstance(t, dict))
            return "\n\n".join(p for p in pieces if isinstance(p, str)), False
        for key in ("text", "result", "content", "user_instructions"):
            if isinstance(content.get(key), str):
                return content[key], False
        return "", False
    texts = [p if isinstance(p, str) else p.get("text") if isinstance(p, dict) else None for p in parts]
    said = [text for text in texts if isinstance(text, str) and text]
    return "\n".join(said), any(isinstance(p, dict) and not isinstance(p.get("text"), str) for p in parts)


def _decoded(body: bytes) -> _Entry:
    """A node; fields of an unexpected type are left out."""
    try:
        return _entry(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value, _ = loads(body)
    except (ValueError, RecursionError):
        return _Entry()
    value = _dict(value)
    message = _dict(value.get("message"))
    author = _dict(message.get("author"))
    children = value.get("children")
    return _Entry(
        _str(value.get("parent")),
        [child for child in children if isinstance(child, str)] if isinstance(children, list) else None,
        _Message(
            _Author(_str(author.get("role")), _str(author.get("name"))),
            message.get("create_time"),
            _dict(message.get("content")),
            _str(message.get("recipient")),
            _dict(message.get("metadata")),
        ),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _lenient(value: Any) -> _Conversation | None:
    """A conversation of JSON that is not quite as expected; its nodes are written anew where it had to be mended."""
    if not isinstance(value, dict):
        return None
    nodes = {key: msgspec.Raw(msgspec.json.encode(node)) for key, node in _dict(value.get("mapping")).items()}
    return _Conversation(nodes, value.get("conversation_id"), value.get("id"), value.get("title"))
