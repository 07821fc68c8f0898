"""Goose, Continue, Mistral Vibe, Hermes, Zed: what identifies a session, and their databases and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from backfill.sources import UnitResult, databases
from tests.claude_lines import read, texts
from tests.sources.agent_files import (
    CASES,
    CHAT,
    GOOSE,
    VIBE,
    database,
    fates,
    jsonl,
    read_tree,
    told,
    write_tree,
)
from tests.sources.contract import Case


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


def read_case(tmp_path: Path, name: str) -> UnitResult:
    return read(tmp_path, case(name).data, source=case(name).source)


def shown(result: UnitResult) -> list[tuple[Any, ...]]:
    rows = sorted(result.occurrences, key=lambda o: o.byte_start)
    return [(o.session_id, o.anchor, o.cwd, o.title, o.model, o.started_at, o.tz_assumed) for o in rows]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("goose", ("20260724_1", "m1", "/w/shop", "Carts", "", 1_784_278_801_000_000, False)),
        ("continue", ("s-1", "1", "/w/shop", "Carts", "", None, False)),
        ("mistral_vibe", ("v-1", "2", "/w/shop", "Carts", "m-1", 1_796_934_849_500_000, True)),
        ("hermes", ("h-1", "2", "/w/shop", "", "m-1", None, False)),
    ],
)
def test_what_stands_beside_the_first_exchange(tmp_path: Path, name: str, expected: tuple[Any, ...]) -> None:
    result = read_case(tmp_path, name)
    assert shown(result)[0] == expected
    tool = result.exchanges[0].tools[0]
    assert (tool.name, tool.input, tool.head) == ("shell", "ls -la", "a.py b.py")
    assert result.exchanges[0].thinking == "quietly"


def test_documents_with_a_message_per_range(tmp_path: Path) -> None:
    data = case("hermes").data
    result = read(tmp_path, data)
    for o in result.occurrences:
        own = json.loads(b"[" + data[o.byte_start : o.byte_end] + b"]")
        assert own[0]["role"] == "user"
    assert [(n, state, reason) for _, n, state, reason in fates(result)] == [
        (1, "skipped", "system"), (4, "part_of", ""), (1, "part_of", ""), (1, "skipped", "meta"),
    ]  # fmt: skip


def test_odd_messages_do_not_stop_a_document(tmp_path: Path) -> None:
    odd = [5, None, "x", {}, {"role": 7, "content": {"a": 1}}, {"role": "user", "content": [{"type": "image_url"}]}]
    for value in (
        {"session_id": "h", "session_start": 1, "messages": [*odd, *CHAT]},
        {"sessionId": "c", "history": [*odd, *({"message": m} for m in (*odd, *CHAT))]},
        {"metadata": VIBE, "messages": [*odd, *CHAT]},
        {"sessionId": "c", "history": []},
    ):
        result = read(tmp_path, json.dumps(value).encode())
        assert result.agent in ("hermes", "continue", "mistral_vibe")
        assert texts(result) == ([("Fix the cart", "Fixed."), ("Thanks", "")] if value.get("history") != [] else [])


def test_the_folder_of_vibe(tmp_path: Path) -> None:
    injected = {"role": "user", "content": "reminder", "injected": True}
    write_tree(tmp_path, {"session_1/meta.json": VIBE, "session_1/messages.jsonl": jsonl([*CHAT[1:5], injected])})
    (result,) = read_tree(tmp_path)
    assert told(result) == [("Fix the cart", "Fixed.")]
    (o,) = result.occurrences
    assert (o.session_id, o.anchor, o.source, o.byte_start) == ("v-1", "1", "session_1/messages.jsonl", 0)
    assert (o.branch, o.title, o.cwd) == ("main", "Carts", "/w/shop")
    assert fates(result) == [
        ("session_1/meta.json", 1, "skipped", "meta"),
        ("session_1/messages.jsonl", 4, "part_of", ""),
        ("session_1/messages.jsonl", 1, "skipped", "injected"),
    ]


def goose(tmp_path: Path) -> UnitResult:
    script = """
        CREATE TABLE sessions (id TEXT PRIMARY KEY, description TEXT, working_dir TEXT);
        CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT,
            created_timestamp INTEGER, metadata_json TEXT);
    """
    messages: list[tuple[Any, ...]] = [
        (n, m.get("id"), "20260724_1", m["role"], json.dumps(m["content"]), m["created"], json.dumps(m.get("metadata")))
        for n, m in enumerate(GOOSE[1:])
    ]
    messages.append((99, "x", "20260724_1", "user", "{", 1, None))
    sessions: list[tuple[Any, ...]] = [("20260724_1", "Carts", "/w/shop")]
    database(tmp_path / "sessions.db", script, {"sessions": sessions, "messages": messages})
    (result,) = read_tree(tmp_path)
    return result


def test_the_database_of_goose_gives_what_its_file_gives(tmp_path: Path) -> None:
    result = goose(tmp_path)
    assert result.agent == "goose"
    assert texts(result) == list(case("goose").exchanges)
    assert shown(result) == shown(read_case(tmp_path / "..", "goose"))
    assert [r.reason for r in result.ledger if r.state == "quarantined"] == ["not_json"]


def hermes(tmp_path: Path) -> UnitResult:
    script = """
        CREATE TABLE sessions (id TEXT PRIMARY KEY, title TEXT, model TEXT, started_at REAL, parent_session_id TEXT);
        CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_call_id TEXT,
            tool_calls TEXT, reasoning TEXT, timestamp REAL);
    """
    messages = [
        (
            n, "h-1", m["role"], m["content"], m.get("tool_call_id"), json.dumps(m.get("tool_calls")),
            m.get("reasoning_content"), 1_784_278_801.5 + n,
        )
        for n, m in enumerate(CHAT)
    ]  # fmt: skip
    sessions: list[tuple[Any, ...]] = [("h-1", "Carts", "m-1", 1_784_278_801.0, "h-0")]
    database(tmp_path / "state.db", script, {"sessions": sessions, "messages": messages})
    (result,) = read_tree(tmp_path)
    return result


def test_the_database_of_hermes(tmp_path: Path) -> None:
    result = hermes(tmp_path)
    assert (result.agent, texts(result)) == ("hermes", list(case("hermes").exchanges))
    first = min(result.occurrences, key=lambda o: o.byte_start)
    assert (first.title, first.parent_session, first.started_at) == ("Carts", "h-0", 1_784_278_802_500_000)


THREADS = """
    CREATE TABLE threads (id TEXT PRIMARY KEY, summary TEXT NOT NULL, updated_at TEXT NOT NULL, data_type TEXT NOT NULL,
        data BLOB NOT NULL, parent_id TEXT, folder_paths TEXT, created_at TEXT);
