"""OpenCode sessions: a tree of small JSON files (session, message, part), and the same records in `opencode.db`.

Every file, or row, is one record; the ids of messages and parts order them in time. Deliberately absent: generated
summaries of a message and snapshots; they repeat what parts say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill.records import (
    Act,
    AgentText,
    Compacted,
    Prompt,
    Quarantine,
    Record,
    Skip,
    Thinking,
    Titled,
    ToolResult,
    ToolUse,
)
from backfill.sources.base import Head, Unit, as_text, parse_time
from backfill.sources.databases import Database, capped, json_of
from backfill.sources.typed import user_acts
from backfill.sources.units import document_of, files_of

_PARTS = frozenset((
    "text", "reasoning", "tool", "file", "patch", "snapshot", "step-start", "step-finish", "compaction", "agent",
    "subtask", "retry",
))  # fmt: skip


@dataclass(slots=True)
class _Session:
    """What a session record says."""

    id: str
    parent: str = ""
    cwd: str = ""
    title: str = ""
    at: int | None = None


@dataclass(slots=True)
class _Message:
    """What a message record says; `prompted` is set once a part of it gave its id to a prompt."""

    id: str
    session: str
    role: str
    at: int | None
    model: str
    summary: bool
    prompted: bool = False


class OpenCodeReader:
    """Reads the tree of files; one session is one unit."""

    name = "opencode"
    version = 1
    spans_files = True

    def claims(self, head: Head) -> bool:
        """By a document that is a session, a message or a part."""
        return len(head.objects) == 1 and bool(_kind(head.objects[0]))

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per file. Parts that only their content attributes come in the order of their messages."""
        session_of: dict[str, _Session] = {}
        messages: dict[str, _Message] = {}
        held: list[tuple[Any, ...]] | None = [] if _has_loose_parts(unit) else None
        for member, inner in files_of(unit):
            value, acts = document_of(inner)
            *above, name = member.source.split("/")
            folder = above[-1] if above else ""
            kind = _kind(value, above) if isinstance(value, dict) else ""
            if kind == "session":
                session = _session(value, unit.assume_tz)
                session_of[session.id] = session
                yield _located(_session_record(session), member.start, member.end)
            elif kind == "message":
                message = _message(value, unit.assume_tz, folder)
                messages[message.id] = messages[name.removesuffix(".json")] = message
                record = _located(_message_record(message, session_of.get(message.session)), member.start, member.end)
                if held is None:
                    yield record
                else:
                    held.append((message, "", record, None))
            elif kind == "part" and held is not None:
                held.append((str(value.get("messageID") or folder), member.source, member, value))
            elif kind == "part":
                known = messages.get(str(value.get("messageID") or "")) or messages.get(folder)
                record = _part_record(value, known, session_of, unit.assume_tz)
                yield _located(record, member.start, member.end)
            else:
                yield Record(member.start, member.end, acts or [Skip("not_transcript")])
        yield from _in_order(held or [], messages, session_of, unit.assume_tz)


class OpenCodeDatabaseReader:
    """Reads `opencode.db`; one session is one member."""

    name = "opencode"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By the tables of messages and parts with their JSON."""
        needed = {"session": {"id"}, "message": {"id", "session_id", "data"}, "part": {"id", "message_id", "data"}}
        return all(columns <= tables.get(table, frozenset()) for table, columns in needed.items())

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The sessions by id."""
        for (session,) in list(database.rows("SELECT id FROM session UNION SELECT session_id FROM message ORDER BY 1")):
            if isinstance(session, str) and session:
                yield session, self._records(database, session)

    def _records(self, database: Database, session_id: str) -> Iterator[Record]:
        """A record per row: the session, then each message with its parts."""
        order = "m.time_created, m.id" if "time_created" in database.tables["message"] else "m.id"
        session = _session_row(database, session_id)
        n = 0
        if session is not None:
            yield _located(_session_record(session), 0, 1)
            n = 1
        sessions = {session_id: session or _Session(session_id)}
        parts = database.rows(
            f"SELECT p.message_id, p.id, {capped('p.data')} FROM message m JOIN part p ON p.message_id = m.id "  # noqa: S608
            f"WHERE m.session_id = ? ORDER BY {order}, p.id",
            session_id,
        )
        part = next(parts, None)
        for message_id, data in database.rows(
            f"SELECT m.id, {capped('m.data')} FROM message m WHERE m.session_id = ? ORDER BY {order}",  # noqa: S608
            session_id,
        ):
            value = json_of(data)
            message = None
            if isinstance(value, dict):
                message = _message(value | {"id": message_id, "sessionID": session_id}, database.assume_tz, session_id)
                yield _located(_message_record(message, sessions[session_id]), n, n + 1)
            else:
                yield Record(n, n + 1, [Quarantine("not_json")])
            n += 1
            while part is not None and part[0] == message_id:
                value = json_of(part[2])
                if isinstance(value, dict):
                    record = _part_record(value | {"id": part[1]}, message, sessions, database.assume_tz)
                else:
                    record = Record(0, 0, [Quarantine("not_json")])
                yield _located(record, n, n + 1)
                n += 1
                part = next(parts, None)


def _session_row(database: Database, session_id: str) -> _Session | None:
    columns = database.tables["session"]
    names = [n if n in columns else "''" for n in ("parent_id", "directory", "title", "time_created")]
    row = next(database.rows(f"SELECT {', '.join(names)} FROM session WHERE id = ?", session_id), None)  # noqa: S608
    if row is None:
        return None
    parent, directory, title = (value if isinstance(value, str) else "" for value in row[:3])
    return _Session(session_id, parent, directory, title, parse_time(row[3], database.assume_tz)[0])


