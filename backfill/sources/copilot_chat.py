"""Copilot Chat in VS Code: `chatSessions/<id>.json` and exported chats, one document with `requests`, and the newer
`.jsonl` of changes to such a document (kind 0 snapshot, 1 set, 2 push).

A request is a prompt with all that answered it. In a log of changes the last request is followed until the next one
is pushed; what is set in earlier ones after that changes nothing that was said. Deliberately absent: variables and
attached files, which the editor added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time
from backfill.sources.jsonl import Decoder, Line, elements, lines
from backfill.sources.loose import loosely, mapping, objects, one_of, readable, sequence, string
from backfill.sources.nested import array_in, reading
from backfill.sources.typed import user_acts

_DOCUMENT_MARKS = frozenset(("responderUsername", "requesterUsername", "initialLocation", "responderAvatarIconUri"))
_SPOKEN = frozenset(("response", "result", "message"))


class _Request(msgspec.Struct, gc=False):
    """A prompt and its answer."""

    requestId: Any = None  # noqa: N815
    message: Any = None
    response: Any = None
    result: Any = None
    timestamp: Any = None
    modelId: Any = None  # noqa: N815


class _Value(msgspec.Struct, gc=False):
    """A document without its requests, or a change to one."""

    kind: Any = None
    k: Any = None
    v: Any = None
    i: Any = None
    sessionId: Any = None  # noqa: N815
    customTitle: Any = None  # noqa: N815


_request = reading(_Request)


class CopilotChatReader:
    """Reads the chat sessions of VS Code."""

    name = "copilot_chat"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a document with requests and names of its parties, or by the snapshot that begins a log of changes."""
        first = head.objects[0] if head.objects else {}
        if isinstance(first.get("requests"), list) and first.keys() & _DOCUMENT_MARKS:
            return True
        if first.get("kind") == 0 and isinstance(first.get("v"), dict):
            return isinstance(first["v"].get("requests"), list)
        begins = head.raw.lstrip()
        if begins.startswith(b'{"kind":0,"v":{'):
            return True
        marked = any(f'"{mark}":'.encode() in begins[:4000] for mark in _DOCUMENT_MARKS)
        return begins.startswith(b"{") and marked and b'"requests":' in begins[:20_000]

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per request of a document, one per change of a log."""
        is_log = unit.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].replace(b" ", b"").startswith(b'{"kind":')
        decoder = Decoder(_Value, loosely(_Value), _is_change, unit)
        log = _Log(unit)
        for piece, value, acts in decoder.read(lines(unit) if is_log else elements(unit)):
            if value is None:
                yield from log.pass_by(Record(piece.start, piece.end, acts))
            elif is_log:
                yield from log.change(piece, value)
            else:
                yield from log.begin(piece, value.sessionId, value.customTitle, "requests")
        yield from log.finish()


class _Log:
    """The requests as far as they have been read; the last one is still open."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session = ""
        self._title = ""
        self._ids: list[str] = []  # of the list as it stands
        self._seen: set[str] = set()
        self._forks = False
        self._open: _Request | None = None
        self._held: list[tuple[Record, bool]] = []  # since the open request began, and whether they speak of it

    def begin(self, piece: Line, session: Any, title: Any, *path: str) -> Iterator[Record]:
        """A whole document."""
        self._session = self._session or string(session)
        self._title = string(title) or self._title
        yield from self.finish()
        self._ids = []
        places = array_in(piece, *path)
        for place in places:
            yield from self._push(place)
        if not places:
            yield self._record(piece, [Skip("meta")])

    def change(self, piece: Line, change: _Value) -> Iterator[Record]:
        """A line of a log."""
        path = sequence(change.k)
        if change.kind == 0:
            document = mapping(change.v)
            yield from self.begin(piece, document.get("sessionId"), document.get("customTitle"), "v", "requests")
        elif path == ["requests"]:
            yield from self.finish()
            keep = change.i if isinstance(change.i, int) and change.kind == 2 else len(self._ids)
            keep = 0 if change.kind == 1 else keep
            self._forks, self._ids = keep < len(self._ids), self._ids[: max(0, keep)]
            places = array_in(piece, "v")
            for place in places:
                yield from self._push(place)
            if not places:
                yield self._record(piece, [Skip("meta")])
        elif path == ["customTitle"] and string(change.v):
            yield from self.pass_by(self._record(piece, [Titled(change.v, given=True)]))
        elif len(path) > 2 and path[0] == "requests" and path[1] == len(self._ids) - 1 and one_of(path[2], _SPOKEN):
            self._held.append((self._record(piece, [Skip("meta")]), self._set(path[2:], change)))
        else:
            yield from self.pass_by(self._record(piece, [Skip("meta")]))

    def pass_by(self, record: Record) -> Iterator[Record]:
        """A record that says nothing of the open request."""
        if self._open is None:
            yield record
        else:
            self._held.append((record, False))

    def finish(self) -> Iterator[Record]:
        """Everything about the open request: the last record that speaks of it brings the answer."""
        request, held = self._open, self._held
        self._open, self._held = None, []
        if request is None or not held:
            return
        acts = _agent_acts(request)
        spoken = [record for record, speaks in held if speaks]
        if acts and string(request.requestId) not in self._seen:
            for record in spoken[1:-1]:
                record.acts = [AgentText("")]
            last = spoken[-1]
            last.acts = [*last.acts, *acts] if len(spoken) == 1 else acts
        if string(request.requestId):
            self._seen.add(string(request.requestId))
        for record, _ in held:
            yield record

    def _push(self, place: Line) -> Iterator[Record]:
        yield from self.finish()
        request = _request(place)
        if request is None:
            yield self._record(place, [Skip("empty")])
            return
        text = string(mapping(request.message).get("text")) or string(request.message)
        record = self._record(place, user_acts(text))
        record.uuid = string(request.requestId)
        record.linked, record.parent = bool(record.uuid), self._ids[-1] if self._ids else None
        record.forks, self._forks = self._forks, False
        self._ids.append(record.uuid)
        self._open, self._held = request, [(record, True)]
        record.model = string(request.modelId)
        if request.timestamp is not None:
            record.at, record.tz_assumed = parse_time(request.timestamp, self._unit.assume_tz)
        if self._title:
            record.acts.insert(0, Titled(self._title, given=True))
            self._title = ""

    def _set(self, path: list[Any], change: _Value) -> bool:
        """Sets or pushes a value in the open request; False where the path leads nowhere."""
        if self._open is None:
            return False
        at: Any = msgspec.structs.asdict(self._open)
        whole = at
        for key in path[:-1]:
            at = _child(at, key)
        if change.kind == 2:
            items = _child(at, path[-1])
            if items is None and isinstance(at, dict):
                items = at[str(path[-1])] = []
            if not isinstance(items, list):
                return False
            if isinstance(change.i, int):
                del items[max(0, change.i) :]
            items.extend(sequence(change.v))
        elif isinstance(at, dict):
            at[str(path[-1])] = change.v
        elif isinstance(at, list) and isinstance(path[-1], int) and 0 <= path[-1] < len(at):
            at[path[-1]] = change.v
        else:
            return False
        self._open = _Request(**{name: whole[name] for name in _Request.__struct_fields__})
        return True

    def _record(self, piece: Line, acts: list[Act]) -> Record:
        return Record(piece.start, piece.end, acts, self._session or self._unit.source)


