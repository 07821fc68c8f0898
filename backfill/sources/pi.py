"""pi and OpenClaw sessions: a tree of records in one JSONL file, a `session` header and then `{type, id, parentId}`.

Every path from the root to a leaf counts: the shared head once, every branch after it. A prompt that forks opens an
exchange after the one that its parent belongs to; an answer that forks opens one too, with the prompt that it answers
and the fork's first record as anchor. Tool results are no places to fork at: parallel ones share their parent.
Deliberately absent: summaries of compactions and branches, which repeat what stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Compacted, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, string, words
from backfill.sources.typed import user_acts

_TYPES = frozenset((
    "session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
    "custom_message", "label", "session_info",
))  # fmt: skip
_APART = {
    "custom_message": "injected", "branch_summary": "compact_summary", "bashExecution": "command", "custom": "injected",
    "branchSummary": "compact_summary", "compactionSummary": "compact_summary", "hookMessage": "injected",
}  # fmt: skip
_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Line(msgspec.Struct, gc=False):
    """A record of the tree, or the header."""

    type: str | None = None
    id: Any = None
    parentId: Any = None  # noqa: N815
    timestamp: Any = None
    message: Any = None
    cwd: Any = None
    title: Any = None
    name: Any = None
    parentSession: Any = None  # noqa: N815
    modelId: Any = None  # noqa: N815
    model: Any = None


@dataclass(slots=True)
class _Asked:
    """The prompt that an exchange answers; `parent` is the message before it, `open` that nothing has answered yet."""

    text: str
    parent: str
    open: bool = True


class PiReader(LineByLine):
    """Reads the session trees of pi and of the agents built on it."""

    name = "pi"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Tree, _Asked)

    def claims(self, head: Head) -> bool:
        """By the header, and a record of the tree after it where there is one."""
        first = head.objects[0] if head.objects else {}
        if first.get("type") != "session" or not isinstance(first.get("id"), str) or "createdAt" in first:
            return False
        if len(head.objects) == 1:
            return "timestamp" in first or "cwd" in first
        return any(one_of(value.get("type"), _TYPES - {"session"}) for value in head.objects[1:])

    def begin(self, unit: Unit) -> _Tree:
        """See `LineByLine`."""
        return _Tree(unit)

    def go_on(self, tree: _Tree, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
            else:
                yield tree.record(piece.start, piece.end, line)


class _Tree:
    """The paths as far as they have been read."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session = ""
        self._parent_session = ""
        self._tip = ""  # the message that was read last; "" is the root
        self._messages: dict[str, str] = {}  # record or tool call -> the message that its path has come to
        self._asked: dict[str, _Asked] = {}  # message -> what its exchange answers

    def record(self, start: int, end: int, line: _Line) -> Record:
        """The record of a line."""
        if line.type == "session" and not self._session:
            self._session = string(line.id)
            found = _SESSION_ID.findall(string(line.parentSession))
            self._parent_session = found[-1] if found else ""
            self._messages[self._session] = ""
        self._session = self._session or self._unit.source
        record = Record(start, end, [], self._session, self._parent_session)
        record.at, record.tz_assumed = parse_time(line.timestamp, self._unit.assume_tz)
        record.cwd = string(line.cwd)
        record.model = string(line.modelId) or string(line.model)
        if line.type == "message":
            self._message(record, line, mapping(line.message))
        else:
            record.acts = _other_acts(line)
            self._pass(string(line.id), string(line.parentId))
        return record

    def _pass(self, ident: str, parent: str) -> str:
        """A record that is no place to fork at: its path has come to where its parent's has."""
        at = self._messages.get(parent, self._tip) if parent else ""
        if ident:
            self._messages[ident] = at
        return at

    def _message(self, record: Record, line: _Line, message: dict[str, Any]) -> None:
        role = message.get("role")
        record.model = string(message.get("model"))
        ident, parent = string(line.id), string(line.parentId)
        before = self._pass(ident, parent) if ident else self._tip
        if role == "toolResult":
            record.acts = [ToolResult(string(message.get("toolCallId")), words(message.get("content")))]
        elif role == "assistant":
            record.acts = _agent_acts(message)
            self._calls(ident, record.acts)
            if not isinstance(record.acts[0], Skip):
                self._answer(record, ident, before)
        elif role == "user":
            record.acts = _user_acts(message.get("content"))
            if isinstance(record.acts[0], Prompt):
                self._ask(record, ident, before, record.acts[0].text)
        else:
            record.acts = [Skip(_APART.get(str(role), "unknown_type"))]
        record.uuid = ident

    def _ask(self, record: Record, ident: str, before: str, text: str) -> None:
        record.linked, record.parent = True, before or None
        record.forks = before != self._tip
        earlier = self._asked.get(before)
        asked = _Asked(text, before)
        if earlier is not None and earlier.open and not record.forks:
            asked = _Asked(f"{earlier.text}\n\n{text}", earlier.parent)
        self._come_to(ident, asked)

    def _answer(self, record: Record, ident: str, before: str) -> None:
        asked = self._asked.get(before)
        if asked is not None and before != self._tip:
            record.acts.insert(0, Prompt(asked.text))
            record.forks = record.linked = True
            record.parent = asked.parent or None
            asked = _Asked(asked.text, asked.parent)
        if asked is not None:
            asked.open = False
        self._come_to(ident, asked)

    def _come_to(self, ident: str, asked: _Asked | None) -> None:
        if ident:
            self._tip = self._messages[ident] = ident
            if asked is not None:
                self._asked[ident] = asked

    def _calls(self, ident: str, acts: list[Act]) -> None:
        """OpenClaw names the call, not the message, as parent of a result."""
        for act in acts:
            if isinstance(act, ToolUse) and act.call_id and ident:
                self._messages[act.call_id] = ident


def _user_acts(content: Any) -> list[Act]:
    text = words(content)
    if not text.strip() and any(block.get("type") == "image" for block in objects(content)):
        return [Prompt("", unanswered="empty")]
    return user_acts(text)


def _agent_acts(message: dict[str, Any]) -> list[Act]:
    content = message.get("content")
    if isinstance(content, str):
        return [AgentText(content)]
    acts: list[Act] = []
    for block in objects(content):
        kind = block.get("type")
        if kind == "thinking":
            acts.append(Thinking(string(block.get("thinking"))))
        elif kind == "toolCall":
            arguments = parse_arguments(block.get("arguments"))
            acts.append(ToolUse(string(block.get("id")), string(block.get("name")), arguments))
        elif kind == "text":
            acts.append(AgentText(string(block.get("text"))))
    return acts or [Skip("api_error") if message.get("errorMessage") else AgentText("")]


def _other_acts(line: _Line) -> list[Act]:
    if line.type == "compaction":
        return [Compacted(), Skip("compact_summary")]
    title = string(line.title) or (string(line.name) if line.type == "session_info" else "")
    if title and line.type in ("session", "session_info"):
        return [Titled(title, given=line.type == "session_info")]
    return [Skip(_APART.get(str(line.type), "meta") if line.type != "custom" else "meta")]


def _is_record(line: _Line) -> bool:
    return line.type in _TYPES and isinstance(line.id, str)
