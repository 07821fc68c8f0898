"""Cursor: transcripts without ids, the editor's database, the command line's store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backfill.sources import UnitResult
from tests.claude_lines import read, texts
from tests.sources.agent_files import CASES, database, fates, jsonl, read_tree, text, told

MS = 1_772_000_000_000
STATE = """
    CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
    CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
"""
TOOL = {"name": "grep", "toolCallId": "t1", "rawArgs": '{"pattern": "total"}', "result": '{"hits": 2}'}
BUBBLES: dict[str, dict[str, Any]] = {
    "b1": {"type": 1, "text": "Fix the cart", "createdAt": "2026-02-25T06:13:20.000Z"},
    "b2": {"type": 2, "text": "", "thinking": {"text": "hm"}, "timingInfo": {"clientStartTime": MS + 1000}},
    "b3": {"type": 2, "text": "I look.", "toolFormerData": TOOL, "modelInfo": {"modelName": "m-1"}},
    "b4": {"type": 1, "text": "And the tax?"},
}
EXPECTED = [("Fix the cart", "I look."), ("And the tax?", "")]


def state(folder: Path, *, inline: bool = False) -> UnitResult:
    listed = [{"bubbleId": b, "type": v["type"]} for b, v in BUBBLES.items()] + [{"bubbleId": "gone", "type": 2}]
    composer: dict[str, Any] = {"name": "Carts", "createdAt": MS, "fullConversationHeadersOnly": listed}
    rows = [(f"bubbleId:c1:{b}", json.dumps(v)) for b, v in BUBBLES.items()]
    if inline:
        composer = {"name": "Carts", "conversation": [{"bubbleId": b} | v for b, v in BUBBLES.items()]}
        rows = []
    else:
        rows += [("bubbleId:c1:old", json.dumps({"type": 1, "text": "rewound"})), ("other", "1")]
    rows.append(("composerData:c1", json.dumps(composer)))
    database(folder / "state.vscdb", STATE, {"cursorDiskKV": rows, "ItemTable": [("k", b"\x00\xff")]})
    (result,) = read_tree(folder)
    return result


def test_the_editors_database(tmp_path: Path) -> None:
    result = state(tmp_path)
    assert (result.agent, told(result)) == ("cursor", list(reversed(EXPECTED)))  # the second prompt has no time
    by_anchor = {o.anchor: o for o in result.occurrences}
    first = by_anchor["b1"]
    assert (first.session_id, first.title, first.model, first.source) == ("c1", "Carts", "m-1", "state.vscdb!c1")
    assert (first.started_at, first.ended_at, first.byte_start) == (MS * 1000, (MS + 1000) * 1000, 1)
    assert (by_anchor["b4"].started_at, by_anchor["b4"].n_records) == (None, 5)
    exchange = next(e for e in result.exchanges if e.tools)
    assert exchange.thinking == "hm"
    assert [(t.name, t.input, t.head) for t in exchange.tools] == [("grep", "total", '{"hits": 2}')]
    assert fates(result) == [
        ("state.vscdb", 0, "container", ""),
        ("state.vscdb!c1", 1, "skipped", "meta"),
        ("state.vscdb!c1", 3, "part_of", ""),
        ("state.vscdb!c1", 1, "part_of", ""),
        ("state.vscdb!c1", 1, "skipped", "detached"),
        ("state.vscdb!rest", 2, "skipped", "meta"),
    ]


def test_bubbles_inside_their_composer(tmp_path: Path) -> None:
    result = state(tmp_path, inline=True)
    assert sorted(told(result)) == sorted(EXPECTED)
    assert fates(result)[-1] == ("state.vscdb!rest", 1, "skipped", "meta")


def test_the_log_beside_a_database_is_honoured(tmp_path: Path) -> None:
    import shutil
    import sqlite3

    live = tmp_path / "live"
    live.mkdir()
    connection = sqlite3.connect(live / "state.vscdb")
    connection.executescript("PRAGMA journal_mode=WAL;" + STATE)
    connection.execute("INSERT INTO cursorDiskKV VALUES ('composerData:c1', ?)", [json.dumps({"name": "x"})])
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    bubble = json.dumps({"conversation": [{"bubbleId": "b", "type": 1, "text": "In the log"}]})
    connection.execute("INSERT INTO cursorDiskKV VALUES ('composerData:c1', ?)", [bubble])
    connection.commit()
    shutil.copytree(live, tmp_path / "copy")
    before = {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()}
    (result,) = read_tree(tmp_path / "copy")
    connection.close()
    assert told(result) == [("In the log", "")]
    assert {s for s, _, state, _ in fates(result) if state == "container"} == set(before)
    assert {p.name: p.read_bytes() for p in (tmp_path / "copy").iterdir()} == before


STORED = [bytes([n]) * 32 for n in range(1, 6)]


def store(tmp_path: Path) -> UnitResult:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are"},
        {
            "role": "user",
            "content": [text("<user_info>x</user_info>"), text("<user_query>\nRun ls\n</user_query>")],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "quietly"},
                {"type": "tool-call", "toolCallId": "t1", "toolName": "Shell", "args": {"command": "ls"}},
            ],
        },
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "t1", "result": "a.py"}],
        },
        {"role": "assistant", "content": "One file."},
    ]
    root = b"".join(b"\x0a\x20" + i for i in STORED) + b"\x10\x05\x1a\x02hi"
    blobs = [(i.hex(), json.dumps(m).encode()) for i, m in reversed(list(zip(STORED, messages, strict=True)))]
    blobs += [("root", root), ("old", json.dumps({"role": "user", "content": "rewound"}).encode())]
    meta = {"agentId": "a-1", "name": "Files", "createdAt": MS, "lastUsedModel": "m-1", "latestRootBlobId": "root"}
    script = "CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB); CREATE TABLE meta (key TEXT, value TEXT);"
    database(tmp_path / "store.db", script, {"blobs": blobs, "meta": [("0", json.dumps(meta).encode().hex())]})
    (result,) = read_tree(tmp_path)
    return result


def test_the_command_lines_store(tmp_path: Path) -> None:
    result = store(tmp_path)
    assert (result.agent, told(result)) == ("cursor", [("Run ls", "One file.")])
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [("Shell", "ls", "a.py")]
    (occurrence,) = result.occurrences
    assert (occurrence.session_id, occurrence.anchor, occurrence.title) == ("a-1", STORED[1].hex(), "Files")
    assert fates(result)[-1] == ("store.db!a-1", 1, "skipped", "detached")


def test_transcripts_are_named_by_their_file(tmp_path: Path) -> None:
    uuid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    source = f"projects/home-ana-shop/agent-transcripts/{uuid}/subagents/{uuid[::-1].replace('-', '0')}.jsonl"
    result = read(tmp_path, CASES[2].data, source=source)
    assert {(o.session_id, o.parent_session, o.project) for o in result.occurrences} == {
        (source, uuid, "home-ana-shop")
    }
    plain = read(tmp_path, CASES[2].data, source=f"p/agent-transcripts/{uuid}.jsonl")
    assert [(o.session_id, o.anchor) for o in plain.occurrences] == [(uuid, "1"), (uuid, "5")]
    assert [(t.name, t.head) for t in plain.exchanges[0].tools] == [("Shell", "a.py b.py")]


def test_two_queries_in_one_message_and_an_image(tmp_path: Path) -> None:
    two = text("<user_query>One</user_query><attached/><user_query>Two</user_query>")
    image = {"role": "user", "message": {"content": [{"type": "image"}]}}
    agent = {"role": "assistant", "message": {"content": "Yes."}}
    result = read(tmp_path, jsonl([{"role": "user", "message": {"content": [two]}}, agent, image, agent]))
    assert texts(result) == [("One\n\nTwo", "Yes."), ("", "Yes.")]
