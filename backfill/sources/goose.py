"""Goose: `sessions/*.jsonl` with a header line, or the tables of `sessions.db`.

Tool responses come under the role user. Deliberately absent: confirmations and notices, which nobody typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Quarantine, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, parse_time
from backfill.sources.databases import Database, capped, json_of
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string
from backfill.sources.typed import merge_prompts, user_acts


class _Line(msgspec.Struct, gc=False):
    """The header or a message."""

    id: str | None = None
    role: str | None = None
    created: Any = None
    content: Any = None
    description: str | None = None
    working_dir: str | None = None
    created_at: Any = None
    metadata: Any = None


class GooseReader:
    """Reads session files."""

    name = "goose"
    version = 1

    def claims(self, head: Head) -> bool:
        """By the header, which names a working folder, or by a message with `created` and blocks."""
        if not head.objects:
            return False
        first = head.objects[0]
        if "working_dir" in first and {"description", "message_count"} & first.keys():
            return True
        blocks = objects(first.get("content"))
        return first.get("role") in ("user", "assistant") and isinstance(first.get("created"), int) and bool(blocks)

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per line."""
        session, cwd = PurePosixPath(unit.source).stem, ""
        decoder = Decoder(_Line, loosely(_Line), lambda line: line.role is not None, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
            elif line.role is None:
                session, cwd = line.id or session, line.working_dir or cwd
                titled: list[Act] = [Titled(line.description)] if line.description else []
                yield Record(piece.start, piece.end, [*titled, Skip("meta")], session, cwd=cwd)
            else:
                record = Record(piece.start, piece.end, _acts(line.role, line.content, line.metadata), session, cwd=cwd)
                record.at, record.tz_assumed = parse_time(line.created, unit.assume_tz)
                record.uuid = line.id or ""
                yield record


class GooseDatabaseReader:
    """Reads `sessions.db`; one session is one member."""

    name = "goose"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By sessions with a working folder and messages with `content_json`."""
        messages = {"session_id", "role", "content_json"}
        return "working_dir" in tables.get("sessions", ()) and messages <= tables.get("messages", frozenset())

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The sessions by id."""
        sql = "SELECT id FROM sessions UNION SELECT session_id FROM messages ORDER BY 1"
        for (session,) in list(database.rows(sql)):
            if session is not None:
                yield str(session), self._records(database, session)

    def _records(self, database: Database, key: Any) -> Iterator[Record]:
        """The session's row, then its messages."""
        columns = database.tables["sessions"]
        names = [n if n in columns else "''" for n in ("description", "name", "working_dir")]
        about = next(database.rows(f"SELECT {', '.join(names)} FROM sessions WHERE id = ?", key), None)  # noqa: S608
        session, n, cwd = str(key), 0, ""
        if about is not None:
            cwd, title = string(about[2]), string(about[0]) or string(about[1])
            yield Record(0, 1, [Titled(title), Skip("meta")] if title else [Skip("meta")], session, cwd=cwd)
            n = 1
        columns = database.tables["messages"]
        names = [c if c in columns else "NULL" for c in ("message_id", "created_timestamp", "metadata_json")]
        order = "id" if "id" in columns else "rowid"
        for role, data, uuid, at, metadata in database.rows(
            f"SELECT role, {capped('content_json')}, {', '.join(names)} FROM messages "  # noqa: S608
            f"WHERE session_id = ? ORDER BY {order}",
            key,
        ):
            content = json_of(data)
            record = Record(n, n + 1, _acts(string(role), content, json_of(metadata)), session, cwd=cwd)
            if content is None:
                record = Record(n, n + 1, [Quarantine("not_json")])
            record.at, record.tz_assumed = parse_time(at, database.assume_tz)
            record.uuid = string(uuid)
            yield record
            n += 1


def _acts(role: str, content: Any, metadata: Any) -> list[Act]:
    if mapping(metadata).get("userVisible") is False:
        return [Skip("injected")]
    acts: list[Act] = []
    typed: list[Act] = []
    has_image = False
    for block in objects(content):
        kind, text = block.get("type"), string(block.get("text"))
        if kind == "toolResponse":
            outcome = mapping(block.get("toolResult"))
            value = outcome.get("value", outcome.get("error"))
            acts.append(ToolResult(string(block.get("id")), readable(mapping(value).get("content", value))))
        elif kind == "toolRequest":
            call = mapping(mapping(block.get("toolCall")).get("value"))
            acts.append(ToolUse(string(block.get("id")), string(call.get("name")), call.get("arguments") or {}))
        elif kind == "text" and role == "user":
            typed += user_acts(text)
        elif kind == "text":
            acts.append(AgentText(text))
        elif kind in ("thinking", "reasoning"):
            acts.append(Thinking(string(block.get("thinking")) or text))
        elif kind == "image":
            has_image = True
    acts += merge_prompts(typed)
    if role == "user" and has_image and not acts:
        acts.append(Prompt("", unanswered="empty"))
    return acts or [AgentText("") if role == "assistant" else Skip("meta")]
