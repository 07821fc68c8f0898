"""Exports of chat sites, built by hand: ChatGPT, Claude.ai, ShareGPT."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case


def node(
    key: str, parent: str | None, role: str = "", text: Any = "", children: tuple[str, ...] = (), **message: Any
) -> dict[str, Any]:
    """A node of ChatGPT's mapping; without a role it has no message."""
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    said = {"id": key, "author": {"role": role}, "create_time": 1772359200.5, "content": content, "recipient": "all"}
    return {"id": key, "message": said | message if role else None, "parent": parent, "children": list(children)}


def conversation(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """One conversation of ChatGPT's export."""
    return {"title": "The cache", "create_time": 1772359200.5, "mapping": {n["id"]: n for n in nodes}, **fields}


def forked() -> dict[str, Any]:
    """A conversation with a regenerated answer, an edited prompt, and a tool call; written out of path order."""
    return conversation(
        node("leaf2", "again", "user", "so a table, mark-table"),
        node("root", None, children=("sys",)),
        node("sys", "root", "system", "mark-system", ("q1",), metadata={"is_visually_hidden_from_conversation": True}),
        node("q1", "sys", "user", "why is it slow? mark-q1", ("a1", "a2")),
        node("a1", "q1", "assistant", "The index is missing, mark-a1.", ("q2", "q2b")),
        node("a2", "q1", "assistant", "The disk is slow, mark-a2.", ("again",)),
        node("again", "a2", "user", "and now? mark-again"),
        node("q2", "a1", "user", "add it, mark-add", ("code",)),
        node("q2b", "a1", "user", "drop it, mark-drop", ("a3b",)),
        node("code", "q2", "assistant", {"content_type": "code", "text": "mark-code()"}, ("out",), recipient="python"),
        node("out", "code", "tool", {"content_type": "execution_output", "text": "mark-out"}, ("a3",)),
        node("a3", "out", "assistant", "Added, mark-a3.", metadata={"model_slug": "gpt-test"}),
        node("a3b", "q2b", "assistant", "Dropped, mark-a3b."),
        conversation_id="c-1",
    )


CHATGPT = json.dumps([forked(), conversation(conversation_id="c-empty")], indent=1).encode()

CLAUDE_AI: list[dict[str, Any]] = [
    {
        "uuid": "conv-1",
        "name": "Lock files",
        "created_at": "2026-03-01T10:00:00.000000Z",
        "chat_messages": [
            {
                "uuid": "m1",
                "text": "read this mark-typed",
                "content": [{"type": "text", "text": "read this mark-typed"}],
                "sender": "human",
                "created_at": "2026-03-01T10:00:00.000000Z",
                "attachments": [{"file_name": "lock.txt", "file_type": "txt", "extracted_content": "mark-attached"}],
                "files": [{"file_name": "shot.png"}],
            },
            {
                "uuid": "m2",
                "text": "It is stale, mark-said.",
                "content": [
                    {"type": "thinking", "thinking": "mark-thought"},
                    {"type": "tool_use", "id": "t1", "name": "repl", "input": {"code": "mark-call"}},
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "mark-result"}]},
                    {"type": "text", "text": "It is stale, mark-said."},
                ],
                "sender": "assistant",
                "created_at": "2026-03-01T10:00:30.000000Z",
                "attachments": [],
                "files": [],
            },
            {"uuid": "m3", "text": "thanks", "sender": "human", "attachments": [], "files": []},
        ],
    },
    {"uuid": "conv-2", "name": "", "chat_messages": []},
]

SHAREGPT = "".join(
    json.dumps(value) + "\n"
    for value in (
        {
            "id": "s1",
            "conversations": [
                {"from": "system", "value": "mark-system"},
                {"from": "human", "value": "weather? mark-asked"},
                {"from": "function_call", "value": '{"name": "get", "arguments": {"city": "mark-city"}}'},
                {"from": "observation", "value": "mark-rain"},
                {"from": "gpt", "value": "Rain, mark-answer."},
            ],
        },
        {"id": "s2", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]},
    )
).encode()

CASES: tuple[Case, ...] = (
    Case(
        "chatgpt",
        "chatgpt",
        CHATGPT,
        (
            ("why is it slow? mark-q1", "The index is missing, mark-a1."),
            ("why is it slow? mark-q1", "The disk is slow, mark-a2."),
            ("and now? mark-again\n\nso a table, mark-table", ""),
            ("add it, mark-add", "Added, mark-a3."),
            ("drop it, mark-drop", "Dropped, mark-a3b."),
        ),
        (
            "mark-q1",
            "mark-a1",
            "mark-a2",
            "mark-again",
            "mark-add",
            "mark-drop",
            "mark-table",
            "mark-code",
            "mark-out",
            "mark-a3.",
            "mark-a3b",
        ),
        ("mark-system",),
        appends=False,
        source="export/conversations.json",
    ),
    Case(
        "claude_ai",
        "claude_ai",
        json.dumps(CLAUDE_AI).encode(),
        (("read this mark-typed\n\n[lock.txt]\nmark-attached", "It is stale, mark-said."), ("thanks", "")),
        ("mark-attached", "mark-thought", "mark-call", "mark-result"),
        appends=False,
        source="export/conversations.json",
    ),
    Case(
        "sharegpt",
        "sharegpt",
        SHAREGPT,
        (("weather? mark-asked", "Rain, mark-answer."), ("hi", "hello")),
        ("mark-asked", "mark-city", "mark-rain", "mark-answer"),
        ("mark-system",),
        source="data/train.jsonl",
    ),
)
