"""Codex rollouts: one stream out of two, injected context, old layouts."""

from __future__ import annotations

from pathlib import Path

from backfill.sources import detect
from tests.claude_lines import read, texts
from tests.sources.cli_files import CODEX_CASE, CODEX_META, CODEX_SESSION, codex, codex_event, codex_message, jsonl

ASK = "Rename the cart module to basket"


def states(data: bytes, folder: Path) -> list[tuple[int, str, str]]:
    return [(row.n_records, row.state, row.reason) for row in read(folder, data).ledger]


def test_occurrences_carry_session_anchor_times_and_place(tmp_path: Path) -> None:
    first, second, third = sorted(read(tmp_path, CODEX_CASE.data).occurrences, key=lambda o: o.byte_start)
    assert (first.session_id, first.anchor, first.cwd, first.project, first.branch, first.model) == (
        CODEX_SESSION, "3", "/home/ana/shop", "shop", "main", "gpt-5",
    )  # fmt: skip
    assert [o.anchor for o in (second, third)] == ["13", "16"]
    assert (first.started_at, first.ended_at, first.tz_assumed) == (1_770_091_502_000_000, 1_770_091_506_000_000, False)


def test_the_output_is_taken_out_of_its_wrapping(tmp_path: Path) -> None:
    (tool,) = read(tmp_path, CODEX_CASE.data).exchanges[0].tools
    assert (tool.name, tool.input, tool.head) == ("shell", "bash -lc cat export.py", "lock = flock(fd)")


def test_an_event_before_or_after_its_item_is_a_copy(tmp_path: Path) -> None:
    item, event = codex_message("user", ASK, 1), codex_event("user_message", ASK, 1)
    answer = codex_message("assistant", "Done.", 2)
    for pair in ((item, event), (event, item)):
        data = jsonl(CODEX_META, *pair, answer)
        assert texts(read(tmp_path, data)) == [(ASK, "Done.")]
        assert [s for s in states(data, tmp_path) if s[2] == "event_copy"] == [(1, "skipped", "event_copy")]


def test_an_event_that_differs_a_little_from_its_item_is_counted_once(tmp_path: Path) -> None:
    data = jsonl(
        CODEX_META,
        codex_message("user", f"# Context from my IDE setup:\n- a.py\n\n## My request for Codex:\n{ASK}\n", 1),
        codex_event("user_message", f"{ASK} ", 1),
        codex_message("assistant", "Done.", 2),
    )  # fmt: skip
    assert texts(read(tmp_path, data)) == [(ASK, "Done.")]


def test_the_same_prompt_twice_stays_two(tmp_path: Path) -> None:
    turn = [codex_event("user_message", "go on", 1), codex_message("user", "go on", 1)]
    data = jsonl(CODEX_META, *turn, codex_message("assistant", "A", 2), *turn, codex_message("assistant", "B", 3))
    assert texts(read(tmp_path, data)) == [("go on", "A"), ("go on", "B")]


def test_injected_context_opens_nothing(tmp_path: Path) -> None:
    data = jsonl(
        CODEX_META,
        codex_message("user", "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nbe brief\n</INSTRUCTIONS>", 1),
        codex_message("user", "<user_instructions>\nbe kind\n</user_instructions>", 1),
        codex_message("developer", "You are Codex.", 1),
        codex("compacted", 2, message="", replacement_history=[{"role": "user", "content": "again"}]),
    )
    assert states(data, tmp_path) == [
        (1, "skipped", "meta"), (2, "skipped", "injected"), (1, "skipped", "system"), (1, "skipped", "compact_summary"),
    ]  # fmt: skip


def test_a_fork_keeps_its_own_session_and_its_parent(tmp_path: Path) -> None:
    fork = codex("session_meta", 0, id="child", forked_from_id=CODEX_SESSION)
    (seen,) = read(tmp_path, jsonl(fork, CODEX_META, codex_message("user", ASK, 1))).occurrences
    assert (seen.session_id, seen.parent_session) == ("child", CODEX_SESSION)


def test_an_old_rollout_of_bare_items(tmp_path: Path) -> None:
    data = jsonl(
        {"id": "old-1", "timestamp": "2025-06-01T00:00:00Z", "instructions": None, "git": {"branch": "dev"}},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ASK}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "k"},
        {"record_type": "state"},
        {"type": "function_call_output", "call_id": "k", "output": "cart.py"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Renamed."}]},
    )
    result = read(tmp_path, data)
    assert texts(result) == [(ASK, "Renamed.")]
    assert [(o.session_id, o.anchor) for o in result.occurrences] == [("old-1", "2")]
    assert [(t.name, t.head) for t in result.exchanges[0].tools] == [("shell", "cart.py")]


def test_calls_without_ids_pair_by_order(tmp_path: Path) -> None:
    data = jsonl(
        {"timestamp": "2025-09-10T12:00:00Z", "role": "user", "content": ASK},
        {"timestamp": "2025-09-10T12:00:01Z", "type": "tool_call", "function": {"name": "git"}, "arguments": "status"},
        {"timestamp": "2025-09-10T12:00:01Z", "type": "tool_result", "name": "git", "result": "clean"},
        {"timestamp": "2025-09-10T12:00:02Z", "role": "assistant", "content": "Clean."},
    )
    assert [(t.name, t.input, t.head) for t in read(tmp_path, data).exchanges[0].tools] == [("git", "status", "clean")]


def test_a_rollout_without_a_prompt_and_the_prompt_index(tmp_path: Path) -> None:
    assert states(jsonl(CODEX_META), tmp_path) == [(1, "skipped", "meta")]
    assert detect(jsonl({"session_id": "s", "ts": 1, "text": "hi"}), "history.jsonl") is None
