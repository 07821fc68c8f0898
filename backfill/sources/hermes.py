"""Hermes: a JSON document per session with OpenAI-style messages, or the tables of `state.db`.

Deliberately absent: the system prompt and the tools' schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from backfill.records import Act, Record, Skip, Titled
from backfill.sources.base import Head, Unit, parse_time
from backfill.sources.chat import chat_acts
from backfill.sources.databases import Database, capped, json_of
from backfill.sources.jsonl import Decoder, elements
from backfill.sources.loose import loosely, mapping, string
from backfill.sources.nested import array_in, reading

_COLUMNS = ("content", "tool_call_id", "tool_calls", "reasoning", "timestamp")


class _Session(msgspec.Struct, gc=False):
    """What a document says of its session."""

    session_id: str = ""
    model: str = ""
    title: str = ""
    cwd: str = ""
    session_start: Any = None
    model_config: Any = None


class _Message(msgspec.Struct, gc=False):
    """A message."""

    role: str = ""
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    timestamp: Any = None


_message = reading(_Message)


class HermesReader:
    """Reads session documents."""

    name = "hermes"
    version = 1

    def claims(self, head: Head) -> bool:
        """By a session id, its start and its messages."""
        if head.objects:
            return {"session_id", "session_start", "messages"} <= head.objects[0].keys()
        begins = head.raw[:8192]
        return b'"session_start"' in begins and b'"platform"' in begins and b'"session_id"' in begins

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        decoder = Decoder(_Session, loosely(_Session), lambda session: bool(session.session_id), unit)
        for piece, session, acts in decoder.read(elements(unit)):
            places = [] if session is None else array_in(piece, "messages")
            if session is None or not places:
                yield Record(piece.start, piece.end, acts or [Skip("meta")])
                continue
            titled: list[Act] = [Titled(session.title)] if session.title else []
            cwd = session.cwd or string(mapping(session.model_config).get("cwd"))
            for n, place in enumerate(places):
                message = _message(place) or _Message()
                said = chat_acts(msgspec.structs.asdict(message))
                record = Record(place.start, place.end, titled + said, session.session_id or unit.source, cwd=cwd)
                when = message.timestamp if message.timestamp is not None or n else session.session_start
                record.at, record.tz_assumed = parse_time(when, unit.assume_tz)
                record.model = session.model
                titled = []
                yield record


class HermesDatabaseReader:
    """Reads `state.db`; one session is one member."""

    name = "hermes"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By sessions with a start and messages with tool calls."""
        messages = {"session_id", "role", "content", "tool_calls", "timestamp"}
        return "started_at" in tables.get("sessions", ()) and messages <= tables.get("messages", frozenset())

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The sessions by id."""
        sql = "SELECT id FROM sessions UNION SELECT session_id FROM messages ORDER BY 1"
        for (session,) in list(database.rows(sql)):
            if session is not None:
                yield str(session), self._records(database, session)

    def _records(self, database: Database, key: Any) -> Iterator[Record]:
        """The session's row, then its messages."""
        columns = database.tables["sessions"]
        names = [n if n in columns else "''" for n in ("title", "model", "parent_session_id")]
        about = next(database.rows(f"SELECT {', '.join(names)} FROM sessions WHERE id = ?", key), None)  # noqa: S608
        title, model, parent = (string(value) for value in about or ("", "", ""))
        n = 0
        if about is not None:
            yield Record(0, 1, [Titled(title), Skip("meta")] if title else [Skip("meta")], str(key), parent)
            n = 1
        columns = database.tables["messages"]
        wanted = [capped(c) if c in columns else "NULL" for c in _COLUMNS]
        order = "id" if "id" in columns else "rowid"
        for role, *values in database.rows(
            f"SELECT role, {', '.join(wanted)} FROM messages WHERE session_id = ? ORDER BY {order}",  # noqa: S608
            key,
        ):
            message: dict[str, Any] = {"role": role, **dict(zip(_COLUMNS, values, strict=True))}
            message["tool_calls"] = json_of(message["tool_calls"])
            record = Record(n, n + 1, chat_acts(message), str(key), parent, model=model)
            record.at, record.tz_assumed = parse_time(message["timestamp"], database.assume_tz)
            yield record
            n += 1
