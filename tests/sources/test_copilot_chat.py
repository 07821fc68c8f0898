"""Copilot Chat: whole documents, logs of changes, answers made of many pieces."""

from __future__ import annotations

import json
from pathlib import Path

from tests.claude_lines import read, texts
from tests.sources.cli_files import CHAT_CASES, chat, jsonl

START = {"kind": 0, "v": {"sessionId": "c", "requests": []}}


def test_a_document_gives_session_times_and_tools(tmp_path: Path) -> None:
    result = read(tmp_path, CHAT_CASES[0].data)
    seen = min(result.occurrences, key=lambda o: o.byte_start)
    assert (seen.session_id, seen.anchor, seen.model) == ("chat-1", "r1", "copilot/gpt-5")
    assert seen.started_at == 1_770_091_500_000_000
    (tool,) = result.exchanges[0].tools
    assert (tool.name, tool.input, tool.head) == ("grep", '{"q":"tax"}', "tax.py:4")
    assert result.exchanges[0].thinking == "Search for it."


def test_a_request_that_was_taken_back_is_a_branch(tmp_path: Path) -> None:
    result = read(tmp_path, CHAT_CASES[1].data)
    rows = {e.exchange_id: e for e in result.exchanges}
    by_anchor = {o.anchor: rows[o.exchange_id] for o in result.occurrences}
    assert {by_anchor[a].prev_content_id for a in ("r2", "r3")} == {by_anchor["r1"].content_id}
    assert {o.anchor: o.title for o in result.occurrences} == {"r1": "", "r2": "", "r3": "Taxes"}


def test_calls_without_rounds_are_read_from_the_answer(tmp_path: Path) -> None:
    call = {
        "kind": "toolInvocationSerialized",
        "toolId": "run",
        "toolCallId": "x",
        "toolSpecificData": {"kind": "terminal", "command": "make"},
        "pastTenseMessage": {"value": "Ran make"},
    }
    edit = {"kind": "textEditGroup", "uri": {"path": "/srv/a.py"}, "edits": []}
    request = chat(
        "r", "Build", {"value": "Building."}, call, {"kind": "markdownContent", "content": {"value": "Done."}}, edit
    )
    (row,) = read(tmp_path, json.dumps({"initialLocation": "panel", "requests": [request]}).encode()).exchanges
    assert row.agent_text == "Building.\n\nDone."
    assert [(t.name, t.input, t.head) for t in row.tools] == [
        ("run", "make", "Ran make"),
        ("edit", '{"path":"/srv/a.py"}', ""),
    ]


def test_a_cancelled_request_has_an_empty_answer(tmp_path: Path) -> None:
    data = json.dumps({"requesterUsername": "ana", "requests": [chat("r", "Stop", modelState={"value": 2})]}).encode()
    assert texts(read(tmp_path, data)) == [("Stop", "")]


def test_paths_that_lead_nowhere_change_nothing(tmp_path: Path) -> None:
    data = jsonl(
        START,
        {"kind": 1, "k": ["requests", 0, "response"], "v": "x"},
        {"kind": 2, "k": ["requests"], "v": [chat("r", "Go")]},
        {"kind": 1, "k": ["requests", 0, "response", 7, "value"], "v": "x"},
        {"kind": 1, "k": ["requests", 0, "result", "metadata", "deep"], "v": "x"},
        {"kind": 2, "k": ["requests", 0, "response", "x"], "v": ["y"]},
        {"kind": 3, "k": ["requests", 0, "followups"]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "Gone."}]},
    )
    assert texts(read(tmp_path, data)) == [("Go", "Gone.")]


def test_a_snapshot_written_again_repeats_nothing(tmp_path: Path) -> None:
    data = CHAT_CASES[1].data
    again = data.splitlines(keepends=True)[0]
    assert sorted(texts(read(tmp_path, data + again))) == sorted(texts(read(tmp_path, data)))
