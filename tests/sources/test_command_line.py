"""Traps of the command-line agents' formats: what is a copy, what nobody typed, what comes twice or late."""

from __future__ import annotations

import json
from pathlib import Path

from backfill.sources import UnitResult, detect
from backfill.types import Occurrence
from tests.claude_lines import read, texts
from tests.sources.cli_files import (
    COPILOT_CASE,
    GEMINI_CASES,
    GEMINI_HEADER,
    KIMI_CASE,
    QWEN_CASE,
    copilot,
    gemini,
    jsonl,
    kimi_message,
    kimi_prompt,
    qwen,
)


def states(result: UnitResult) -> list[tuple[int, str, str]]:
    return [(row.n_records, row.state, row.reason) for row in result.ledger]


def first(result: UnitResult) -> Occurrence:
    return min(result.occurrences, key=lambda o: o.byte_start)


# Gemini CLI


def test_a_gemini_document_and_its_jsonl_say_the_same(tmp_path: Path) -> None:
    document, patches, _ = (read(tmp_path, case.data) for case in GEMINI_CASES)
    seen = first(document)
    assert (seen.session_id, seen.anchor, seen.model) == ("gem-1", "m1", "gemini-3-pro")
    assert (seen.started_at, seen.ended_at) == (1_770_091_501_000_000, 1_770_091_502_000_000)
    (tool,) = document.exchanges[0].tools
    assert (tool.name, tool.head, tool.paths) == ("read_file", "eur;1.08", ("rates.csv",))
    assert document.exchanges[0].thinking == "Rates: The header is missing."
    assert document.exchanges[0] in patches.exchanges
    assert {o.anchor: o.title for o in patches.occurrences}["m7"] == "Rates"


def test_of_a_message_written_again_the_last_version_is_read(tmp_path: Path) -> None:
    data = jsonl(
        GEMINI_HEADER,
        gemini("u", "user", 1, "Go"),
        gemini("a", "gemini", 2, "Half"),
        gemini("a", "gemini", 2, "Half and the rest"),
        gemini("a", "gemini", 2, "Half and the rest"),
    )
    result = read(tmp_path, data)
    assert texts(result) == [("Go", "Half and the rest")]
    assert states(result)[2:] == [(1, "skipped", "superseded"), (1, "duplicate", ""), (1, "part_of", "")]


def test_a_list_set_anew_keeps_the_branch_that_it_drops(tmp_path: Path) -> None:
    result = read(tmp_path, GEMINI_CASES[1].data)
    before = {o.anchor: o.exchange_id for o in result.occurrences}
    rows = {e.exchange_id: e for e in result.exchanges}
    contents = {anchor: rows[key].content_id for anchor, key in before.items()}
    assert rows[before["m6"]].prev_content_id == contents["m4"]
    assert rows[before["m7"]].prev_content_id == contents["m4"]


def test_a_rewind_goes_back_to_before_a_message(tmp_path: Path) -> None:
    data = jsonl(
        GEMINI_HEADER,
        gemini("u1", "user", 1, "One"),
        gemini("a1", "gemini", 2, "1"),
        gemini("u2", "user", 3, "Two"),
        {"$rewindTo": "u2"},
        gemini("u3", "user", 4, "Two, better"),
    )
    result = read(tmp_path, data)
    assert texts(result) == [("One", "1"), ("Two", ""), ("Two, better", "")]
    assert len({e.prev_content_id for e in result.exchanges}) == 2


def test_a_gemini_chat_with_only_a_warning_has_no_exchange(tmp_path: Path) -> None:
    data = json.dumps({**GEMINI_HEADER, "messages": [gemini("w", "warning", 1, "Hook failed")]}, indent=2).encode()
    result = read(tmp_path, data)
    assert (result.agent, states(result)) == ("gemini_cli", [(1, "skipped", "meta")])


# Qwen Code


def test_qwen_reads_what_was_typed_and_links_its_records(tmp_path: Path) -> None:
    seen = first(read(tmp_path, QWEN_CASE.data))
    assert (seen.session_id, seen.anchor, seen.project, seen.branch, seen.model) == (
        "qwen-1", "q1", "shop", "main", "qwen3-coder",
    )  # fmt: skip


