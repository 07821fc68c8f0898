"""One whole fixture of each command-line agent's own format, as a few lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case

CODEX_SESSION = "019a0000-1111-7000-8000-00000000c0de"


def jsonl(*values: Any) -> bytes:
    """One value per line; bytes are lines as they are."""
    return b"".join(v if isinstance(v, bytes) else json.dumps(v, ensure_ascii=False).encode() + b"\n" for v in values)


# Codex


def codex(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    """A line of a rollout."""
    return {"timestamp": f"2026-02-03T04:05:{second:02d}.000Z", "type": kind, "payload": payload}


def codex_message(role: str, text: str, second: int) -> dict[str, Any]:
    """A message item."""
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", second, type="message", role=role, content=[{"type": kind, "text": text}])


def codex_event(kind: str, message: str, second: int) -> dict[str, Any]:
    """An event with a message."""
    return codex("event_msg", second, type=kind, message=message)


CODEX_META = codex(
    "session_meta", 0, id=CODEX_SESSION, cwd="/home/ana/shop", cli_version="0.50.0", git={"branch": "main"}
)
CODEX_CASE = Case(
    "codex",
    "codex",
    jsonl(
        CODEX_META,
        codex_message("user", "<environment_context>\n<cwd>/home/ana/shop</cwd>\n</environment_context>", 1),
        codex_event("user_message", "Why does the nightly export stall?", 2),
        codex("turn_context", 2, cwd="/home/ana/shop", model="gpt-5"),
        codex_message("user", "Why does the nightly export stall?", 2),
        codex("event_msg", 3, type="agent_reasoning", text="thought aloud on screen"),
        codex("response_item", 3, type="reasoning", summary=[{"type": "summary_text", "text": "Look at the lock."}]),
        codex("response_item", 4, type="function_call", name="shell", call_id="c1",
              arguments='{"command":["bash","-lc","cat export.py"]}'),
        codex("event_msg", 4, type="token_count", info=None),
        codex("response_item", 5, type="function_call_output", call_id="c1",
              output='{"output":"lock = flock(fd)","metadata":{"exit_code":0}}'),
        codex_event("agent_message", "It waits for the file lock.", 6),
        codex_message("assistant", "It waits for the file lock.", 6),
        codex_event("user_message", "Only the event says: release it.", 7),
        codex_message("assistant", "Released in a finally block.", 8),
        codex("event_msg", 9, type="turn_aborted", reason="interrupted"),
        codex_event("user_message", "last prompt, event alone", 10),
    ),
    (
        ("Why does the nightly export stall?", "It waits for the file lock."),
        ("Only the event says: release it.", "Released in a finally block."),
        ("last prompt, event alone", ""),
    ),
    ("Look at the lock.", "cat export.py", "lock = flock(fd)", "Only the event says", "last prompt, event alone"),
    ("thought aloud on screen", "environment_context"),
)  # fmt: skip

CASES: tuple[Case, ...] = (CODEX_CASE,)
