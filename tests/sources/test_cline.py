"""Cline, Roo and Kilo: both files of a task, typed text apart from what the tool adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.claude_lines import read, texts
from tests.sources.agent_files import DETAILS, TASK, fates, read_tree, text, told, write_tree

MS = 1_772_000_000_000
EXPECTED = [("Fix the cart", "I look.\n\nThe total was wrong."), ("And the tax?", "Tax is next.")]
SHOWN: list[dict[str, Any]] = [
    {"ts": MS, "type": "say", "say": "task", "text": "Fix the cart", "conversationHistoryIndex": -1},
    {"ts": MS + 1000, "type": "say", "say": "api_req_started", "text": '{"request": "Fix the cart again"}'},
    {"ts": MS + 2000, "type": "say", "say": "reasoning", "text": "hm", "conversationHistoryIndex": 0},
    {"ts": MS + 3000, "type": "say", "say": "text", "text": "I look.", "conversationHistoryIndex": 0},
    {"ts": MS + 4000, "type": "ask", "ask": "tool", "text": '{"tool": "readFile", "path": "cart.py"}'},
    {"ts": MS + 4500, "type": "ask", "ask": "command", "text": "l", "partial": True},
    {"ts": MS + 5000, "type": "ask", "ask": "command", "text": "ls"},
    {"ts": MS + 6000, "type": "say", "say": "command_output", "text": "tax.py"},
    {"ts": MS + 7000, "type": "ask", "ask": "followup", "text": '{"question": "Which?", "options": []}'},
    {"ts": MS + 8000, "type": "say", "say": "user_feedback", "text": "And the tax?", "conversationHistoryIndex": 3},
    {"ts": MS + 9000, "type": "say", "say": "completion_result", "text": "Done."},
    {"ts": MS + 9001, "type": "ask", "ask": "completion_result", "text": ""},
]
FOLDER = "globalStorage/tasks/1772000000000"


def test_the_api_messages_of_a_task(tmp_path: Path) -> None:
    result = read(tmp_path, json.dumps(TASK, indent=1).encode(), source=f"{FOLDER}/api_conversation_history.json")
    assert told(result) == EXPECTED
    first, second = sorted(result.occurrences, key=lambda o: o.byte_start)
    assert (first.session_id, first.anchor, second.anchor) == ("1772000000000", "1", "5")
    assert (first.cwd, first.project, first.model) == ("/home/ana/shop", "shop", "m-1")
    assert (first.started_at, second.started_at) == (MS * 1000, (MS + 9000) * 1000)
    one, two = result.exchanges
    assert one.thinking == "hm"
    assert [(t.name, t.paths, t.head) for t in one.tools] == [
        ("read_file", ("cart.py",), "total = 1  # <task>not typed</task>")
    ]
    assert [(t.name, t.input, t.head) for t in two.tools if t.name] == [("execute_command", "ls", "tax.py")]


@pytest.mark.parametrize(
    ("blocks", "typed"),
    [
        ([text("<user_message>\nGo on\n</user_message>"), text(DETAILS)], "Go on"),
        ([text("[ask_followup_question for 'Which?'] Result:\n\n<answer>\nThe left\n</answer>")], "The left"),
        (
            [text("[write_to_file for 'a'] Result:"), text("The user denied this.\n<feedback>\nNot so\n</feedback>")],
            "Not so",
        ),
        ([text("Plain words" + DETAILS)], "Plain words"),
        ([text("[ERROR] You did not use a tool"), text("# TODO LIST\nx")], None),
        ([text("[TASK RESUMPTION] This task was interrupted"), text("<user_message>Again</user_message>")], "Again"),
        ([text("[read_file for 'x.html'] Result:\n\n<p><feedback>\nfile\n</feedback>")], None),
        ([{"type": "tool_result", "tool_use_id": "x", "content": "<feedback>\nNative\n</feedback>"}], "Native"),
        ([text(DETAILS)], None),
    ],
)
def test_what_a_person_typed(tmp_path: Path, blocks: list[dict[str, Any]], typed: str | None) -> None:
    messages = [*TASK[:2], {"role": "user", "content": blocks}, {"role": "assistant", "content": "OK."}]
    result = read(tmp_path, json.dumps(messages).encode())
    assert [u for u, _ in texts(result)] == (["Fix the cart"] if typed is None else ["Fix the cart", typed])


def test_what_was_shown_stands_in_where_it_is_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"{FOLDER}/ui_messages.json": SHOWN})
    (result,) = read_tree(tmp_path)
    assert told(result) == [("Fix the cart", "I look.\n\nWhich?"), ("And the tax?", "Done.")]
    assert [(t.name, t.head) for t in result.exchanges[0].tools] == [("readFile", ""), ("command", "tax.py")]
    assert result.exchanges[0].thinking == "hm"
    assert [(n, s, r) for _, n, s, r in fates(result) if s == "skipped"] == [
        (1, "skipped", "meta"), (1, "skipped", "partial"),
    ]  # fmt: skip


def test_the_first_shown_text_is_the_prompt_of_newer_versions(tmp_path: Path) -> None:
    shown = [SHOWN[0] | {"say": "text"}, *SHOWN[1:4]]
    write_tree(tmp_path, {f"{FOLDER}/ui_messages.json": shown})
    (result,) = read_tree(tmp_path)
    assert told(result) == [("Fix the cart", "I look.")]


def test_a_task_folder_is_one_session_counted_once(tmp_path: Path) -> None:
    untimed = [{k: v for k, v in m.items() if k != "ts"} for m in TASK]
    history = {"id": "1772000000000", "number": 1, "ts": MS, "task": "Fix the cart", "workspace": "/home/ana/shop"}
    files = {"api_conversation_history.json": untimed, "ui_messages.json": SHOWN, "history_item.json": history}
    write_tree(tmp_path, {f"{FOLDER}/{name}": value for name, value in files.items()})
    (result,) = read_tree(tmp_path)
    assert told(result) == EXPECTED
    assert {o.source for o in result.occurrences} == {f"{FOLDER}/api_conversation_history.json"}
    assert {o.session_id for o in result.occurrences} == {"1772000000000"}
    first, second = sorted(result.occurrences, key=lambda o: o.byte_start)
    assert (first.started_at, second.started_at) == (MS * 1000, (MS + 8000) * 1000)
    assert (first.anchor, second.anchor, first.n_records) == ("1", "5", 5)  # as where the file is alone
    assert fates(result)[:2] == [
        (f"{FOLDER}/history_item.json", 1, "skipped", "meta"),
        (f"{FOLDER}/ui_messages.json", 12, "skipped", "copy"),
    ]


def condensed(api: list[dict[str, Any]], shown: list[dict[str, Any]], folder: Path) -> Any:
    write_tree(folder, {f"{FOLDER}/api_conversation_history.json": api, f"{FOLDER}/ui_messages.json": shown})
    (result,) = read_tree(folder)
    return result


def asked(n: int, text: str, answer: str) -> list[dict[str, Any]]:
    return [
        {"ts": MS + n * 1000, "type": "say", "say": "user_feedback", "text": text},
        {"ts": MS + n * 1000 + 500, "type": "say", "say": "text", "text": answer},
    ]


def test_prompts_that_a_condensed_history_lost_are_read_where_they_were_shown(tmp_path: Path) -> None:
    shown = [*SHOWN[:4], *asked(7, "Now the shipping costs", "Shipping is right."), *SHOWN[9:]]
    result = condensed(TASK, shown, tmp_path)
    assert told(result) == [EXPECTED[0], ("Now the shipping costs", "Shipping is right."), EXPECTED[1]]
    lost = next(o for o in result.occurrences if o.anchor.startswith("shown-"))
    assert lost.source == f"{FOLDER}/ui_messages.json"
    assert (lost.anchor, lost.started_at) == (f"shown-{MS + 7_000}", (MS + 7_000) * 1000)
    assert sorted(o.anchor for o in result.occurrences) == ["1", "5", lost.anchor]  # as where the file is alone
    assert {o.cwd for o in result.occurrences} == {"/home/ana/shop"}


def test_of_equal_prompts_those_before_the_condensing_are_the_lost_ones(tmp_path: Path) -> None:
    shown = [*SHOWN[:4], *asked(7, "And the tax?", "Looked at before."), *SHOWN[9:], *asked(30, "Thanks a lot", "Ok")]
    result = condensed(TASK, shown, tmp_path)
    assert told(result) == [EXPECTED[0], ("And the tax?", "Looked at before."), EXPECTED[1], ("Thanks a lot", "Ok")]


def test_a_prompt_with_what_the_tool_put_into_it_is_not_lost(tmp_path: Path) -> None:
    wrapped = [
        text("<feedback>\nAnd the tax?\nLook at 'tax.py' (see below for file content)\n</feedback>"),
        text(DETAILS),
    ]
    api = [*TASK[:4], {"role": "user", "content": wrapped}, {"role": "assistant", "content": "Tax is next."}]
    shown = [*SHOWN[:9], SHOWN[9] | {"text": "And the tax?\nLook at @/tax.py"}, *SHOWN[10:]]
    assert len(told(condensed(api, shown, tmp_path))) == 2


def test_the_folder_of_newer_versions(tmp_path: Path) -> None:
    about = {"session_id": "s-1", "messages_path": "x", "prompt": "Fix", "cwd": "/w/shop", "metadata": {"title": "T"}}
    write_tree(tmp_path, {"s-1/s-1.json": about, "s-1/s-1.messages.json": {"version": 1, "messages": TASK}})
    (result,) = read_tree(tmp_path)
    assert told(result) == EXPECTED
    assert {(o.session_id, o.title) for o in result.occurrences} == {("s-1", "T")}


@pytest.mark.parametrize(
    "item",
    [
        {"id": "1", "ts": MS, "task": "Say hello", "tokensIn": 1, "totalCost": 0},
        {"sessionId": "s-1", "title": "Carts", "dateCreated": "1772000000000", "workspaceDirectory": "/w"},
    ],
)
def test_lists_of_tasks_and_sessions_are_indexes(tmp_path: Path, item: dict[str, Any]) -> None:
    assert fates(read(tmp_path, json.dumps([item]).encode())) == [("proj/s.jsonl", 0, "skipped", "index")]


def test_an_array_over_several_lines_is_known_by_its_first_message(tmp_path: Path) -> None:
    lines = ",\n  ".join(json.dumps({k: v for k, v in m.items() if k != "ts"}) for m in TASK)
    result = read(tmp_path, f"[\n  {lines}\n]\n".encode())
    assert (result.agent, texts(result)) == ("cline", EXPECTED)


def test_a_lost_exchange_stands_between_its_neighbours(tmp_path: Path) -> None:
    shown = [*SHOWN[:4], *asked(7, "Now the shipping costs", "Shipping is right."), *SHOWN[9:]]
    result = condensed(TASK, shown, tmp_path)
    rows = {e.user_text: e for e in result.exchanges}
    first, lost, last = (rows[t] for t in ("Fix the cart", "Now the shipping costs", "And the tax?"))
    assert (first.prev_content_id, lost.prev_content_id, last.prev_content_id) == (
        None, first.content_id, lost.content_id,
    )  # fmt: skip
