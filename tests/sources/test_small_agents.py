"""Traps of pi's trees, Droid, Grok, DeepSeek, Antigravity and Muse Code."""

from __future__ import annotations

from pathlib import Path

from backfill.sources import UnitResult
from backfill.types import Occurrence
from tests.claude_lines import read, texts
from tests.sources.cli_files import (
    ANTIGRAVITY_CASE,
    DEEPSEEK_CASE,
    DROID_CASES,
    GROK_CASE,
    MUSE_CASE,
    PI_CASE,
    PI_HEADER,
    PI_SESSION,
    deepseek,
    jsonl,
    pi,
    step,
)


def in_order(result: UnitResult) -> list[Occurrence]:
    return sorted(result.occurrences, key=lambda o: o.byte_start)


def before(result: UnitResult) -> dict[str, str | None]:
    """Anchor of each exchange -> anchor of the exchange before it."""
    anchors = {o.exchange_id: o.anchor for o in result.occurrences}
    contents = {e.content_id: anchors[e.exchange_id] for e in result.exchanges}
    return {
        anchors[e.exchange_id]: contents[e.prev_content_id] if e.prev_content_id else None for e in result.exchanges
    }


def test_every_branch_of_a_tree_follows_the_exchange_that_it_forks_from(tmp_path: Path) -> None:
    result = read(tmp_path, PI_CASE.data)
    assert before(result) == {"u1": None, "u2": "u1", "u3": "u1", "a5": None, "u4": "a5"}
    first = in_order(result)[0]
    assert (first.session_id, first.cwd, first.model, first.project) == (PI_SESSION, "/home/ana/shop", "glm-5", "shop")


def test_a_prompt_typed_anew_does_not_join_the_one_that_nobody_answered(tmp_path: Path) -> None:
    data = jsonl(
        PI_HEADER,
        pi("u1", None, "user", "One"),
        pi("a1", "u1", "assistant", "1"),
        pi("u2", "a1", "user", "Two"),
        pi("u3", "a1", "user", "Two, better"),
        pi("u4", "u3", "user", "and three"),
        pi("a4", "u4", "assistant", "2"),
        pi("a5", "u4", "assistant", "2 again"),
    )
    result = read(tmp_path, data)
    assert texts(result) == [
        ("One", "1"),
        ("Two", ""),
        ("Two, better\n\nand three", "2"),
        ("Two, better\n\nand three", "2 again"),
    ]
    assert before(result) == {"u1": None, "u2": "u1", "u3": "u1", "a5": "u1"}


def test_parallel_results_and_labels_are_no_forks(tmp_path: Path) -> None:
    calls = [{"type": "toolCall", "id": c, "name": "bash", "arguments": {"command": c}} for c in ("ls", "pwd")]
    data = jsonl(
        PI_HEADER,
        pi("u1", PI_SESSION, "user", "Look"),
        pi("a1", "u1", "assistant", "", *calls),
        pi("r1", "ls", "toolResult", "a.py", toolCallId="ls"),
        pi("r2", "pwd", "toolResult", "/srv", toolCallId="pwd"),
        {"type": "label", "id": "l", "parentId": "r1", "label": "here"},
        pi("a2", "r1", "assistant", "Seen."),
    )
    result = read(tmp_path, data)
    assert texts(result) == [("Look", "Seen.")]
    assert [(t.input, t.head) for t in result.exchanges[0].tools] == [("ls", "a.py"), ("pwd", "/srv")]


def test_pi_keeps_what_is_not_a_prompt_out(tmp_path: Path) -> None:
    error = pi("a0", "u1", "assistant", "", errorMessage="rate limited", stopReason="error")
    shell = {"type": "message", "id": "b", "parentId": "a0", "message": {"role": "bashExecution", "command": "ls"}}
    info = {"type": "session_info", "id": "i", "parentId": "b", "name": "Speed"}
    data = jsonl(
        {**PI_HEADER, "parentSession": f"/x/2026_{PI_SESSION[:-2]}bb.jsonl"}, pi("u1", None, "user", "Go"), error
    )
    result = read(tmp_path, data + jsonl(shell, info, pi("a1", "b", "assistant", "Gone.")))
    assert [(row.state, row.reason) for row in result.ledger] == [
        ("skipped", "meta"),
        ("part_of", ""),
        ("skipped", "api_error"),
        ("skipped", "command"),
        ("skipped", "meta"),
        ("part_of", ""),
    ]
    (seen,) = result.occurrences
    assert (seen.parent_session, seen.title) == (f"{PI_SESSION[:-2]}bb", "Speed")


def test_droid_says_its_last_words_once(tmp_path: Path) -> None:
    said = {"type": "message", "sessionId": "droid-2", "role": "assistant", "text": "One soup.", "id": "m9"}
    lines = DROID_CASES[1].data.splitlines(keepends=True)
    result = read(tmp_path, b"".join(lines[:-1]) + jsonl(said) + lines[-1])
    assert texts(result) == [("List the menu", "One soup.")]
    (seen,) = result.occurrences
    assert (seen.session_id, seen.anchor, seen.model, seen.started_at) == (
        "droid-2",
        "m1",
        "d-1",
        1_770_091_501_000_000,
    )


def test_grok_is_named_by_its_folder(tmp_path: Path) -> None:
    first, second = in_order(read(tmp_path, GROK_CASE.data, source=GROK_CASE.source))
    assert [(o.session_id, o.anchor) for o in (first, second)] == [("grok-1", "3"), ("grok-1", "8")]
    assert (first.cwd, first.model, first.started_at) == ("/home/ana/shop", "grok-4.5", None)


def test_deepseek_events_count_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    result = read(tmp_path, DEEPSEEK_CASE.data)
    assert before(result) == {"3": None, "12": "3"}
    assert {o.title for o in result.occurrences} == {"Pool size"}
    tools = [t for e in result.exchanges for t in e.tools]
    assert [(t.name, t.head, t.paths) for t in tools] == [("read", "pool_size = 40", ("pool.ini",))]
    answer = deepseek(16, "assistant/message", message={"content": [{"type": "text", "text": "Late."}]})
    later = jsonl(answer, deepseek(15, "user/message", content=[{"type": "text", "text": "More?"}]))
    assert ("More?", "Late.") in texts(read(tmp_path, DEEPSEEK_CASE.data + later))


def test_an_antigravity_step_written_again_counts_once_unless_it_changed(tmp_path: Path) -> None:
    again = step(4, "MODEL", "PLANNER_RESPONSE", "They are open.")
    other = step(4, "MODEL", "PLANNER_RESPONSE", "Both are.")
    result = read(tmp_path, ANTIGRAVITY_CASE.data + jsonl(again, other))
    assert texts(result) == [("Open the docs", "Opening.\n\nThey are open.\n\nBoth are.")]
    assert [t.name for t in result.exchanges[0].tools] == ["navigate", "browser_navigate"]


def test_muse_times_are_microseconds(tmp_path: Path) -> None:
    (seen,) = read(tmp_path, MUSE_CASE.data).occurrences
    assert (seen.session_id, seen.anchor, seen.started_at, seen.ended_at, seen.cwd, seen.model) == (
        "muse-1", "rec-2", 1_770_091_502_000_000, 1_770_091_506_000_000, "/home/ana/shop", "muse-1.2",
    )  # fmt: skip
