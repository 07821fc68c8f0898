"""Gemini CLI chats: `~/.gemini/tmp/*/chats/session-*.json`, the newer JSONL with patches, and stream-json output.

A chat is a list of messages. The JSON document is written anew at every turn; the JSONL appends a message again when
its tools have finished, and `{"$set": {"messages": [...]}}` replaces the whole list: the last version of a message is
read, one that a later list drops is a branch. So a JSONL unit is held in memory. Deliberately absent: `tokens`, and
what `resultDisplay` repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.document import fields
from backfill.sources.jsonl import Decoder, Line, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, readable, string, words
from backfill.sources.nested import array_in, reading
from backfill.sources.typed import user_acts

_STREAM = frozenset(("init", "message", "tool_use", "tool_result", "result"))
_APART = {"info": "meta", "warning": "meta", "error": "api_error"}
_HISTORY = re.compile(rb'\s*\{\s*"history"\s*:\s*\[\s*\{\s*"role"\s*:\s*"\w+"\s*,\s*"parts"')
_LISTS = frozenset(("messages", "history"))
_SUPERSEDED = "superseded"
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')


class _Message(msgspec.Struct, gc=False):
    """A message, or any other line: the header of a chat, a patch, an event of the stream."""

    id: Any = None
    timestamp: Any = None
    type: str | None = None
    content: Any = None
    thoughts: Any = None
    toolCalls: Any = None  # noqa: N815
    model: Any = None
    displayContent: Any = None  # noqa: N815
    sessionId: Any = None  # noqa: N815
    summary: Any = None
    patch: Any = msgspec.field(default=None, name="$set")
    rewind: Any = msgspec.field(default=None, name="$rewindTo")
    role: str | None = None
    session_id: Any = None
    tool_name: Any = None
    tool_id: Any = None
    parameters: Any = None
    output: Any = None
    error: Any = None
    cwd: Any = None
    parts: Any = None


@dataclass(slots=True)
class _Version:
    """One version of a message: its bytes, and what was said."""

    piece: Line
    message: _Message


@dataclass(slots=True)
class _Entry:
    """A message of the chat with its older versions; `parent` is the message before it in its list."""

    last: _Version
    older: list[_Version] = field(default_factory=list)
    parent: str | None = None
    forks: bool = False


_message = reading(_Message)


class GeminiCliReader:
    """Reads the chats of Gemini CLI."""

    name = "gemini_cli"
    version = 1

    def claims(self, head: Head) -> bool:
        """By the header of a chat, or by the first events of a stream."""
        first = head.objects[0] if head.objects else {}
        if {"sessionId", "projectHash"} <= first.keys():
            return True
        if _HISTORY.match(head.raw):
            return True
        if one_of(first.get("type"), _STREAM) and ("session_id" in first or "ts" in first) and "uuid" not in first:
            return any(value.get("type") == "init" and "session_id" in value for value in head.objects[:5])
        begins = head.raw[:2000].lstrip()
        return begins.startswith(b"{") and b'"projectHash":' in begins and b'"sessionId":' in begins

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message and per version of it."""
        first, _, rest = unit.head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
        decoder = Decoder(_Message, loosely(_Message), _is_known, unit)
        if first.rstrip() == b"{" or (b'"messages"' in first and not rest.strip()):
            return _document(unit, decoder)
        if b'"projectHash"' not in first and b'"session_id"' in unit.head[:4000]:
            return _stream(unit, decoder)
        return _Chat(unit).records(decoder)


def _document(unit: Unit, decoder: Decoder[_Message]) -> Iterator[Record]:
    """A chat that is one JSON object; its session id stands before the messages."""
    session = _session_in(unit.head) or unit.source
    pieces = (line for key, line in fields(unit, _LISTS) if key in _LISTS)
    for piece, message, acts in decoder.read(pieces):
        if message is None:
            yield Record(piece.start, piece.end, acts)
        else:
            yield _record(unit, piece, message, session)