def test_a_qwen_record_written_twice_is_a_duplicate_one_in_two_steps_is_not(tmp_path: Path) -> None:
    line = qwen(2, "assistant", {"text": "A"})
    result = read(tmp_path, jsonl(qwen(1, "user", {"text": "Go"}), line, line, qwen(2, "assistant", {"text": "B"})))
    assert texts(result) == [("Go", "A\n\nB")]
    assert states(result) == [(2, "part_of", ""), (1, "duplicate", ""), (1, "part_of", "")]


def test_a_qwen_command_sent_to_the_model_opens_an_exchange(tmp_path: Path) -> None:
    command = qwen(1, "system", subtype="slash_command", systemPayload={"phase": "invocation", "rawCommand": "/init x"})
    assert texts(read(tmp_path, jsonl(command, qwen(2, "assistant", {"text": "Written."})))) == [
        ("/init x", "Written.")
    ]


def test_a_qwen_title_given_by_a_person_stays(tmp_path: Path) -> None:
    titles = [
        qwen(n, "system", subtype="custom_title", systemPayload={"customTitle": title, "titleSource": source})
        for n, title, source in ((2, "Mine", "manual"), (3, "Generated", "auto"))
    ]
    result = read(tmp_path, jsonl(qwen(1, "user", {"text": "Go"}), *titles, qwen(4, "assistant", {"text": "A"})))
    assert first(result).title == "Mine"


# Copilot CLI


def test_a_copilot_sub_agent_is_a_session_of_its_own(tmp_path: Path) -> None:
    result = read(tmp_path, COPILOT_CASE.data)
    assert {(o.session_id, o.parent_session, o.anchor) for o in result.occurrences} == {
        ("cop-1", "", "e4"), ("cop-1/agent-c2", "cop-1", "e8"), ("cop-1", "", "e13"),
    }  # fmt: skip
    seen = first(result)
    assert (seen.cwd, seen.branch, seen.model) == ("/home/ana/shop", "main", "gpt-5-mini")


def test_a_copilot_call_without_request_counts_once(tmp_path: Path) -> None:
    data = jsonl(
        copilot(1, "user.message", content="List"),
        copilot(2, "tool.execution_start", toolCallId="c", toolName="bash", arguments={"command": "ls"}),
        copilot(3, "tool.execution_complete", toolCallId="c", success=False, error={"message": "denied"}),
    )
    assert [(t.name, t.input, t.head) for t in read(tmp_path, data).exchanges[0].tools] == [("bash", "ls", "denied")]


# Kimi


def test_a_kimi_session_is_named_by_its_folder(tmp_path: Path) -> None:
    seen = first(read(tmp_path, KIMI_CASE.data, source=KIMI_CASE.source))
    assert (seen.session_id, seen.parent_session, seen.anchor) == ("kimi-1", "", "3")
    assert (seen.cwd, seen.model, seen.started_at) == ("/home/ana/shop", "kimi-k2", 1_770_091_502_000_000)
    side = first(read(tmp_path, KIMI_CASE.data, source="kimi-1/agents/agent-0/wire.jsonl"))
    assert (side.session_id, side.parent_session) == ("kimi-1/agent-0", "kimi-1")


def test_a_kimi_prompt_and_its_message_are_one(tmp_path: Path) -> None:
    header = {"type": "metadata", "protocol_version": "1.4"}
    data = jsonl(header, kimi_prompt(1, "hi"), kimi_message(1, "hi"), kimi_prompt(2, "hi"), kimi_message(2, "hi"))
    result = read(tmp_path, data)
    assert texts(result) == [("hi\n\nhi", "")]
    assert [s for s in states(result) if s[2] == "event_copy"] == [(1, "skipped", "event_copy")] * 2


def test_a_kimi_sub_agent_is_asked_without_the_state_of_the_repository(tmp_path: Path) -> None:
    header = {"type": "metadata", "protocol_version": "1.4"}
    asked = kimi_message(1, "<git-context>\nBranch: main\n</git-context>\n\nCount the files")
    asked["message"]["origin"] = {"kind": "system_trigger", "name": "subagent"}
    assert texts(read(tmp_path, jsonl(header, asked))) == [("Count the files", "")]


def test_other_logs_are_not_taken_for_these_formats() -> None:
    for line in (
        {"type": "event.created", "data": {}, "id": "x"},
        {"type": "message", "role": "user", "content": "x", "session": 1},
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "x"}},
    ):
        reader = detect(jsonl(line), "x.jsonl")
        assert reader is None or reader.name in ("claude_code", "openai_messages")
