"""OpenCode: the tree of files as one unit, the database, the plugin's transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill.sources import UnitResult, read_unit
from backfill.sources.units import gather
from tests.claude_lines import read
from tests.sources.agent_files import CASES, database, fates, jsonl, read_tree, told, write_tree

MS = 1_772_000_000_000
SESSION = {
    "id": "ses_1", "projectID": "p", "directory": "/home/ana/shop", "title": "Carts", "time": {"created": MS},
}  # fmt: skip


def message(n: int, role: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"msg_{n}", "sessionID": "ses_1", "role": role, "time": {"created": MS + n * 1000}} | fields


def part(n: int, m: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"prt_{n}", "sessionID": "ses_1", "messageID": f"msg_{m}", "type": kind} | fields


MESSAGES = [
    message(1, "user"),
    message(2, "assistant", modelID="m-1"),
    message(3, "user"),
    message(4, "assistant", error={"name": "Aborted"}),
    message(5, "user"),
    message(6, "assistant", summary=True),
    message(7, "assistant"),
]
TOOL = {"status": "completed", "input": {"command": "ls"}, "output": "db.py", "time": {"start": MS + 2500}}
PARTS = [
    part(10, 1, "text", text="Where is the lock?"),
    part(11, 1, "text", text="<file>contents</file>", synthetic=True),
    part(12, 1, "text", text="In which file?"),
    part(20, 2, "step-start"),
    part(21, 2, "reasoning", text="look around"),
    part(22, 2, "tool", callID="c1", tool="bash", state=TOOL),
    part(23, 2, "text", text="In db.py."),
    part(30, 3, "file", mime="image/png", url="data:..."),
    part(40, 4, "text", text="A picture."),
    part(50, 5, "compaction", auto=True),
    part(60, 6, "text", text="Summary of all"),
    part(70, 7, "text", text="Going on."),
]
EXPECTED = [("Where is the lock?\n\nIn which file?", "In db.py."), ("", "A picture.\n\nGoing on.")]


def tree(prefix: str = "storage/") -> dict[str, Any]:
    files: dict[str, Any] = {f"{prefix}session/p/ses_1.json": SESSION}
    files |= {f"{prefix}message/ses_1/{m['id']}.json": m for m in MESSAGES}
    return files | {f"{prefix}part/{p['messageID']}/{p['id']}.json": p for p in PARTS}


def holds(result: UnitResult) -> None:
    """What both layouts must give."""
    assert result.agent == "opencode"
    assert told(result) == EXPECTED
    first, second = sorted(result.occurrences, key=lambda o: o.started_at or 0)
    assert (first.session_id, first.anchor, second.anchor) == ("ses_1", "msg_1", "msg_3")
    assert (first.cwd, first.project, first.title, first.model) == ("/home/ana/shop", "shop", "Carts", "m-1")
    assert (first.started_at, first.ended_at, first.tz_assumed) == ((MS + 1000) * 1000, (MS + 2500) * 1000, False)
    assert (first.n_records, first.open, second.n_records, second.open) == (13, False, 20, True)
    exchange = next(e for e in result.exchanges if e.thinking)
    assert exchange.thinking == "look around"
    assert [(t.name, t.input, t.head) for t in exchange.tools] == [("bash", "ls", "db.py")]


def test_a_tree_of_files_is_one_unit(tmp_path: Path) -> None:
    write_tree(tmp_path, tree())
    (result,) = read_tree(tmp_path)
    holds(result)
    assert {o.source for o in result.occurrences} == {
        "storage/part/msg_1/prt_10.json",
        "storage/part/msg_3/prt_30.json",
    }
    for o in result.occurrences:
        data = (tmp_path / o.source).read_bytes()
        assert json.loads(data[o.byte_start : o.byte_end])["type"] in ("text", "file")
    reasons = {Path(s).stem: (n, state, reason) for s, n, state, reason in fates(result)}
    assert len(reasons) == 20
    assert reasons["ses_1"] == reasons["msg_1"] == (1, "skipped", "meta")
    assert reasons["prt_11"] == (1, "skipped", "injected")
    assert reasons["msg_2"] == reasons["prt_22"] == reasons["prt_30"] == (1, "part_of", "")
    assert reasons["prt_50"] == reasons["prt_60"] == (1, "skipped", "compact_summary")


@pytest.mark.parametrize("layout", ["flat", "renamed", "old"])
def test_other_layouts_give_the_same(tmp_path: Path, layout: str) -> None:
    files = tree()
    if layout == "flat":  # parts without a folder of their message
        files = {k.replace(f"/part/{k.split('/')[2]}/", "/part/"): v for k, v in files.items()}
    elif layout == "renamed":  # file names that are not ids
        names = {m["id"]: f"msg_000{n}" for n, m in enumerate(MESSAGES)}
        files = {k.replace(f"ses_1/{Path(k).stem}", f"ses_1/{names.get(Path(k).stem)}"): v for k, v in files.items()}
    else:
        files = {
            k.replace("storage/session/p/", "storage/session/info/")
            .replace("storage/message/", "storage/session/message/")
            .replace("storage/part/", "storage/session/part/ses_1/"): v
            for k, v in files.items()
        }
    write_tree(tmp_path, files)
    (result,) = read_tree(tmp_path)
    assert told(result) == EXPECTED
    assert {o.anchor for o in result.occurrences} >= {"msg_1"}


def test_the_database_gives_the_same(tmp_path: Path) -> None:
    holds(read_database(tmp_path))


def read_database(tmp_path: Path) -> UnitResult:
    script = """
        CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, time_created INT);
        CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INT, data TEXT);
        CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
        CREATE TABLE project (id TEXT);
    """
    rows: dict[str, list[tuple[Any, ...]]] = {
        "session": [("ses_1", None, "/home/ana/shop", "Carts", MS)],
        "message": [(m["id"], "ses_1", m["time"]["created"], json.dumps({"role": m["role"]} | m)) for m in MESSAGES],
        "part": [(p["id"], p["messageID"], "ses_1", json.dumps(p)) for p in PARTS],
        "project": [("p",), ("q",)],
    }
    database(tmp_path / "opencode.db", script, rows)
    (result,) = read_tree(tmp_path)
    assert fates(result)[0] == ("opencode.db", 0, "container", "")
    assert fates(result)[-1] == ("opencode.db!rest", 2, "skipped", "meta")
    inner = [r for r in result.ledger if r.source == "opencode.db!ses_1"]
    assert (inner[0].byte_start, inner[-1].byte_end, sum(r.n_records for r in inner)) == (0, 20, 20)
    assert {o.source for o in result.occurrences} == {"opencode.db!ses_1"}
    return result


def test_a_cut_database_is_accounted_for(tmp_path: Path) -> None:
    read_database(tmp_path)
    data = (tmp_path / "opencode.db").read_bytes()
    for size in range(0, len(data), 1111):
        (tmp_path / "opencode.db").write_bytes(data[:size])
        read_tree(tmp_path)


def test_a_tree_that_grows_shows_the_same(tmp_path: Path) -> None:
    shown: dict[tuple[str, int], tuple[int, str]] = {}
    for name, value in sorted(tree().items(), key=lambda item: (item[1].get("messageID") or item[1]["id"], item[0])):
        write_tree(tmp_path, {name: value})
        for result in read_tree(tmp_path):
            rows = {e.exchange_id: e.user_text + "|" + e.agent_text for e in result.exchanges}
            for o in result.occurrences:
                new = (o.n_records, rows[o.exchange_id])
                shown[o.anchor, o.part] = max(shown.get((o.anchor, o.part), (0, "")), new)
    assert {text for _, text in shown.values()} == {"|".join(pair) for pair in EXPECTED}


def test_sub_sessions_name_their_parent(tmp_path: Path) -> None:
    child = json.loads(json.dumps(tree("")).replace("ses_1", "ses_2").replace("msg_", "msg_c").replace("prt_", "prt_c"))
    child["session/p/ses_2.json"]["parentID"] = "ses_1"
    write_tree(tmp_path, tree("") | child)
    results = read_tree(tmp_path)
    assert [{(o.session_id, o.parent_session) for o in r.occurrences} for r in results] == [
        {("ses_1", "")},
        {("ses_2", "ses_1")},
    ]


def test_broken_missing_and_orphan_files(tmp_path: Path) -> None:
    files = tree() | {"storage/part/msg_9/prt_90.json": part(90, 9, "text", text="lost")}
    files["storage/part/msg_2/prt_23.json"] = b'{"id": "prt_23", "type"'
    files["storage/part/msg_2/prt_24.json"] = b'{"id": "prt_24" "type"}'
    files["storage/part/msg_2/prt_25.json"] = b""
    files["storage/session/p/ses_9.json"] = SESSION | {"id": "ses_9"}
    write_tree(tmp_path, files)
    found = {Path(s).stem: (state, reason) for r in read_tree(tmp_path) for s, _, state, reason in fates(r)}
    assert found["prt_90"] == ("skipped", "orphan")
    assert found["prt_23"] == ("pending", "")
    assert found["prt_24"] == ("quarantined", "not_json")
    assert found["prt_25"] == ("skipped", "empty")
    assert found["ses_9"] == ("skipped", "meta")


def test_a_file_that_vanished_or_shrank_is_said_to_have(tmp_path: Path) -> None:
    from backfill.config import ScanConfig
    from backfill.scan import list_units
    from backfill.sources.units import UnitFile

    write_tree(tmp_path, tree())
    (unit,) = list_units([str(tmp_path)]).units
    (tmp_path / "storage/part/msg_1/prt_12.json").unlink()
    (tmp_path / "storage/part/msg_2/prt_23.json").write_bytes(b'{"id":')
    members = [UnitFile(tmp_path / m.source, m.source, m.size_bytes) for m in unit.members]
    result = read_unit(tmp_path / unit.source, unit.source, unit.size_bytes, ScanConfig(), members=members)
    assert told(result)[0] == ("Where is the lock?", "")
    apart = {(Path(s).stem, state, reason) for s, _, state, reason in fates(result) if state == "quarantined"}
    assert apart == {("prt_12", "quarantined", "vanished"), ("prt_23", "quarantined", "shrunk")}


def test_folders_of_the_same_names_that_hold_something_else_are_read_apart(tmp_path: Path) -> None:
    write_tree(tmp_path, {"session/a/b.json": {"x": 1}, "message/b/c.json": {"y": 2}, "part/c/d.json": [3]})
    (result,) = read_tree(tmp_path)
    assert [(s, state, reason) for s, _, state, reason in fates(result)] == [
        ("session/a/b.json", "skipped", "not_transcript"),
        ("message/b/c.json", "skipped", "not_transcript"),
        ("part/c/d.json", "skipped", "not_transcript"),
    ]


def test_gathering_keeps_every_file_once(tmp_path: Path) -> None:
    write_tree(tmp_path, tree() | {"a.db": b"", "a.db-wal": b"", "t/1/ui_messages.json": [], "x.json": {}})
    from backfill.scan import list_units

    units = list_units([str(tmp_path)]).units
    names = [name for unit in units for name in unit.sizes]
    on_disk = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(names) == sorted(on_disk)
    assert gather(gather(units)[:0]) == []


def test_the_plugin_pairs_calls_and_results_by_order(tmp_path: Path) -> None:
    result = read(tmp_path, CASES[0].data, source="transcripts/ses_ab.jsonl")
    first = min(result.occurrences, key=lambda o: o.byte_start)
    assert (first.session_id, first.anchor) == ("ses_ab", "1")
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [("grep", "lock-mark", "db.py:12")]
    lone = {"type": "tool_result", "timestamp": 1, "tool_name": "ls", "tool_input": {"path": "."}, "tool_output": ["a"]}
    result = read(tmp_path, jsonl([{"type": "user", "timestamp": 1, "content": "Go"}, lone, lone]))
    assert [(t.name, t.head) for t in result.exchanges[0].tools] == [("ls", "a"), ("ls", "a")]
