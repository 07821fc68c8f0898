"""OpenHands: calls and results, sessions, anchors, times without a zone, what nobody typed."""

from __future__ import annotations

import json
from pathlib import Path

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.scan import list_units
from backfill.sources import read_unit
from backfill.sources.units import UnitFile
from tests.claude_lines import read, texts
from tests.sources.openhands_files import action, as_lines, events, run_line, sdk_events, seen


def test_actions_and_their_observations_meet(tmp_path: Path) -> None:
    (row,) = read(tmp_path, json.dumps(events()).encode()).exchanges
    assert [(t.name, t.paths, t.head) for t in row.tools] == [
        ("execute_bash", (), "door.py mark-out"),
        ("edit", ("door.py",), "[edited door.py] mark-edited"),
    ]
    assert row.thinking == "mark-thought"


def test_times_without_a_zone_are_marked(tmp_path: Path) -> None:
    (place,) = read(tmp_path, json.dumps(events()).encode(), assume_tz="Europe/Paris").occurrences
    assert (place.started_at, place.ended_at, place.tz_assumed) == (1741078801500000, 1741078812500000, True)
    assert (place.session_id, place.anchor, place.model) == ("proj/s.jsonl", "2", "some/model")


def test_sdk_events_anchor_by_their_ids(tmp_path: Path) -> None:
    result = read(tmp_path, as_lines(sdk_events()))
    assert [(o.anchor, o.session_id) for o in result.occurrences] == [("e1", "proj/s.jsonl"), ("e6", "proj/s.jsonl")]
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [
        ("terminal", "ls mark-ls", "a.py mark-list")
    ]


def test_every_run_of_an_evaluation_is_a_session(tmp_path: Path) -> None:
    ask = [action(0, "message", "user", content="Same?"), action(1, "finish", final_thought="Yes.")]
    result = read(tmp_path, as_lines([run_line(ask, "a"), run_line([], "b"), run_line(ask, "c")]))
    assert [o.session_id for o in result.occurrences] == ["proj/s.jsonl#0", "proj/s.jsonl#2"]
    assert len(result.exchanges) == 1


def test_a_folder_of_event_files_is_one_conversation(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "c1" / "events"
    folder.mkdir(parents=True)
    for k, event in enumerate(sdk_events()):
        (folder / f"event-{k:05d}-{event['id']}.json").write_text(json.dumps(event), encoding="utf-8")
    (unit,) = list_units([str(tmp_path)]).units
    members = [UnitFile(tmp_path / m.source, m.source, m.size_bytes) for m in unit.members]
    result = read_unit(tmp_path / unit.source, unit.source, unit.size_bytes, ScanConfig(), members=members)
    assert sorted(texts(result)) == [
        ("Open it: mark-open", "I list.\n\nOpen."),
        ("Thanks, close it: mark-close", "Closed."),
    ]
    assert [(o.session_id, o.anchor) for o in result.occurrences] == [
        ("conversations/c1", "e1"),
        ("conversations/c1", "e6"),
    ]
    assert check(result.ledger, unit.sizes, {e.exchange_id for e in result.exchanges}) == []


def test_rejections_errors_and_commands_of_a_person(tmp_path: Path) -> None:
    stream = [
        action(0, "message", "user", content="Go"),
        action(1, "run", command="rm -rf x"),
        seen(2, "user_rejected", "No!", 1, source="user"),
        action(3, "run", "user", command="mine"),
        seen(4, "run", "mine too", 3, source="user"),
        seen(5, "error", "model is down", None, source="environment"),
    ]
    result = read(tmp_path, as_lines(stream))
    assert [(t.name, t.head) for t in result.exchanges[0].tools] == [("run", "No!")]
    assert [(r.n_records, r.state, r.reason) for r in result.ledger] == [
        (3, "part_of", ""),
        (2, "skipped", "command"),
        (1, "skipped", "api_error"),
    ]
    assert texts(result) == [("Go", "")]
