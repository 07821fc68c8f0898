"""SWE-agent and mini-swe-agent: which messages are the task, results and calls, times, working directory, bad parts."""

from __future__ import annotations

import json
from pathlib import Path

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.sources import read_unit
from tests.claude_lines import read, texts
from tests.sources.traj_files import (
    dump,
    mini_document,
    mini_list,
    mini_messages,
    openai_call,
    swe_calls,
    swe_document,
    swe_history,
)


def test_observations_of_the_user_are_results_of_the_step_before(tmp_path: Path) -> None:
    result = read(tmp_path, dump(swe_document()), source="runs/t.traj")
    (row,) = result.exchanges
    assert [(t.name, t.input, t.paths, t.actions, t.head) for t in row.tools] == [
        ("open", "open clock.py\n", ("clock.py",), ("read",), "[File: clock.py]\r\n1:tick mark-seen"),
        ("bash", "submit", (), (), "diff --git mark-diff"),
    ]
    (place,) = result.occurrences
    assert (place.session_id, place.anchor, place.project, place.started_at) == ("runs/t.traj", "2", "runs", None)


def test_the_trajectory_and_demonstrations_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    result = read(tmp_path, dump(swe_document()))
    assert [(r.n_records, r.state, r.reason) for r in result.ledger] == [
        (2, "skipped", "repeated"),
        (1, "skipped", "system"),
        (1, "skipped", "demonstration"),
        (5, "part_of", ""),
        (1, "skipped", "meta"),
    ]


def test_calls_and_their_results_meet_by_id(tmp_path: Path) -> None:
    (row,) = read(tmp_path, dump(swe_calls())).exchanges
    assert [(t.name, t.paths, t.actions, t.head) for t in row.tools] == [("open", ("a.py",), ("read",), "1: mark-line")]
    assert row.thinking == "mark-thought"


def test_a_long_run_is_one_exchange_of_many_parts(tmp_path: Path) -> None:
    steps = []
    for k in range(80):
        steps += [
            {
                "role": "assistant",
                "content": f"Step {k}. " + "x" * 400,
                "tool_calls": [openai_call(f"c{k}", "bash", command="ls")],
            },
            {"role": "tool", "content": "ok", "tool_call_id": f"c{k}"},
        ]
    result = read(tmp_path, dump(mini_document(mini_messages()[:2] + steps)), split_tokens=500)
    assert {(o.session_id, o.anchor) for o in result.occurrences} == {("proj/s.jsonl", "2")}
    assert [o.part for o in result.occurrences] == list(range(16))
    assert sum(len(e.tools) for e in result.exchanges) == 80


def test_mini_takes_time_directory_and_model(tmp_path: Path) -> None:
    (place,) = read(tmp_path, dump(mini_document())).occurrences
    assert (place.cwd, place.model) == ("/testbed", "some/model")
    assert (place.started_at, place.ended_at, place.tz_assumed) == (1775793867500000, 1775793900000000, False)


def test_the_exit_message_is_the_last_calls_result_or_an_error(tmp_path: Path) -> None:
    (row,) = read(tmp_path, dump(mini_document())).exchanges
    assert [t.head for t in row.tools] == ["<returncode>0</returncode> mark-out", "diff --git mark-patch"]
    failed = [*mini_messages()[:2], {"role": "exit", "content": "Timeout", "extra": {"exception_str": "Timeout"}}]
    result = read(tmp_path, dump(mini_document(failed)))
    assert texts(result) == [("Fix the lock: mark-lock", "")]
    assert [(r.state, r.reason) for r in result.ledger if r.reason == "api_error"] == [("skipped", "api_error")]


def test_commands_of_version_one_stand_in_the_answer(tmp_path: Path) -> None:
    result = read(tmp_path, dump(mini_list()))
    first, second = result.exchanges
    assert [(t.name, t.input, t.head) for t in first.tools] == [
        ("bash", "echo mark-echo", "<returncode>0</returncode>\n<output>\nmark-echoed\n</output>")
    ]
    assert [(t.name, t.input, t.head) for t in second.tools] == [("bash", "echo HELLO", "")]


def test_a_message_that_does_not_parse_costs_no_other(tmp_path: Path) -> None:
    data = dump(mini_document()).replace(b"I list.", b"I \\user@example.com list.")
    result = read(tmp_path, data)
    assert texts(result) == [("Fix the lock: mark-lock", "I submit.")]
    assert [(r.n_records, r.state, r.reason) for r in result.ledger if r.state == "quarantined"] == [
        (1, "quarantined", "not_json")
    ]


def test_a_document_that_is_still_being_written_is_pending(tmp_path: Path) -> None:
    data = dump({"history": swe_history()})
    cut = data.index(b"Done, mark-done")
    result = read(tmp_path, data[:cut])
    assert [(r.n_records, r.state) for r in result.ledger][-1] == (1, "pending")
    assert "mark-look" in texts(result)[0][1]


def test_values_of_unexpected_types_and_lone_surrogates(tmp_path: Path) -> None:
    history = swe_history()
    history[3] |= {"role": "assistant", "action": 7, "tool_calls": "none", "content": "low \ud800 half"}
    result = read(tmp_path, json.dumps({"history": history}).encode())
    assert texts(result)[0][1].startswith("low \ufffd half\n\nDone")
    assert result.decode_errors == 1


def test_real_runs_are_one_exchange_each(shared_data: Path) -> None:
    for folder, name in (("swe_agent", "swe_agent"), ("mini_swe_agent", "mini_swe_agent")):
        root = shared_data / "transcripts"
        for path in sorted(p for p in (root / folder).rglob("*") if p.is_file()):
            size = path.stat().st_size
            result = read_unit(path, path.relative_to(root).as_posix(), size, ScanConfig(privacy="off"))
            assert result.agent == name
            assert len({(o.session_id, o.anchor) for o in result.occurrences}) == 1, path
            ids = {e.exchange_id for e in result.exchanges}
            assert check(result.ledger, {path.relative_to(root).as_posix(): size}, ids) == []