def _kind(value: Mapping[str, Any], above: Sequence[str] = ()) -> str:
    """What a document is: "session", "message", "part", or "" for something else; `above` are its folders."""
    if isinstance(value.get("sessionID"), str) and value.get("role") in ("user", "assistant"):
        return "message"
    if isinstance(value.get("type"), str) and value["type"] in _PARTS and isinstance(value.get("id"), str):
        at_home = "part" in above[-3:]
        return "part" if isinstance(value.get("messageID"), str) or at_home else ""
    if isinstance(value.get("id"), str) and isinstance(value.get("time"), dict) and "role" not in value:
        return "session" if {"projectID", "directory"} & value.keys() or "title" in value else ""
    return ""


def _has_loose_parts(unit: Unit) -> bool:
    """Whether a part lies in a folder that is named after no message of the unit."""
    places = [member.source.removesuffix(".json").split("/") for member in unit.members]
    stems = {place[-1] for place in places if "message" in place[-3:-2]}
    return any("part" in place[-4:-1] and place[-2] not in stems for place in places if place[-1] not in stems)


def _session(value: Mapping[str, Any], assume_tz: str) -> _Session:
    time = value.get("time")
    created = time.get("created") if isinstance(time, dict) else None
    parent, cwd, title = (str(value.get(name) or "") for name in ("parentID", "directory", "title"))
    return _Session(value["id"], parent, cwd, title, parse_time(created, assume_tz)[0])


def _message(value: Mapping[str, Any], assume_tz: str, folder: str) -> _Message:
    time = value.get("time")
    model = value.get("model")
    name = value.get("modelID") or (model.get("modelID") if isinstance(model, dict) else model)
    return _Message(
        str(value.get("id") or ""),
        str(value.get("sessionID") or folder),
        str(value.get("role") or ""),
        parse_time(time.get("created") if isinstance(time, dict) else None, assume_tz)[0],
        name if isinstance(name, str) else "",
        value.get("summary") is True,
    )


def _session_record(session: _Session) -> Record:
    acts: list[Act] = [Titled(session.title)] if session.title else []
    return Record(0, 0, [*acts, Skip("meta")], session.id, session.parent, cwd=session.cwd)


def _message_record(message: _Message, session: _Session | None) -> Record:
    acts: list[Act] = [Skip("meta")]
    if message.role == "assistant":
        acts = [Skip("compact_summary")] if message.summary else [AgentText("")]
    return _of(message, session, acts)


def _of(message: _Message, session: _Session | None, acts: list[Act]) -> Record:
    record = Record(0, 0, acts, message.session, session.parent if session else "", at=message.at)
    record.cwd = session.cwd if session else ""
    if message.role == "assistant":
        record.turn = message.id
        record.model = message.model
    return record


def _part_record(
    part: Mapping[str, Any], message: _Message | None, sessions: Mapping[str, _Session], assume_tz: str
) -> Record:
    if message is None:
        return Record(0, 0, [Skip("orphan")])
    acts = _user_part(part) if message.role == "user" else _agent_part(part, message.summary)
    record = _of(message, sessions.get(message.session), acts)
    if message.role == "user" and not message.prompted and any(isinstance(act, Prompt) for act in acts):
        message.prompted = True
        record.uuid = message.id
    if message.role == "assistant":
        time = (part["state"] if isinstance(part.get("state"), dict) else part).get("time")
        began = parse_time(time.get("start"), assume_tz)[0] if isinstance(time, dict) else None
        record.at = began or message.at
    return record


def _user_part(part: Mapping[str, Any]) -> list[Act]:
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str):
        return [Skip("injected")] if part.get("synthetic") or part.get("ignored") else user_acts(text)
    if kind == "subtask":
        return [Prompt(str(part.get("prompt") or ""), unanswered="command")]
    if kind == "file":
        return [Prompt("", unanswered="binary")]
    return [Compacted(), Skip("compact_summary")] if kind == "compaction" else [Skip("meta")]


def _agent_part(part: Mapping[str, Any], summary: bool) -> list[Act]:
    kind, text = part.get("type"), part.get("text")
    if summary:
        return [Skip("compact_summary")]
    if kind == "text" and isinstance(text, str):
        return [Skip("injected")] if part.get("synthetic") else [AgentText(text)]
    if kind == "reasoning" and isinstance(text, str):
        return [Thinking(text)]
    if kind == "tool":
        state = part["state"] if isinstance(part.get("state"), dict) else {}
        call = str(part.get("callID") or part.get("id") or "")
        acts: list[Act] = [ToolUse(call, str(part.get("tool") or ""), state.get("input") or {})]
        output = state.get("output", state.get("error"))
        if output is not None:
            acts.append(ToolResult(call, as_text(output)))
        return acts
    return [Skip("meta")]


def _located(record: Record, start: int, end: int) -> Record:
    record.start, record.end = start, end
    return record


def _in_order(
    held: list[tuple[Any, ...]], messages: Mapping[str, _Message], sessions: Mapping[str, _Session], assume_tz: str
) -> Iterator[Record]:
    """Records that were held back: by session, by the time of their message, a message before its parts."""
    ordered: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
    for n, (owner, source, *rest) in enumerate(held):
        message = owner if isinstance(owner, _Message) else messages.get(owner)
        key = (message.session, message.at or 0, message.id) if message else ("\U0010ffff", 0, "")
        ordered.append(((*key, source, n), (message, *rest)))
    for _, (message, item, value) in sorted(ordered, key=lambda pair: pair[0]):
        if value is None:
            yield item
        else:
            yield _located(_part_record(value, message, sessions, assume_tz), item.start, item.end)
