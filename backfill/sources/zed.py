"""Zed: agent threads in `threads.db`, each a JSON text or a zstd frame of it.

Two shapes are stored side by side: messages with a role and segments, and tagged User and Agent messages. A blob is
unpacked to at most MAX_VALUE_BYTES. Deliberately absent: snapshots of the project, which come with every thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backfill.records import Act, AgentText, Prompt, Quarantine, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import parse_time
from backfill.sources.databases import MAX_VALUE_BYTES, Database, capped, json_of
from backfill.sources.loose import mapping, objects, readable, sequence, string
from backfill.sources.typed import user_acts


class ZedReader:
    """Reads the threads' table; one thread is one member."""

    name = "zed"
    version = 1

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """By threads with a type and a blob."""
        return {"id", "data_type", "data", "updated_at"} <= tables.get("threads", frozenset())

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The threads by id."""
        for (thread,) in list(database.rows("SELECT id FROM threads ORDER BY id")):
            if isinstance(thread, str):
                yield thread, self._records(database, thread)

    def _records(self, database: Database, thread: str) -> Iterator[Record]:
        """The thread's row, then a record per message in it."""
        columns = database.tables["threads"]
        names = [n if n in columns else "''" for n in ("summary", "parent_id", "folder_paths", "created_at")]
        sql = f"SELECT data_type, {capped('data')}, {', '.join(names)} FROM threads WHERE id = ?"  # noqa: S608
        row = next(database.rows(sql, thread), None)
        if row is None:  # a damaged index names what its table does not hold
            return
        kind, data, title, parent, folders, created = row
        value = json_of(_unpacked(data) if kind == "zstd" else data)
        if not isinstance(value, dict):
            yield Record(0, 1, [Quarantine("not_zstd_json" if kind == "zstd" else "not_json")])
            return
        title = string(value.get("title")) or string(value.get("summary")) or string(title)
        record = Record(0, 1, [Titled(title), Skip("meta")] if title else [Skip("meta")], thread, string(parent))
        record.cwd = string(folders).split("\n", 1)[0]
        record.model = string(mapping(value.get("model")).get("model"))
        yield record
        at, assumed = parse_time(created, database.assume_tz)
        for n, message in enumerate(sequence(value.get("messages")), 1):
            database.beside_rows += 1
            role, acts, uuid = _message(message)
            told = Record(n, n + 1, acts, thread, string(parent), uuid=uuid)
            if role == "user":
                told.at, told.tz_assumed, at = at, assumed, None  # only the thread's beginning is known
            yield told


def _unpacked(data: Any) -> bytes | None:
    """The content of a zstd frame, None where it is none or too long."""
    if not isinstance(data, bytes):
        return None
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data) as stream:
            content = stream.read(MAX_VALUE_BYTES + 1)
    except (zstandard.ZstdError, MemoryError):
        return None
    return content if len(content) <= MAX_VALUE_BYTES else None


def _message(message: Any) -> tuple[str, list[Act], str]:
    """(role, acts, id) of a message of either shape."""
    if not isinstance(message, dict):  # "Resume" marks that the thread went on
        return "", [Skip("meta")], ""
    if isinstance(message.get("User"), dict):
        user = message["User"]
        return "user", _user(user.get("content")), string(user.get("id"))
    if isinstance(message.get("Agent"), dict):
        return "agent", _agent(message["Agent"]), ""
    role = string(message.get("role"))
    if role == "user":
        return "user", user_acts(_segments(message, "text")), ""
    if role != "assistant":
        return role, [Skip("system")], ""
    acts: list[Act] = [Thinking(_segments(message, "thinking"))]
    acts.append(AgentText(_segments(message, "text")))
    acts += [_use(use) for use in objects(message.get("tool_uses"))]
    acts += [
        ToolResult(string(result.get("tool_use_id")), readable(result.get("content")))
        for result in objects(message.get("tool_results"))
    ]
    return "agent", acts, ""


def _segments(message: dict[str, Any], kind: str) -> str:
    texts = [string(part.get("text")) for part in objects(message.get("segments")) if part.get("type") == kind]
    return "\n".join(text for text in texts if text)


def _user(content: Any) -> list[Act]:
    texts = [string(block.get("Text")) for block in objects(content)]
    text = "\n".join(t for t in texts if t)
    if not text.strip() and any("Image" in block for block in objects(content)):
        return [Prompt("", unanswered="empty")]
    return user_acts(text)


def _agent(agent: dict[str, Any]) -> list[Act]:
    acts: list[Act] = []
    for block in objects(agent.get("content")):
        if "Text" in block:
            acts.append(AgentText(string(block["Text"])))
        elif "Thinking" in block:
            acts.append(Thinking(string(mapping(block["Thinking"]).get("text"))))
        elif "ToolUse" in block:
            acts.append(_use(mapping(block["ToolUse"])))
    for call, result in mapping(agent.get("tool_results")).items():
        content = mapping(result).get("content")
        text = content.get("Text") if isinstance(content, dict) and "Text" in content else content
        acts.append(ToolResult(str(call), readable(text)))
    return acts or [AgentText("")]


def _use(use: dict[str, Any]) -> Act:
    return ToolUse(string(use.get("id")), string(use.get("name")), use.get("input") or {})
