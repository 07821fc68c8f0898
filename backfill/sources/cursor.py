"""Cursor: agent transcripts in JSONL, the editor's `state.vscdb`, the command line's `store.db`.

Transcripts carry no ids and no times; a session is named by its file. In the editor's database a composer lists its
bubbles in order; bubbles that it no longer lists are counted, not read. Deliberately absent: the contexts, code blocks
and checkpoints beside the bubbles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Quarantine, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_arguments, parse_time, text_of
from backfill.sources.databases import Database, capped, json_of
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import merge_prompts, user_acts

_ROLES = frozenset(("user", "assistant", "system", "tool"))
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_CALLS = frozenset(("tool_use", "tool_call", "tool-call"))
_RESULTS = frozenset(("tool_result", "tool-result"))
_USER, _AGENT = 1, 2


class _Line(msgspec.Struct, gc=False):
    """One line of a transcript."""

    role: str = ""
    message: Any = None
    model: Any = None


class CursorReader:
    """Reads agent transcripts."""

    name = "cursor"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a first line with a role around a message, and no ids."""
        if not head.objects:
            return not head.complete_lines and head.raw.startswith(b'{"role":"user","message":{')
        first = head.objects[0]
        if str(first.get("role")) not in _ROLES or first.keys() & {"uuid", "sessionId", "type", "ts", "parentUuid"}:
            return False
        return isinstance(first.get("message"), dict) and "content" in first["message"]

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        place = PurePosixPath(unit.source)
        session = place.stem if _UUID.fullmatch(place.stem) else unit.source
        parent = place.parts[-3] if place.parent.name == "subagents" and len(place.parts) > 2 else ""
        blocks = _Blocks()
        decoder = Decoder(_Line, loosely(_Line), lambda line: line.role in _ROLES, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
                continue
            acts = blocks.acts(line.role, mapping(line.message).get("content"))
            yield Record(piece.start, piece.end, acts, session, parent, model=string(line.model))


class CursorDatabaseReader:
    """Reads the editor's key-value table: one composer is one member."""

    name = "cursor"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By the editor's own table."""
        return {"key", "value"} <= tables.get("cursorDiskKV", frozenset())

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The composers by id."""
        prefix = "composerData:"
        for (key,) in list(_keys(database, prefix)):
            yield key.removeprefix(prefix), self._composer(database, key.removeprefix(prefix))

    def _composer(self, database: Database, composer_id: str) -> Iterator[Record]:
        """The composer's row, then a record per bubble."""
        composer = mapping(json_of(_value(database, f"composerData:{composer_id}")))
        title = string(composer.get("name"))
        titled: list[Act] = [Titled(title)] if title else []
        yield Record(0, 1, [*titled, Skip("meta")], composer_id, model=_model(composer.get("modelConfig")))
        listed = [string(item.get("bubbleId")) for item in objects(composer.get("fullConversationHeadersOnly"))]
        prefix = f"bubbleId:{composer_id}:"
        n = 1
        for bubble in objects(composer.get("conversation")):  # older ones hold their bubbles
            database.beside_rows += 1
            yield _bubble(n, bubble, string(bubble.get("bubbleId")), composer_id, database.assume_tz)
            n += 1
        for bubble_id in dict.fromkeys(listed):
            value = _value(database, prefix + bubble_id)
            if value is not None:
                yield _bubble(n, json_of(value), bubble_id, composer_id, database.assume_tz)
                n += 1
        for (key,) in list(_keys(database, prefix)):
            if key.removeprefix(prefix) not in listed:
                yield Record(n, n + 1, [Skip("detached")])
                n += 1


class CursorStoreReader:
    """Reads the command line's store: a file holds one session."""

    name = "cursor"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By its two tables."""
        blobs, meta = tables.get("blobs", frozenset()), tables.get("meta", frozenset())
        return blobs == {"id", "data"} and meta == {"key", "value"}

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The one session, if the store says which."""
        for (value,) in list(database.rows("SELECT value FROM meta ORDER BY key")):
            try:
                meta = mapping(json_of(bytes.fromhex(value)))
            except (TypeError, ValueError):
                continue
            if string(meta.get("agentId")):
                yield meta["agentId"], self._session(database, meta)
                return

    def _session(self, database: Database, meta: dict[str, Any]) -> Iterator[Record]:
        """The row about the session, then its messages in the order of the latest root, then the other blobs."""
        session, title = meta["agentId"], string(meta.get("name"))
        at, _ = parse_time(meta.get("createdAt"), database.assume_tz)
        yield Record(0, 1, [Titled(title), Skip("meta")], session, at=at, model=string(meta.get("lastUsedModel")))
        root = next(database.rows("SELECT data FROM blobs WHERE id = ?", string(meta.get("latestRootBlobId"))), (None,))
        listed = list(dict.fromkeys(_links(root[0]) if isinstance(root[0], bytes) else ()))
        blocks = _Blocks()
        n = 1
        for blob_id in listed:
            for (data,) in database.rows(f"SELECT {capped('data')} FROM blobs WHERE id = ?", blob_id):  # noqa: S608
                message = mapping(json_of(data))
                role = string(message.get("role"))
                acts: list[Act] = [Skip("meta")]
                if role in _ROLES:
                    acts = blocks.acts(role, message.get("content"))
                yield Record(n, n + 1, acts, session, uuid=blob_id)
                n += 1
        known = frozenset(listed)
        for blob_id, data in database.rows(f"SELECT id, {capped('data')} FROM blobs ORDER BY rowid"):  # noqa: S608
            if blob_id not in known:
                yield Record(n, n + 1, [Skip("detached" if "role" in mapping(json_of(data)) else "meta")])
                n += 1


class _Blocks:
    """Content blocks of messages; calls without ids are paired with results by name and order."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str]] = []
        self._n = 0

    def acts(self, role: str, content: Any) -> list[Act]:
        """The acts of one message."""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
        if role == "system":
            return [Skip("system")]
        if role == "user":
            return self._user(blocks)
        acts = [act for block in blocks for act in self._agent(block)]
        return acts or [AgentText("") if role == "assistant" else Skip("empty")]

    def _user(self, blocks: list[dict[str, Any]]) -> list[Act]:
        results: list[Act] = []
        typed: list[Act] = []
        has_image = False
        for block in blocks:
            kind = string(block.get("type"))
            if kind in _RESULTS:
                results.append(self._result(block))
            elif kind == "text":
                text = string(block.get("text"))
                queries = _QUERY.findall(text)
                typed += [Prompt(q) for q in queries if q] if queries else user_acts(text)
            else:
                has_image = True
        acts = results + merge_prompts(typed)
        if has_image and not acts:
            acts.append(Prompt("", unanswered="empty"))
        return acts or [Skip("empty")]

    def _agent(self, block: dict[str, Any]) -> list[Act]:
        kind = string(block.get("type"))
        if kind in _CALLS:
            self._n += 1
            name = string(block.get("name")) or string(block.get("toolName"))
            call = string(block.get("id")) or string(block.get("toolCallId")) or f"#{self._n}"
            self._open.append((call, name))
            return [ToolUse(call, name, parse_arguments(block.get("input", block.get("args"))))]
        if kind in _RESULTS:
            return [self._result(block)]
        if kind in ("thinking", "reasoning"):
            return [Thinking(string(block.get("thinking")) or text_of(block.get("text")))]
        return [AgentText(string(block.get("text")))]

    def _result(self, block: dict[str, Any]) -> Act:
        named = string(block.get("tool_use_id")) or string(block.get("toolCallId"))
        tool = string(block.get("name")) or string(block.get("toolName"))
        for call, name in self._open:
            if call == named or (not named and (name == tool or not tool)):
                self._open.remove((call, name))
                named = call
                break
        return ToolResult(named, readable(block.get("content", block.get("result", block.get("input")))))


def _bubble(n: int, bubble: Any, bubble_id: str, session: str, assume_tz: str) -> Record:
    if not isinstance(bubble, dict):
        return Record(n, n + 1, [Quarantine("not_json")])
    times = (bubble.get("createdAt"), mapping(bubble.get("timingInfo")).get("clientStartTime"))
    at = next((found for value in times if (found := parse_time(value, assume_tz)[0]) is not None), None)
    record = Record(n, n + 1, [], session, at=at, uuid=bubble_id, model=_model(bubble.get("modelInfo")))
    text = string(bubble.get("text")) or string(bubble.get("rawText"))
    if bubble.get("type") == _USER:
        acts = user_acts(text)
        record.acts = [Prompt("", unanswered="empty")] if not text and bubble.get("images") else acts
    elif bubble.get("type") == _AGENT:
        thought = string(mapping(bubble.get("thinking")).get("text"))
        record.acts = [Thinking(thought)] if thought else []
        tool = mapping(bubble.get("toolFormerData"))
        if tool.get("name"):
            call = string(tool.get("toolCallId")) or bubble_id
            arguments = parse_arguments(tool.get("rawArgs") or tool.get("params"))
            record.acts.append(ToolUse(call, string(tool["name"]), arguments))
            if tool.get("result") is not None:
                record.acts.append(ToolResult(call, readable(tool["result"])))
        record.acts.append(AgentText(text))
    else:
        record.acts = [Skip("meta")]
    return record


def _model(value: Any) -> str:
    return string(mapping(value).get("modelName"))


def _keys(database: Database, prefix: str) -> Iterator[tuple[str]]:
    """Keys with a prefix that ends in a colon, in order; the key column is the table's index."""
    ends = prefix[:-1] + ";"
    rows = database.rows("SELECT key FROM cursorDiskKV WHERE key >= ? AND key < ? ORDER BY key", prefix, ends)
    return ((key,) for (key,) in rows if isinstance(key, str))


def _value(database: Database, key: str) -> Any:
    found = database.rows(f"SELECT {capped('value')} FROM cursorDiskKV WHERE key = ?", key)  # noqa: S608
    return next(found, (None,))[0]


def _links(root: bytes) -> Iterator[str]:
    """Ids in a protobuf message: its fields of number 1 that hold 32 bytes."""
    at = 0
    while at < len(root):
        tag, at = _varint(root, at)
        if tag & 7 == 0:
            _, at = _varint(root, at)
        elif tag & 7 == 2:
            size, at = _varint(root, at)
            if tag >> 3 == 1 and size == 32 and at + size <= len(root):
                yield root[at : at + size].hex()
            at += size
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
        shift += 7
    return value, at
