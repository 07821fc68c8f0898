"""Small files of agents, written for tests, and readings of folders and databases of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.scan import list_units
from backfill.sources import UnitResult, read_unit
from backfill.sources.units import UnitFile
from tests.sources.contract import Case


def jsonl(values: Iterable[Any]) -> bytes:
    """One value per line."""
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def read_tree(root: Path, **config: Any) -> list[UnitResult]:
    """Reads every unit below a folder; each must tile its files and name exchanges that exist."""
    results = []
    for unit in list_units([str(root)]).units:
        members = [UnitFile(root / m.source, m.source, m.size_bytes) for m in unit.members]
        settings = ScanConfig(**{"privacy": "off", **config})
        result = read_unit(root / unit.source, unit.source, unit.size_bytes, settings, members=members)
        assert check(result.ledger, unit.sizes, {e.exchange_id for e in result.exchanges}) == []
        results.append(result)
    return results


def write_tree(root: Path, files: dict[str, Any]) -> None:
    """Writes JSON documents, or bytes as they are."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


def database(path: Path, script: str, rows: dict[str, list[tuple[Any, ...]]]) -> Path:
    """A SQLite database."""
    connection = sqlite3.connect(path)
    connection.executescript(script)
    for table, values in rows.items():
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(values[0]))})", values)
    connection.commit()
    connection.close()
    return path


def told(result: UnitResult) -> list[tuple[str, str]]:
    """(user_text, agent_text) in the order in which the exchanges began."""
    rows = {e.exchange_id: e for e in result.exchanges}
    ordered = sorted(result.occurrences, key=lambda o: (o.session_id, o.started_at or 0, o.byte_start, o.part))
    return [(rows[o.exchange_id].user_text, rows[o.exchange_id].agent_text) for o in ordered]


def fates(result: UnitResult) -> list[tuple[str, int, str, str]]:
    """(source, n_records, state, reason) of the ledger."""
    return [(r.source, r.n_records, r.state, r.reason) for r in result.ledger]


def text(body: str) -> dict[str, str]:
    """A text block."""
    return {"type": "text", "text": body}