"""
OLD = {
    "version": "0.2.0",
    "messages": [
        {"role": "user", "segments": [{"type": "text", "text": "Where is it?"}]},
        {
            "role": "assistant",
            "segments": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Here."}],
            "tool_uses": [{"id": "t1", "name": "grep", "input": {"pattern": "it"}}],
        },
        {"role": "user", "segments": [], "tool_results": []},
        {"role": "system", "segments": []},
    ],
}
NEW = {
    "version": "0.3.0",
    "title": "Carts",
    "messages": [
        {"User": {"id": "u1", "content": [{"Text": "Fix the cart"}, {"Mention": {"uri": "x"}}]}},
        {
            "Agent": {
                "content": [
                    {"Thinking": {"text": "quietly", "signature": None}},
                    {"ToolUse": {"id": "t1", "name": "terminal", "input": {"command": "ls"}}},
                    {"Text": "Fixed."},
                ],
                "tool_results": {"t1": {"content": {"Text": "a.py"}, "is_error": False}},
            }
        },
        "Resume",
        {"User": {"id": "u2", "content": [{"Image": {"source": ""}}]}},
    ],
}


def zed(tmp_path: Path) -> UnitResult:
    packed = zstandard.ZstdCompressor().compress(json.dumps(NEW).encode())
    when = "2026-07-19T08:00:00+00:00"
    rows = [
        ("new", "s", when, "zstd", packed, None, "/w/shop", when),
        ("old", "Old thread", when, "json", json.dumps(OLD), "new", None, when),
        ("torn", "x", when, "zstd", packed[:-9], None, None, when),
        ("wrong", "x", when, "json", "[1]", None, None, when),
    ]
    database(tmp_path / "threads.db", THREADS, {"threads": rows})
    (result,) = read_tree(tmp_path)
    return result


def test_both_shapes_of_zed(tmp_path: Path) -> None:
    result = zed(tmp_path)
    assert result.agent == "zed"
    assert sorted(texts(result)) == [("Fix the cart", "Fixed."), ("Where is it?", "Here.")]
    by_session = {o.session_id: o for o in result.occurrences}
    new, old = by_session["new"], by_session["old"]
    assert (new.anchor, new.title, new.cwd, new.started_at) == ("u1", "Carts", "/w/shop", 1_784_448_000_000_000)
    assert (old.anchor, old.title, old.parent_session) == ("2", "Old thread", "new")
    tools = {t.name: (t.input, t.head) for e in result.exchanges for t in e.tools}
    assert tools == {"terminal": ("ls", "a.py"), "grep": ("it", "")}
    assert {(s, reason) for s, _, state, reason in fates(result) if state == "quarantined"} == {
        ("threads.db!torn", "not_zstd_json"),
        ("threads.db!wrong", "not_json"),
    }


def test_a_frame_that_unpacks_to_too_much_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.sources.zed.MAX_VALUE_BYTES", 100)
    assert {s for s, _, state, _ in fates(zed(tmp_path)) if state == "quarantined"} >= {"threads.db!new"}


def test_a_value_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "MAX_VALUE_BYTES", 50)
    assert {(s, reason) for s, _, state, reason in fates(zed(tmp_path)) if state == "quarantined"} >= {
        ("threads.db!old", "not_json")
    }


def test_other_databases_are_no_transcripts(tmp_path: Path) -> None:
    database(tmp_path / "cookies.db", "CREATE TABLE cookies (a); CREATE VIEW sessions AS SELECT a FROM cookies;", {})
    (result,) = read_tree(tmp_path)
    assert fates(result) == [("cookies.db", 0, "skipped", "not_transcript")]


def test_a_damaged_database_is_quarantined(tmp_path: Path) -> None:
    zed(tmp_path)
    data = bytearray((tmp_path / "threads.db").read_bytes())
    for at in range(200, len(data)):
        data[at] ^= 0x5A
    (tmp_path / "threads.db").write_bytes(bytes(data))
    (result,) = read_tree(tmp_path)
    assert ("threads.db", 0, "quarantined", "damaged") in fates(result)
