"""Claude.ai's data export: `conversations.json`, an array of conversations with `chat_messages`.

Streamed conversation by conversation. The session is the conversation's uuid, the anchor a message's; messages that
name a `parent_message_uuid` form a tree, else each follows the one before. `content` counts where it has text, `text`
where it has none. Attached texts are what the person handed over, so they follow the prompt; files without text are
counted, not stored. Deliberately absent: projects and users of the same export, which are no transcripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.segment import OWN_MARKER
from backfill.sources.base import Head, Unit, parse_arguments, parse_time, text_of
from backfill.sources.jsonl import Decoder, Line, elements, loads
from backfill.sources.tree import Node, name_apart, walk
from backfill.sources.typed import user_acts

_CLAIM = re.compile(rb'"chat_messages"\s*:\s*\[')
_HUMAN = ("human", "user")
_ROOT = "00000000-0000-4000-8000-000000000000"


class _Conversation(msgspec.Struct, gc=False):
    """A conversation with its messages still raw."""

    chat_messages: list[msgspec.Raw] | None = None
    uuid: Any = None
    name: Any = None
    model: Any = None


class _Message(msgspec.Struct, gc=False):
    uuid: Any = None
    text: Any = None
    content: Any = None
    sender: Any = None
    role: Any = None
    created_at: Any = None
    attachments: Any = None
    files: Any = None
    parent_message_uuid: Any = None


_message = msgspec.json.Decoder(_Message).decode


class ClaudeAIReader:
    """Reads conversations of Claude.ai's export."""

    name = "claude_ai"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a document with `chat_messages`."""
        begins = head.raw.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        return begins in (b"[", b"{") and _CLAIM.search(head.raw) is not None

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message, in path order within a conversation."""
        decoder = Decoder(_Conversation, _lenient, lambda c: bool(c.chat_messages), unit)
        owners: dict[str, str] = {}
        for n, (piece, conversation, acts) in enumerate(decoder.read(elements(unit))):
            if conversation is None or not conversation.chat_messages:
                yield Record(piece.start, piece.end, acts or [Skip("empty")])
                continue
            session = conversation.uuid if isinstance(conversation.uuid, str) else f"{unit.source}#{n}"
            yield from _conversation(piece, conversation, session, unit, owners)


def _conversation(
    piece: Line, conversation: _Conversation, session: str, unit: Unit, owners: dict[str, str]
) -> Iterator[Record]:
    nodes: list[Node] = []
    named = True
    at = 0
    for raw in conversation.chat_messages or ():
        body = bytes(raw)
        found = piece.data.find(body, at)
        start = at if found < 0 else found
        at = start if found < 0 else found + len(body)
        message = _decoded(body)
        record = Record(piece.start + start, piece.start + at, _acts(message), session)
        record.at, record.tz_assumed = parse_time(message.created_at, unit.assume_tz)
        if isinstance(conversation.model, str):
            record.model = conversation.model
        parent = message.parent_message_uuid
        if not isinstance(parent, str):
            parent = nodes[-1].id if nodes else ""
        named &= isinstance(message.uuid, str)
        nodes.append(Node(str(message.uuid), "" if parent == _ROOT else parent, record))
    name_apart(nodes, session, owners)
    title = conversation.name if isinstance(conversation.name, str) else ""
    unique = named and len({node.id for node in nodes}) == len(nodes)
    for record in walk(nodes) if unique else [node.record for node in nodes]:
        if title:
            record.acts.insert(0, Titled(title))
            title = ""
        yield record


def _acts(message: _Message) -> list[Act]:
    sender = message.sender or message.role
    if sender in _HUMAN:
        return _human_acts(message)
    if sender != "assistant":
        return [Skip("system" if sender == "system" else "empty")]
    acts: list[Act] = []
    for block in message.content if isinstance(message.content, list) else ():
        acts += _block_acts(block)
    if not any(isinstance(act, AgentText) for act in acts):
        text = message.content if isinstance(message.content, str) else message.text
        acts.append(AgentText(text if isinstance(text, str) else ""))
    return acts


def _block_acts(block: Any) -> list[Act]:
    kind = block.get("type") if isinstance(block, dict) else "text"
    if kind == "thinking":
        return [Thinking(text_of(block.get("thinking")) or text_of(block.get("text")))]
    if kind == "tool_use":
        call_id, name = block.get("id") or block.get("name"), block.get("name")
        return [ToolUse(_str(call_id), _str(name), parse_arguments(block.get("input")))]
    if kind == "tool_result":
        return [ToolResult(_str(block.get("tool_use_id") or block.get("name")), text_of(block.get("content")))]
    text = text_of([block])
    return [AgentText(text)] if text else []


def _human_acts(message: _Message) -> list[Act]:
    typed = text_of(message.content) or text_of(message.text)
    attached = [text for text in map(_attached, _list(message.attachments)) if text]
    if typed.startswith(OWN_MARKER):
        return [Prompt(typed)]
    acts = user_acts(typed)
    if attached:
        acts = [act for act in acts if not isinstance(act, Skip)]
        said = [act.text for act in acts if isinstance(act, Prompt)]
        return [Prompt("\n\n".join(said + attached))]
    if not typed.strip() and (_list(message.files) or _list(message.attachments) or isinstance(message.content, list)):
        return [Prompt("", unanswered="empty")]
    return acts


def _attached(attachment: Any) -> str:
    """An attachment's text under its file name."""
    if not isinstance(attachment, dict):
        return ""
    text = attachment.get("extracted_content")
    if not isinstance(text, str) or not text.strip():
        return ""
    name = attachment.get("file_name")
    return f"[{name}]\n{text}" if isinstance(name, str) and name else text


def _decoded(body: bytes) -> _Message:
    try:
        return _message(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value, _ = loads(body)
    except (ValueError, RecursionError):
        return _Message()
    return msgspec.convert(value, _Message) if isinstance(value, dict) else _Message()


def _lenient(value: Any) -> _Conversation | None:
    """A conversation of JSON that is not quite as expected; its messages are written anew where it had to be mended."""
    if not isinstance(value, dict):
        return None
    messages = [msgspec.Raw(msgspec.json.encode(m)) for m in _list(value.get("chat_messages"))]
    return _Conversation(messages, value.get("uuid"), value.get("name"), value.get("model"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
