"""Traps of real transcripts that no other test covers; docs/formats.md lists every trap with the test that holds it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backfill.config import Config
from backfill.ids import row_bytes
from backfill.ledger import check
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard
from backfill.sources import UnitResult, detect
from backfill.tables import EXCHANGES, OCCURRENCES, read_table
from tests.claude_lines import SESSION, ClaudeFile, call, read, texts, thought
from tests.conftest import ROOT
from tests.sources.agent_files import fates, read_tree, write_tree
from tests.sources.cli_files import CASES, codex, codex_event, codex_message, jsonl
from tests.sources.markdown_files import AIDER, SPECSTORY

US = 1_000_000


def states(result: UnitResult) -> list[tuple[str, str]]:
    return [(row.state, row.reason) for row in result.ledger]


def conversation() -> ClaudeFile:
    f = ClaudeFile()
    f.user("Why is the build red?")
    f.agent(thought("hm"), "I look.", call("Bash", "t1", command="make"))
    f.result("t1", "1 failed")
    f.agent("A test fails.")
    f.user("yes")
    f.agent("Fixed.")
    return f


def keys(result: UnitResult) -> set[bytes]:
    return {row.exchange_id for row in result.exchanges}


def edited(data: bytes, **fields: Any) -> bytes:
    """The lines with other values in some fields; None takes a field out."""
    lines = []
    for line in data.splitlines():
        record = {**json.loads(line), **fields}
        lines.append(json.dumps({k: v for k, v in record.items() if v is not None}).encode())
    return b"\n".join(lines) + b"\n"


# Copies of a history


def test_a_resumed_session_that_embeds_its_history_adds_occurrences_not_exchanges(tmp_path: Path) -> None:
    old = conversation()
    new = old.data() + edited(old.data(), sessionId="resumed")
    more = ClaudeFile(session="resumed")
    more.n = 50
    more.user("And the docs?", parent=old.last)
    more.agent("Written.")
    alone, both = read(tmp_path, old.data()), read(tmp_path, edited(old.data(), sessionId="resumed") + more.data())
    assert keys(alone) < keys(both)
    assert len(both.exchanges) == len(alone.exchanges) + 1
    assert {o.session_id for o in both.occurrences} == {"resumed"}
    inside = read(tmp_path, new)  # both in one file: the second writing of a record is a duplicate of the first
    assert keys(inside) == keys(alone)
    assert ("duplicate", "") in states(inside)


@pytest.mark.parametrize(
    "fields",
    [
        {"timestamp": "2026-04-01T09:00:00.000Z"},
        {"sessionId": "background", "cwd": "/home/ana/elsewhere"},
        {"agentId": "acompact-1f", "isSidechain": True, "sessionId": SESSION},
        {"sessionId": "fork", "gitBranch": "topic", "version": "2.9.9", "uuid": None, "parentUuid": None},
    ],
    ids=["replayed-later", "backgrounded", "acompact", "forked-without-ids"],
)
def test_a_copy_of_a_history_is_no_second_exchange(tmp_path: Path, fields: dict[str, Any]) -> None:
    original = conversation().data()
    first, copy = read(tmp_path, original), read(tmp_path, edited(original, **fields), source="proj/copy.jsonl")
    if "uuid" in fields:
        assert [e.content_id for e in copy.exchanges] == [e.content_id for e in first.exchanges]
    else:
        assert keys(copy) == keys(first)
    assert len(copy.occurrences) == len(first.occurrences)


def test_the_same_yes_after_two_different_exchanges_stays_two(tmp_path: Path) -> None:
    f = conversation()
    f.user("yes")
    f.agent("Fixed.")
    result = read(tmp_path, f.data())
    same = [row for row in result.exchanges if row.user_text == "yes"]
    assert len(same) == 2
    assert len({row.content_id for row in same}) == 1
    assert len({row.exchange_id for row in same}) == 2


def test_any_order_and_repetition_of_files_gives_the_same_set(tmp_path: Path) -> None:
    data = conversation().data()
    files = {
        "a/one.jsonl": data,
        "a/copy.jsonl": data,
        "b/resumed.jsonl": edited(data, sessionId="resumed"),
        "b/grown.jsonl": data + b"".join(conversation().lines[:1]).replace(b'"u1"', b'"u99"'),
        "c/rollout.jsonl": next(c.data for c in CASES if c.agent == "codex"),
    }
    shown = []
    for n, names in enumerate((sorted(files), sorted(files, reverse=True), [*sorted(files), "a/one.jsonl"])):
        run = RunDir(tmp_path / f"run{n}")
        run.make()
        for name in names:  # a round for every file, as they come
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
            plan = plan_scan(run, Config(), [str(tmp_path / "src")])
            for shard in run.missing(plan, "scan"):
                scan_shard(run, plan, shard, lambda: False)
        rows: dict[str, set[bytes]] = {}
        for table in (EXCHANGES, OCCURRENCES):
            found = [row for p in run.exchanges.glob(f"{table.name}-*.parquet") for row in read_table(table, p)]
            rows[table.name] = {row_bytes(row) for row in found}
        shown.append(rows)
        for path in (tmp_path / "src").rglob("*.jsonl"):
            path.unlink()
    assert shown[0] == shown[1] == shown[2]


# Claude Code


def test_the_session_is_what_the_records_say_not_the_file_name(tmp_path: Path) -> None:
    result = read(tmp_path, conversation().data(), source="proj/11111111-2222-4333-8444-555555555555.jsonl")
    assert {o.session_id for o in result.occurrences} == {SESSION}


def test_the_first_record_may_be_of_any_type(tmp_path: Path) -> None:
    first: list[dict[str, Any]] = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "summary", "summary": "Red build", "leafUuid": "elsewhere"},
        {"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION, "timestamp": "2026-03-01T09:00:00Z"},
        {"type": "progress", "data": {"type": "hook_progress"}, "sessionId": SESSION, "uuid": "p1", "parentUuid": None},
        {"type": "system", "subtype": "turn_duration", "sessionId": SESSION, "uuid": "y1", "parentUuid": None},
    ]
    for record in first:
        result = read(tmp_path, json.dumps(record).encode() + b"\n" + conversation().data())
        assert result.agent == "claude_code", record["type"]
        assert len(result.exchanges) == 2


def test_times_that_go_backwards_keep_the_order_of_the_file(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("First", timestamp="2026-03-01T10:00:09.000Z")
    f.agent("One", timestamp="2026-03-01T10:00:03.000Z")
    f.user("Second", timestamp="2026-03-01T09:59:00.000Z")
    f.agent("Two", timestamp="2026-03-01T10:00:20.000Z")
    result = read(tmp_path, f.data())
    assert texts(result) == [("First", "One"), ("Second", "Two")]
    assert all(o.started_at <= o.ended_at for o in result.occurrences)  # type: ignore[operator]
    second = next(e for e in result.exchanges if e.user_text == "Second")
    assert second.prev_content_id == next(e for e in result.exchanges if e.user_text == "First").content_id


def test_a_call_without_a_result_stays_in_its_exchange(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("Go")
    f.agent(call("Bash", "t1", command="sleep 9"))
    f.user("[Request interrupted by user for tool use]")
    f.user("Something else")
    f.agent("Yes.")
    result = read(tmp_path, f.data())
    assert texts(result) == [("Go", ""), ("Something else", "Yes.")]
    (tool,) = result.exchanges[0].tools
    assert (tool.name, tool.input, tool.head) == ("Bash", "sleep 9", "")
    assert ("skipped", "interrupted") in states(result)


def test_a_file_without_the_agent_is_accounted_for(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.raw({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    f.user("<command-name>/exit</command-name>")
    f.user("<local-command-stdout>Bye!</local-command-stdout>")
    result = read(tmp_path, f.data())
    assert (result.exchanges, result.silent) == ([], [("claude_code", SESSION)])
    assert check(result.ledger, {"proj/s.jsonl": len(f.data())}, set()) == []


def test_a_wholly_sidechain_file_is_a_session_below_its_parent(tmp_path: Path) -> None:
    f = ClaudeFile(isSidechain=True, agentId="1a2b3c4d")
    f.user("Warmup")
    f.agent("Ready.")
    f.user("Find the lock file")
    f.agent("It is lock.toml.")
    result = read(tmp_path, f.data(), source=f"proj/{SESSION}/subagents/agent-1a2b3c4d.jsonl")
    assert texts(result) == [("Find the lock file", "It is lock.toml.")]
    (place,) = result.occurrences
    assert (place.session_id, place.parent_session) == (f"{SESSION}/agent-1a2b3c4d", SESSION)


def test_progress_that_embeds_a_sub_agents_messages_is_not_read_twice(tmp_path: Path) -> None:
    f = conversation()
    inner = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "mark-inner"}]}}
    f.add("progress", data={"type": "agent_progress", "message": inner, "prompt": "mark-inner"}, parentToolUseID="t1")
    result = read(tmp_path, f.data())
    assert ("skipped", "meta") in states(result)
    assert not any("mark-inner" in row.agent_text + row.user_text for row in result.exchanges)


def test_the_folder_may_change_within_a_session(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("Here", cwd="/home/ana/shop")
    f.agent("Yes.", cwd="/home/ana/shop")
    f.user("There", cwd="/home/ana/shop/api")
    f.agent("Yes.", cwd="/home/ana/shop/api")
    result = read(tmp_path, f.data())
    assert [(o.cwd, o.project) for o in result.occurrences] == [
        ("/home/ana/shop", "shop"),
        ("/home/ana/shop/api", "shop"),
    ]


def test_control_characters_and_marks_inside_a_text_stay(tmp_path: Path) -> None:
    odd = "\x1b[31mred\x1b[0m \u0000 \ufffd \ufeff \u2028 \u0085 \x0b \x0c 继续 계속"
    f = ClaudeFile()
    f.user(f"What is {odd}?")
    f.agent(f"It is {odd}.")
    raw = f.data().replace(b"\\u001b", b"\x1b")
    assert b"\x1b[31m" in raw
    result = read(tmp_path, raw)
    assert texts(result) == [(f"What is {odd}?", f"It is {odd}.")]
    assert len(result.ledger) == 1


def test_images_are_counted_not_stored(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "mark-pixels" * 9}}
    f = ClaudeFile()
    f.user([{"type": "text", "text": "What is this?"}, picture, {"type": "document", "source": picture["source"]}])
    f.agent(call("Read", "t1", file_path="a.png"))
    f.result("t1", [picture, {"type": "text", "text": "800 x 600"}])
    f.agent("A chart.")
    result = read(tmp_path, f.data())
    (row,) = result.exchanges
    assert (row.user_text, row.agent_text, row.tools[0].head) == ("What is this?", "A chart.", "800 x 600")
    assert b"mark-pixels" not in row_bytes(row)
    assert sum(r.n_records for r in result.ledger) == 4


def test_both_cases_of_a_windows_drive_are_read_and_meet_by_their_content(tmp_path: Path) -> None:
    f = ClaudeFile(cwd="C:\\Users\\ana\\shop")
    f.user("Where is it?")
    f.agent(call("Edit", "t1", file_path="C:\\Users\\ana\\shop\\src\\cart.py"), "There.")
    for folder in ("c--Users-ana-shop", "C--Users-ana-shop"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.jsonl").write_bytes(f.data())
    lower, upper = read_tree(tmp_path)
    assert keys(lower) == keys(upper)
    assert {o.source for r in (lower, upper) for o in r.occurrences} == {
        "c--Users-ana-shop/s.jsonl",
        "C--Users-ana-shop/s.jsonl",
    }
    assert lower.occurrences[0].project == "shop"
    assert lower.exchanges[0].tools[0].paths == ("src/cart.py",)


def test_what_lies_beside_a_session_is_no_transcript(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            f"p/{SESSION}.jsonl": conversation().data(),
            f"p/{SESSION}/tool-results/toolu_1.txt": b"spilled output\n> not a prompt\n",
            f"p/{SESSION}/subagents/agent-1.meta.json": {"agentType": "Explore", "description": "Find it"},
            "p/sessions-index.json": {"version": 1, "entries": [{"sessionId": SESSION, "firstPrompt": "Why"}]},
            "p/memory/MEMORY.md": b"# Notes\n\nThe build is red.\n",
            "history.jsonl": jsonl({"display": "Why?", "pastedContents": {}, "timestamp": 1, "project": "/p"}),
        },
    )
    results = read_tree(tmp_path)
    assert sum(len(r.exchanges) for r in results) == 2
    beside = {(n, s, r) for result in results if not result.agent for n, _, s, r in fates(result)}
    assert {reason for _, _, reason in beside} == {"not_transcript", "index"}
    assert ("history.jsonl", "skipped", "index") in beside
    assert ("p/sessions-index.json", "skipped", "index") in beside


def test_lines_of_stream_json_name_their_session_otherwise(tmp_path: Path) -> None:
    data = jsonl(
        {"type": "system", "subtype": "init", "session_id": "st-1", "cwd": "/home/ana/shop", "uuid": "i"},
        {"type": "user", "session_id": "st-1", "uuid": "a", "message": {"role": "user", "content": "Why?"}},
        {
            "type": "assistant",
            "session_id": "st-1",
            "uuid": "b",
            "message": {"id": "m", "content": [{"type": "text", "text": "So."}]},
        },
        {"type": "result", "subtype": "success", "session_id": "st-1", "result": "So.", "uuid": "r"},
    )
    result = read(tmp_path, data)
    assert texts(result) == [("Why?", "So.")]
    assert result.occurrences[0].session_id == "st-1"


def test_json_nested_beyond_reading_is_quarantined_whatever_file_it_is(tmp_path: Path) -> None:
    deep = b"[" * 2000 + b"]" * 2000
    for data in (
        b'{"type":"user","message":' + deep + b"}\n",
        b'{"type":"user","message":' + deep + b"}",
        deep,
        b'{"mapping":' + b'{"a":' * 2000 + b"1" + b"}" * 2001,
        b"\xef\xbb\xbf" + deep + b"\n",
    ):
        result = read(tmp_path, data)
        assert states(result) == [("quarantined", "too_deep")]
        for agent in ("claude_code", "codex", "openai_messages", "chatgpt", "cline", "gemini_cli"):
            assert {state for state, _ in states(read(tmp_path, data, agent=agent))} <= {
                "quarantined",
                "skipped",
                "pending",
            }


# Codex


def test_codex_times_are_those_of_the_records_not_of_the_file_name(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.name == "codex")
    result = read(tmp_path, case.data, source="sessions/2026/02/02/rollout-2026-02-02T23-05-00-019a.jsonl")
    assert result.occurrences[0].started_at == 1_770_091_502 * US  # 2026-02-03 04:05:02 UTC
    assert not result.occurrences[0].tz_assumed


def test_codex_tools_of_every_shape_are_calls(tmp_path: Path) -> None:
    calls = [
        codex(
            "response_item",
            2,
            type="function_call",
            name="shell",
            call_id="a",
            arguments='{"command":["bash","-lc","ls"]}',
        ),
        codex(
            "response_item", 3, type="function_call", name="shell_command", call_id="b", arguments='{"command":"make"}'
        ),
        codex(
            "response_item",
            4,
            type="custom_tool_call",
            name="apply_patch",
            call_id="c",
            input="*** Begin Patch\n*** Update File: cart.py\n*** End Patch",
        ),
        codex(
            "response_item", 5, type="custom_tool_call_output", call_id="c", output='{"output":"Done","metadata":{}}'
        ),
        codex("response_item", 6, type="function_call", name="mcp__docs__search", call_id="d", arguments="not json"),
        codex("response_item", 7, type="local_shell_call", call_id="e", action={"type": "exec", "command": ["pwd"]}),
    ]
    result = read(tmp_path, jsonl(codex("session_meta", 0, id="c-1"), codex_message("user", "Fix it", 1), *calls))
    tools = {tool.name: tool for tool in result.exchanges[0].tools}
    assert tools["shell"].input == "bash -lc ls"
    assert tools["shell_command"].input == "make"
    assert (tools["apply_patch"].head, tools["apply_patch"].paths) == ("Done", ("cart.py",))
    assert tools["mcp__docs__search"].input == "not json"
    assert tools["local_shell"].input == "pwd"


def test_a_mark_of_byte_order_inside_a_codex_text_stays(tmp_path: Path) -> None:
    asked = "Read the \ufefffile"
    data = jsonl(
        codex("session_meta", 0, id="c-1"), codex_event("user_message", asked, 1), codex_message("user", asked, 1)
    )
    assert texts(read(tmp_path, data)) == [(asked, "")]


# SpecStory and Aider


def test_a_chat_that_was_rendered_again_with_more_turns_shares_its_exchanges(tmp_path: Path) -> None:
    more = SPECSTORY + "\n_**Agent (m 2026-03-02 09:59:00Z)**_\n\nDone.\n\n_**User (2026-03-02 10:00:00Z)**_\n\nAnd?\n"
    old, new = read(tmp_path, SPECSTORY.encode()), read(tmp_path, more.encode())
    assert keys(old) - keys(new) <= {e.exchange_id for e in old.exchanges if e.user_text == "commit it"}
    assert {o.anchor for o in old.occurrences} < {o.anchor for o in new.occurrences}


def test_names_with_a_number_sign_and_other_scripts_are_sources_as_they_are(tmp_path: Path) -> None:
    name = "2026-03-02_09-00-00Z-fix-#12-über-继续.md"
    write_tree(tmp_path, {f".specstory/history/{name}": SPECSTORY.encode()})
    (result,) = read_tree(tmp_path)
    assert {o.source for o in result.occurrences} == {f".specstory/history/{name}"}


def test_the_other_histories_of_aider_are_no_transcripts() -> None:
    assert detect(b"\n# 2026-03-01 10:00:00.000000\n+why does it expire?\n", ".aider.input.history") is None
    assert detect(b"TO LLM 2026-03-01T10:00:00\n-------\nSYSTEM Act as\nLLM RESPONSE\n", ".aider.llm.history") is None
    assert detect(AIDER.encode(), "any.txt") is not None


# Gemini


def test_a_prompt_with_whole_files_in_it_is_not_cut(tmp_path: Path) -> None:
    pulled = "Explain @/a.py\n\n--- Content from referenced files ---\n" + "x = 1  # a line of a file\n" * 9000
    chat = {
        "sessionId": "g-1", "projectHash": "f" * 64,
        "messages": [
            {"id": "1", "timestamp": "2026-03-01T10:00:00.000Z", "type": "user", "content": pulled},
            {"id": "2", "timestamp": "2026-03-01T10:00:09.000Z", "type": "gemini", "content": "It sets x."},
        ],
    }  # fmt: skip
    first, second = read(tmp_path, json.dumps(chat).encode()).exchanges
    assert (first.user_text, second.agent_text) == (pulled, "It sets x.")


# The list in the documentation


def test_the_documentation_names_a_test_for_every_trap() -> None:
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text.partition("## Traps")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(test_\w+)`", section))
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(named) > 60
    assert named - defined == set()