class _Chat:
    """The list of messages as the patches leave it."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session = ""
        self._title = ""
        self._entries: dict[str, _Entry] = {}
        self._list: dict[str, None] = {}  # ids of the list as it stands
        self._parents: set[str | None] = set()
        self._apart: list[Record] = []

    def records(self, decoder: Decoder[_Message]) -> Iterator[Record]:
        """All records, in the order of the list."""
        for piece, line, acts in decoder.read(lines(self._unit)):
            if line is None:
                self._apart.append(Record(piece.start, piece.end, acts, scattered=True))
            elif line.patch is not None:
                self._patch(piece, mapping(line.patch))
            elif line.rewind is not None:
                self._rewind(line.rewind)
                self._skip(piece)
            elif line.type is None:
                self._session = self._session or string(line.sessionId)
                self._skip(piece)
            else:
                self._add(piece, line)
        session = self._session or self._unit.source
        yield from self._apart
        for key, entry in self._entries.items():
            record = _record(self._unit, entry.last.piece, entry.last.message, session)
            record.scattered = record.linked = True
            record.uuid, record.parent, record.forks = key, entry.parent, entry.forks
            older = [self._older(old, record) for old in entry.older]
            # a later version counts more than the one that it replaces, wherever it stands
            record.weight = 1 + len(older)
            if self._title:
                record.acts.insert(0, Titled(self._title))
                self._title = ""
            yield record
            yield from older

    def _older(self, version: _Version, last: Record) -> Record:
        """An earlier version of a message: a duplicate where nothing has changed."""
        same = _acts(version.message) == last.acts
        acts: list[Act] = [Skip(_SUPERSEDED)]
        record = Record(version.piece.start, version.piece.end, acts, last.session, weight=0, scattered=True)
        record.uuid = last.uuid if same else ""
        return record

    def _patch(self, piece: Line, patch: dict[str, Any]) -> None:
        self._title = string(patch.get("summary")) or self._title
        if not isinstance(patch.get("messages"), list):
            self._skip(piece)
            return
        self._list = {}
        for place in array_in(piece, "$set", "messages"):
            message = _message(place)
            if message is None:
                self._apart.append(Record(place.start, place.end, [Skip("empty")], scattered=True))
            else:
                self._add(place, message)
        if not self._list:
            self._skip(piece)

    def _add(self, piece: Line, message: _Message) -> None:
        key = string(message.id) or f"{piece.start}"
        version = _Version(piece, message)
        entry = self._entries.get(key)
        if entry is None:
            parent = next(reversed(self._list), None)
            self._entries[key] = _Entry(version, [], parent, parent in self._parents)
            self._parents.add(parent)
        else:
            entry.older.append(entry.last)
            entry.last = version
        self._list[key] = None

    def _rewind(self, to: Any) -> None:
        """Takes the list back to before the message `to`."""
        if isinstance(to, str) and to in self._list:
            ids = list(self._list)
            self._list = dict.fromkeys(ids[: ids.index(to)])

    def _skip(self, piece: Line) -> None:
        self._apart.append(Record(piece.start, piece.end, [Skip("meta")], scattered=True))


def _record(unit: Unit, piece: Line, message: _Message, session: str) -> Record:
    record = Record(piece.start, piece.end, _acts(message), session)
    record.uuid = string(message.id)
    record.model = string(message.model)
    if message.timestamp is not None:
        record.at, record.tz_assumed = parse_time(message.timestamp, unit.assume_tz)
    return record


def _acts(message: _Message) -> list[Act]:
    kind = message.type or {"user": "user", "model": "gemini", "gemini": "gemini"}.get(string(message.role))
    if message.content is None:
        message.content = message.parts
    if kind == "user":
        shown = message.displayContent if message.displayContent is not None else message.content
        text = words(shown)
        if text.lstrip().startswith("/") and len(text.split()) == 1:
            return [Prompt(text.strip(), unanswered="command")]
        results = [block for block in objects(message.content) if "functionResponse" in block]
        acts: list[Act] = [_response(mapping(block["functionResponse"])) for block in results]
        return acts or user_acts(text)
    if kind != "gemini":
        return [Skip(_APART.get(str(kind), "unknown_type"))]
    acts = []
    for thought in objects(message.thoughts):
        subject, description = string(thought.get("subject")), string(thought.get("description"))
        acts.append(Thinking(f"{subject}: {description}" if subject else description))
    acts.append(AgentText(words(message.content)))
    for call in objects(message.toolCalls):
        call_id = string(call.get("id"))
        acts.append(ToolUse(call_id, string(call.get("name")), parse_arguments(call.get("args"))))
        if call.get("result") is not None:
            acts.append(ToolResult(call_id, _result_text(call["result"])))
    return acts


def _response(response: dict[str, Any]) -> ToolResult:
    return ToolResult(string(response.get("id")), response_text(response.get("response")))


def _result_text(result: Any) -> str:
    responses = [mapping(part.get("functionResponse")) for part in objects(result) if "functionResponse" in part]
    if not responses:
        return readable(result)
    return "\n".join(response_text(response.get("response")) for response in responses)


def response_text(response: Any) -> str:
    """The text of a `functionResponse`."""
    for key in ("output", "error", "content", "result"):
        if isinstance(response, dict) and response.get(key) is not None:
            return readable(response[key])
    return readable(response)


def _stream(unit: Unit, decoder: Decoder[_Message]) -> Iterator[Record]:
    """The events of `--output-format stream-json`: an answer comes in pieces, which are one text."""
    session, model, turn = "", "", ""
    held: list[Record] = []
    said: list[str] = []
    for piece, line, acts in decoder.read(lines(unit)):
        if line is None:
            held.append(Record(piece.start, piece.end, acts))
            continue
        session = session or string(line.session_id)
        model = string(line.model) or model
        record = Record(piece.start, piece.end, _stream_acts(line), session or unit.source, model=model)
        if line.timestamp is not None:
            record.at, record.tz_assumed = parse_time(line.timestamp, unit.assume_tz)
        if line.type == "message" and line.role == "assistant":
            turn = turn or f"{piece.start}"
            record.turn = turn
            said.append(words(line.content))
            held.append(record)
            continue
        yield from _spoken(held, said)
        held, said, turn = [], [], ""
        yield record
    yield from _spoken(held, said)


def _spoken(held: list[Record], said: list[str]) -> list[Record]:
    """The pieces of one answer: the first brings the text, the others are part of it."""
    if said:
        first = next(record for record in held if record.turn)
        first.acts = [AgentText("".join(said))]
    return held


def _stream_acts(line: _Message) -> list[Act]:
    if line.type == "message":
        return user_acts(words(line.content)) if line.role == "user" else [AgentText("")]
    if line.type == "tool_use":
        return [ToolUse(string(line.tool_id), string(line.tool_name), parse_arguments(line.parameters))]
    if line.type == "tool_result":
        error = line.error.get("message") if isinstance(line.error, dict) else line.error
        return [ToolResult(string(line.tool_id), readable(line.output) or readable(error))]
    if line.type == "error":
        return [Skip("api_error")]
    return [Skip("meta" if line.type in _STREAM else "unknown_type")]


def _session_in(head: bytes) -> str:
    found = _SESSION.search(head)
    return found[1].decode("utf-8", "replace") if found else ""


def _is_known(message: _Message) -> bool:
    return message.type is not None or message.patch is not None