def _child(at: Any, key: Any) -> Any:
    if isinstance(at, dict):
        return at.get(str(key))
    if isinstance(at, list) and isinstance(key, int) and 0 <= key < len(at):
        return at[key]
    return None


def _agent_acts(request: _Request) -> list[Act]:
    """What answered a request: pieces of Markdown are one text, until something else comes between."""
    metadata = mapping(mapping(request.result).get("metadata"))
    rounds = objects(metadata.get("toolCallRounds"))
    results = mapping(metadata.get("toolCallResults"))
    calls = [call for one in rounds for call in objects(one.get("toolCalls"))]
    acts: list[Act] = []
    pieces: list[str] = []
    for item in objects(request.response):
        text = _piece(item)
        if text is not None:
            pieces.append(text)
            continue
        done = _done(item, listed=bool(calls))
        if done:
            acts += [AgentText("".join(pieces)), *done] if pieces else done
            pieces = []
    if pieces:
        acts.append(AgentText("".join(pieces)))
    if not any(isinstance(act, AgentText) and act.text.strip() for act in acts):
        acts += [AgentText(text) for text in (string(one.get("response")) for one in rounds) if text]
    for call in calls:
        call_id = string(call.get("id"))
        acts.append(ToolUse(call_id, string(call.get("name")), parse_arguments(call.get("arguments"))))
        if call_id in results:
            acts.append(ToolResult(call_id, _values(mapping(results[call_id]).get("content"))))
    return acts


def _piece(item: dict[str, Any]) -> str | None:
    """Markdown, or the name of what a reference points at."""
    kind = item.get("kind")
    if kind is None or kind == "markdownVuln":
        value = item.get("value", item.get("content"))
        return string(value) or string(mapping(value).get("value"))
    if kind == "markdownContent":
        return string(mapping(item.get("content")).get("value"))
    if kind == "inlineReference":
        target = mapping(item.get("inlineReference"))
        place = mapping(target.get("location")).get("uri") or target.get("uri") or target
        path = string(mapping(place).get("path")) or string(mapping(place).get("fsPath"))
        return string(item.get("name")) or string(target.get("name")) or path.rpartition("/")[2]
    return None


def _done(item: dict[str, Any], *, listed: bool) -> list[Act]:
    """What the agent thought or did; calls that are `listed` with their arguments elsewhere are left out."""
    kind = item.get("kind")
    if kind == "thinking":
        value = item.get("value")
        return [Thinking(string(value) or "\n".join(v for v in sequence(value) if isinstance(v, str)))]
    if kind == "toolInvocationSerialized" and not listed:
        call_id = string(item.get("toolCallId"))
        about = mapping(item.get("toolSpecificData")) or {"description": _said(item.get("invocationMessage"))}
        outcome = _said(item.get("pastTenseMessage"))
        details = mapping(item.get("resultDetails")).get("output")
        result = "\n".join(text for text in (outcome, _values(details)) if text)
        return [ToolUse(call_id, string(item.get("toolId")), about), ToolResult(call_id, result)]
    if kind == "textEditGroup" and not listed:
        return [ToolUse("", "edit", {"path": string(mapping(item.get("uri")).get("path"))})]
    return []


def _said(message: Any) -> str:
    return string(message) or string(mapping(message).get("value"))


def _values(content: Any) -> str:
    """The text of a result: values of its parts."""
    values = [readable(part.get("value")) for part in objects(content) if "value" in part]
    return "\n".join(text for text in values if text) or readable(content)


def _is_change(value: _Value) -> bool:
    return isinstance(value.kind, int) and value.v is not None