DETAILS = (
    "<environment_details>\n# Current Working Directory (/home/ana/shop) Files\nhidden-mark\n</environment_details>"
)
TASK: list[dict[str, Any]] = [
    {"role": "user", "content": [text("<task>\nFix the cart\n</task>"), text(DETAILS)], "ts": 1_772_000_000_000},
    {
        "role": "assistant",
        "content": [
            text("<thinking>hm</thinking>I look.\n<read_file>\n<path>cart.py</path>\n</read_file>"),
        ],
        "ts": 1_772_000_001_000,
        "modelInfo": {"modelId": "m-1"},
    },
    {
        "role": "user",
        "content": [
            text("[read_file for 'cart.py'] Result:"),
            text("total = 1  # <task>not typed</task>"),
            text("# task_progress\nboilerplate-mark"),
            text(DETAILS),
        ],
    },
    {
        "role": "assistant",
        "content": [text("<attempt_completion>\n<result>\nThe total was wrong.\n</result>\n</attempt_completion>")],
    },
    {
        "role": "user",
        "content": [
            text("[attempt_completion] Result:"),
            text("The user has provided feedback:\n<feedback>\nAnd the tax?\n</feedback>"),
            text(DETAILS),
        ],
        "ts": 1_772_000_009_000,
    },
    {
        "role": "assistant",
        "content": [
            text("Tax is next."),
            {"type": "tool_use", "id": "t1", "name": "execute_command", "input": {"command": "ls"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [text("tax.py")]}]},
]

CALL = {"id": "t1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls -la"}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are"},
    {"role": "user", "content": "Fix the cart"},
    {"role": "assistant", "content": None, "reasoning_content": "quietly", "tool_calls": [CALL]},
    {"role": "tool", "content": "a.py b.py", "tool_call_id": "t1"},
    {"role": "assistant", "content": "Fixed."},
    {"role": "user", "content": "Thanks"},
]
VIBE = {
    "session_id": "v-1",
    "start_time": "2026-12-10T20:34:09.5",
    "environment": {"working_directory": "/w/shop"},
    "git_branch": "main",
    "title": "Carts",
    "agent_config": {"active_model": "m-1"},
}
GOOSE_CALL = {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls -la"}}}
GOOSE_RESULT = {"status": "success", "value": [text("a.py b.py")]}
GOOSE: list[dict[str, Any]] = [
    {"id": "20260724_1", "description": "Carts", "working_dir": "/w/shop", "message_count": 5, "extension_data": {}},
    {"id": "m1", "role": "user", "created": 1_784_278_801, "content": [text("Say hello")]},
    {
        "id": "m2",
        "role": "assistant",
        "created": 1_784_278_802,
        "content": [
            {"type": "thinking", "thinking": "quietly"},
            text("Listing."),
            {"type": "toolRequest", "id": "t1", "toolCall": GOOSE_CALL},
        ],
    },
    {
        "id": "m3",
        "role": "user",
        "created": 1_784_278_803,
        "content": [{"type": "toolResponse", "id": "t1", "toolResult": GOOSE_RESULT}],
    },
    {"id": "m4", "role": "assistant", "created": 1_784_278_804, "content": [text("Hello from Goose!")]},
    {"role": "user", "created": 1, "content": [text("not-shown-mark")], "metadata": {"userVisible": False}},
    {"id": "m6", "role": "user", "created": 1_784_278_806, "content": [text("And now?")]},
]

CASES: tuple[Case, ...] = (
    Case(
        "opencode_transcripts",
        "opencode_transcripts",
        jsonl(
            [
                {"type": "user", "timestamp": "2026-01-02T03:04:05.000Z", "content": "Where is the lock?"},
                {
                    "type": "tool_use",
                    "timestamp": "2026-01-02T03:04:06.000Z",
                    "tool_name": "grep",
                    "tool_input": {"pattern": "lock-mark"},
                },
                {
                    "type": "tool_result",
                    "timestamp": "2026-01-02T03:04:07.000Z",
                    "tool_name": "grep",
                    "tool_input": {"pattern": "lock-mark-again"},
                    "tool_output": {"title": "x", "output": "db.py:12"},
                },
                {"type": "user", "timestamp": "2026-01-02T03:05:05.000Z", "content": "Remove it"},
            ]
        ),
        (("Where is the lock?", ""), ("Remove it", "")),
        ("lock-mark", "db.py:12"),
        ("lock-mark-again",),
    ),
    Case(
        "cline",
        "cline",
        json.dumps(TASK).encode(),
        (("Fix the cart", "I look.\n\nThe total was wrong."), ("And the tax?", "Tax is next.")),
        ("hm", "cart.py", "not typed", "tax.py"),
        ("hidden-mark", "boilerplate-mark", "has provided"),
        appends=False,
        source="tasks/1772000000000/api_conversation_history.json",
    ),
    Case(
        "cursor",
        "cursor",
        jsonl(
            [
                {"role": "user", "message": {"content": [text("<user_query>\nRun ls.\n</user_query>")]}},
                {
                    "role": "assistant",
                    "message": {
                        "content": [
                            {"type": "thinking", "thinking": "quietly"},
                            {"type": "tool_use", "name": "Shell", "input": {"command": "ls -la"}},
                        ]
                    },
                },
                {
                    "role": "user",
                    "message": {"content": [{"type": "tool-result", "name": "Shell", "content": [text("a.py b.py")]}]},
                },
                {
                    "role": "assistant",
                    "message": {"content": [text("Two files."), {"type": "odd", "text": "Visible."}]},
                },
                {"role": "user", "message": {"content": [text("thanks")]}},
            ]
        ),
        (("Run ls.", "Two files.\n\nVisible."), ("thanks", "")),
        ("quietly", "ls -la", "a.py b.py"),
        ("user_query",),
    ),
    Case(
        "goose",
        "goose",
        jsonl(GOOSE),
        (("Say hello", "Listing.\n\nHello from Goose!"), ("And now?", "")),
        ("quietly", "ls -la", "a.py b.py"),
        ("not-shown-mark",),
        source="sessions/20260724_1.jsonl",
    ),
    Case(
        "continue",
        "continue",
        json.dumps(
            {
                "sessionId": "s-1",
                "title": "Carts",
                "workspaceDirectory": "file:///w/shop",
                "history": [
                    {
                        "message": {"role": "user", "content": [text("Fix the cart")]},
                        "contextItems": [{"content": "ctx-mark"}],
                    },
                    {
                        "message": {"role": "assistant", "content": "", "toolCalls": [CALL | {"id": "t1"}]},
                        "reasoning": {"text": "quietly"},
                    },
                    {"message": {"role": "tool", "content": "a.py b.py", "toolCallId": "t1"}},
                    {"message": {"role": "assistant", "content": "Fixed ü."}, "promptLogs": [{"prompt": "log-mark"}]},
                ],
            },
            ensure_ascii=False,
        ).encode(),
        (("Fix the cart", "Fixed ü."),),
        ("quietly", "ls -la", "a.py b.py"),
        ("ctx-mark", "log-mark"),
        appends=False,
    ),
    Case(
        "mistral_vibe",
        "mistral_vibe",
        json.dumps({"metadata": VIBE, "messages": CHAT}, indent=2).encode(),
        (("Fix the cart", "Fixed."), ("Thanks", "")),
        ("quietly", "ls -la", "a.py b.py"),
        ("You are",),
        appends=False,
    ),
    Case(
        "hermes",
        "hermes",
        json.dumps(
            {
                "session_id": "h-1",
                "model": "m-1",
                "platform": "cli",
                "session_start": "2026-04-29T20:05:00Z",
                "model_config": {"cwd": "/w/shop"},
                "system_prompt": "sys-mark",
                "messages": [*CHAT, {"role": "meta"}],
            }
        ).encode(),
        (("Fix the cart", "Fixed."), ("Thanks", "")),
        ("quietly", "ls -la", "a.py b.py"),
        ("sys-mark", "You are"),
        appends=False,
    ),
)
