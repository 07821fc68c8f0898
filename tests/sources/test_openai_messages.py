"""OpenAI-style messages in the shapes that people store them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill.ledger import check
from backfill.sources import UnitResult
from tests.claude_lines import read, texts

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "Why 502?", "timestamp": "2026-04-28T13:02:11Z"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "check the pods",
        "tool_calls": [
            {"id": "c1", "function": {"name": "shell", "arguments": '{"command": "kubectl get po"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "3 pods"},
    {"role": "assistant", "content": [{"type": "text", "text": "Keep-alive is too long."}], "model": "gpt-test"},
    {"role": "user", "content": [{"type": "text", "text": "And now? ü"}]},
    {"role": "assistant", "content": "Set it to 60 s."},
]
EXPECTED = [("Why 502?", "Keep-alive is too long."), ("And now? ü", "Set it to 60 s.")]


def lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read_openai(tmp_path: Path, data: bytes, split_tokens: int = 1500) -> UnitResult:
    result = read(tmp_path, data, "chats/a.jsonl", split_tokens)
    assert result.agent == "openai_messages"
    assert check(result.ledger, {"chats/a.jsonl": len(data)}, {e.exchange_id for e in result.exchanges}) == []
    return result


def test_one_message_per_line(tmp_path: Path) -> None:
    data = lines(MESSAGES)
    result = read_openai(tmp_path, data)
    assert texts(result) == EXPECTED
    first, second = sorted(result.occurrences, key=lambda o: o.byte_start)
    assert (first.session_id, first.anchor, first.n_records, first.open) == ("chats/a.jsonl", "2", 6, False)
    assert (second.anchor, second.n_records, second.open, second.project) == ("6", 7, True, "chats")
    assert (first.started_at, first.model) == (1_777_381_331_000_000, "gpt-test")
    exchange = result.exchanges[0]
    assert exchange.thinking == "check the pods"
    assert [(t.name, t.input, t.head) for t in exchange.tools] == [("shell", "kubectl get po", "3 pods")]
    assert result.exchanges[1].prev_content_id == exchange.content_id
    assert [(r.n_records, r.state, r.reason) for r in result.ledger] == [
        (1, "skipped", "system"),
        (4, "part_of", ""),
        (2, "part_of", ""),
    ]


@pytest.mark.parametrize("key", ["messages", "traj"])
def test_one_conversation_per_line_is_a_session_each(tmp_path: Path, key: str) -> None:
    data = lines([{"task_id": 1, key: MESSAGES}, {"task_id": 2, key: MESSAGES[1:]}])
    result = read_openai(tmp_path, data)
    assert sorted(texts(result)) == sorted(EXPECTED * 2)
    assert sorted((o.session_id, o.anchor) for o in result.occurrences) == [
        ("chats/a.jsonl#0", "2"),
        ("chats/a.jsonl#0", "6"),
        ("chats/a.jsonl#1", "1"),
        ("chats/a.jsonl#1", "5"),
    ]
    for o in result.occurrences:
        own = json.loads(b"[" + data[o.byte_start : o.byte_end] + b"]")
        assert own[0]["role"] == "user"
        assert own[-1]["role"] == "assistant"


@pytest.mark.parametrize("indent", [None, 2])
def test_documents(tmp_path: Path, indent: int | None) -> None:
    for value, sessions in (
        (MESSAGES, ["chats/a.jsonl"]),
        ([{"messages": MESSAGES}, {"messages": MESSAGES}], ["chats/a.jsonl#0", "chats/a.jsonl#1"]),
        ({"title": "Ingress", "messages": MESSAGES}, ["chats/a.jsonl#0"]),
        ([MESSAGES], ["chats/a.jsonl#0"]),
    ):
        result = read_openai(tmp_path, json.dumps(value, indent=indent).encode())
        assert texts(result) == EXPECTED * len(sessions)
        assert sorted({o.session_id for o in result.occurrences}) == sessions


def test_a_title_of_the_conversation(tmp_path: Path) -> None:
    result = read_openai(tmp_path, lines([{"title": "Ingress", "messages": MESSAGES}]))
    assert {o.title for o in result.occurrences} == {"Ingress"}


def test_a_document_that_was_cut_off(tmp_path: Path) -> None:
    data = json.dumps(MESSAGES).encode()[:-20]
    result = read_openai(tmp_path, data)
    assert texts(result) == [EXPECTED[0], ("And now? ü", "")]
    assert result.ledger[-1].state == "pending"


def test_a_document_larger_than_a_block(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": 'x\\"[{' * 250_000}, *MESSAGES[1:]]
    result = read_openai(tmp_path, json.dumps([messages, messages]).encode(), 10**6)
    assert [u for u, _ in texts(result)] == [messages[0]["content"] + "\n\nWhy 502?", "And now? ü"] * 2


def test_displayed_conversations(tmp_path: Path) -> None:
    shown = (
        "user: Cancel \\n my flight\nassistant: None\ntool: Error: no user\n"
        "assistant: Which one?\nwith luggage?\nuser: MCO"
    )
    data = lines([{"messages_display": shown}])
    result = read_openai(tmp_path, data)
    assert texts(result) == [("Cancel \\n my flight", "Which one?\nwith luggage?"), ("MCO", "")]
    assert [(t.name, t.head) for t in result.exchanges[0].tools] == [("", "Error: no user")]
    assert data[result.occurrences[1].byte_start : result.occurrences[1].byte_end] == b"\\nuser: MCO"


def test_messages_of_unexpected_types(tmp_path: Path) -> None:
    odd = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": {"x": 1}, "tool_calls": "none", "tool_call_id": 5},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "not json"}, "content": None},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "exit", "content": "bye"},
        {"content": "no role"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
    ]
    result = read_openai(tmp_path, lines(odd))
    assert texts(result) == [("One", "")]
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [("f", "not json", "r")]
    assert [(r.n_records, r.state, r.reason) for r in result.ledger] == [
        (4, "part_of", ""),
        (1, "skipped", "meta"),
        (2, "skipped", "empty"),
    ]


def test_a_broken_conversation_line_is_read(tmp_path: Path) -> None:
    data = lines([{"messages": MESSAGES}]).replace(b"502?", b"502?\xff")
    result = read_openai(tmp_path, data)
    assert texts(result) == [("Why 502?\ufffd", EXPECTED[0][1]), EXPECTED[1]]
    assert result.decode_errors == 1


def test_own_sessions_are_recognised_by_their_instruction(tmp_path: Path) -> None:
    own = [{"role": "system", "content": "backfill-distill/1 ..."}, *MESSAGES[1:]]
    result = read_openai(tmp_path, lines(own))
    assert result.exchanges == []
    assert [(r.n_records, r.reason) for r in result.ledger] == [(7, "own_session")]
