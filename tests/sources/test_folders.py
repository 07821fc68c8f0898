"""Laws of units that are folders or databases: every byte is accounted for, growth shows what the whole shows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill.config import Config
from backfill.rundir import RunDir
from backfill.scan import list_units, plan_scan, scan_shard, scan_summary
from backfill.sources import UnitResult
from backfill.sources.units import Concatenation, UnitFile
from tests.sources import test_cursor, test_more_agents, test_opencode
from tests.sources.agent_files import CHAT, TASK, VIBE, fates, jsonl, read_tree, write_tree
from tests.sources.test_cline import SHOWN

TASK_FOLDER = "tasks/1772000000000"
FOLDERS: dict[str, dict[str, Any]] = {
    "opencode": test_opencode.tree(),
    "cline": {f"{TASK_FOLDER}/api_conversation_history.json": TASK, f"{TASK_FOLDER}/ui_messages.json": SHOWN},
    "mistral_vibe": {"s/meta.json": VIBE, "s/messages.jsonl": jsonl(CHAT)},
}
WORDS = ("Where is the lock?", "In db.py.", "look around", "Fix the cart", "And the tax?", "Fixed.", "a.py b.py")
DATABASES: dict[str, Callable[[Path], UnitResult]] = {
    "opencode": test_opencode.read_database,
    "cursor": test_cursor.state,
    "cursor-store": test_cursor.store,
    "goose": test_more_agents.goose,
    "hermes": test_more_agents.hermes,
    "zed": test_more_agents.zed,
}


def shown(results: list[UnitResult]) -> set[tuple[str, str, str, str]]:
    """(session, anchor, user_text, agent_text) of the newest reading of each key."""
    newest: dict[tuple[str, str, int], tuple[int, str, str]] = {}
    for result in results:
        rows = {e.exchange_id: e for e in result.exchanges}
        for o in result.occurrences:
            key, row = (o.session_id, o.anchor, o.part), rows[o.exchange_id]
            newest[key] = max(newest.get(key, (0, "", "")), (o.n_records, row.user_text, row.agent_text))
    return {(key[0], key[1], user, agent) for key, (_, user, agent) in newest.items()}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_with_any_file_cut_or_broken_is_accounted_for(tmp_path: Path, name: str) -> None:
    chance = random.Random(3)
    for n in range(25):
        folder = tmp_path / str(n)
        write_tree(folder, FOLDERS[name])
        for path in folder.rglob("*.json*"):
            data = bytearray(path.read_bytes())
            if chance.random() < 0.3:
                data = data[: chance.randrange(len(data))]
            elif chance.random() < 0.3:
                data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(bytes(data))
        read_tree(folder)  # asserts that every file tiles and that every reference exists


@pytest.mark.parametrize("name", FOLDERS)
def test_the_text_of_each_record_is_found_in_its_exchange(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path, FOLDERS[name])
    (result,) = read_tree(tmp_path)
    rows = {e.exchange_id: e for e in result.exchanges}
    n = 0
    for row in result.ledger:
        if row.state != "part_of" or row.ref is None:
            continue
        data = (tmp_path / row.source).read_bytes()[row.byte_start : row.byte_end].strip(b"[], \n")
        exchange = rows[row.ref]
        held = exchange.user_text + exchange.agent_text + exchange.thinking + "".join(t.head for t in exchange.tools)
        for word in (
            "Where is the lock?",
            "In db.py.",
            "look around",
            "Fix the cart",
            "And the tax?",
            "Fixed.",
            "a.py b.py",
        ):
            if word.encode() in data:
                assert word in held
                n += 1
    assert n >= 2


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_cut_or_broken_anywhere_is_accounted_for(tmp_path: Path, name: str) -> None:
    whole = DATABASES[name](tmp_path)
    (path,) = (p for p in tmp_path.iterdir() if p.is_file())
    data = path.read_bytes()
    assert whole.occurrences
    chance = random.Random(5)
    for _ in range(20):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 30)):
            broken[chance.randrange(16, len(broken))] = chance.randrange(256)
        path.write_bytes(bytes(broken[: chance.choice([len(broken), chance.randrange(len(broken))])]))
        read_tree(tmp_path)


def test_a_task_that_grows_shows_what_the_whole_shows(tmp_path: Path) -> None:
    readings = []
    for n in range(1, len(TASK) + 1):
        files = {f"{TASK_FOLDER}/api_conversation_history.json": TASK[:n]}
        if n % 2:
            files[f"{TASK_FOLDER}/history_item.json"] = [{"ts": n}]
        write_tree(tmp_path, files)
        readings += read_tree(tmp_path)
    assert shown(readings) == shown(readings[-1:])


def test_lines_that_are_appended_beside_metadata_show_what_the_whole_shows(tmp_path: Path) -> None:
    data = jsonl(CHAT)
    readings = []
    for size in (60, 150, 240, 333, len(data)):
        write_tree(tmp_path, {"s/meta.json": VIBE | {"end": size}, "s/messages.jsonl": data[:size]})
        readings += read_tree(tmp_path)
    assert shown(readings) == shown(readings[-1:])


def test_a_plan_freezes_folders_and_reads_them_again_when_they_grew(tmp_path: Path) -> None:
    source, run = tmp_path / "src", RunDir(tmp_path / "run")
    write_tree(source, FOLDERS["opencode"])
    run.make()
    plan = plan_scan(run, Config(), [str(source)])
    assert plan == run.plan() == plan_scan(run, Config(), [str(source)])
    (unit,) = plan.scan_shards[0].units
    assert (len(unit.members), unit.total_bytes) == (19, sum(p.stat().st_size for p in source.rglob("*.json")))
    scan_shard(run, plan, 0, lambda: False)
    summary = scan_summary(run, plan, 0.0)
    assert (summary["files"], summary["exchanges"], summary["balanced"]) == (20, 2, True)
    write_tree(source, {"storage/part/msg_7/prt_71.json": test_opencode.part(71, 7, "text", text="More.")})
    grown = plan_scan(run, Config(), [str(source)])
    assert [len(shard.units[0].members) for shard in grown.scan_shards] == [19, 20]


def test_only_the_planned_bytes_are_read(tmp_path: Path) -> None:
    write_tree(tmp_path, FOLDERS["mistral_vibe"])
    (unit,) = list_units([str(tmp_path)]).units
    with (tmp_path / "s/messages.jsonl").open("ab") as file:
        file.write(b"later")
    stream = Concatenation([UnitFile(tmp_path / s, s, size) for s, size in unit.sizes.items()])
    data = b""
    while piece := stream.read(50):
        data += piece
    assert data == json.dumps(VIBE).encode() + jsonl(CHAT)
    assert stream.n_read == list(unit.sizes.values())


def test_a_log_without_its_database_is_read_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.db-wal": b"7\x7f\x06\x82", "b.db-shm": b""})
    assert [fates(r) for r in read_tree(tmp_path)] == [
        [("a.db-wal", 0, "skipped", "not_transcript")],
        [("b.db-shm", 0, "skipped", "empty")],
    ]
