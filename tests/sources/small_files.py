"""fx, CodeBuddy and WorkBuddy, built by hand."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case


def fx_turn(kind: str, text: str, steps: list[Any], assistant: str | None = None) -> dict[str, Any]:
    """One turn of a checkpoint."""
    execution = {"schema_version": 3, "tool_steps": steps, "files": []}
    return {"kind": kind, "user": {"text": text, "images": []}, "assistant": assistant, "execution": execution}


def fx_step(said: str, call_id: str, name: str, output: str, **arguments: Any) -> dict[str, Any]:
    """A step with one call and its result."""
    call = {"id": call_id, "name": name, "arguments_json": json.dumps(arguments)}
    result = {"tool_call_id": call_id, "tool_name": name, "output": output, "created_at_ms": 1787261100000}
    return {"assistant": said, "tool_calls": [call], "tool_results": [result]}


def fx_document() -> dict[str, Any]:
    """A checkpoint with a finished turn, a summary, and an interrupted one."""
    step = fx_step("I list.", "c1", "read_file", "README mark-list", path="src/a.py")
    history = [
        fx_turn(
            "assistant", "List: mark-ask", [step, {"assistant": "Two files.", "tool_calls": [], "tool_results": []}]
        ),
        {"kind": "compacted_summary", "summary": "mark-summary", "removed_turn_count": 1},
        fx_turn("interrupted", "Rename: mark-rename", [], "I was about to."),
    ]
    state = {"workspace_root": "/home/me/alpha", "preferences": {"model": "demo/m"}, "history": history}
    return {"schema_version": 1, "session_id": "fx-1", "through_seq": 42, "through_event_id": "e", "state": state}


def codebuddy_lines() -> list[dict[str, Any]]:
    """Every line with another shape of text and time."""
    named = {"session_id": "cb-1"}
    return [
        {"event_type": "metadata", **named, "createdAt": "2026-05-01T17:00:00Z", "workspace": {"path": "/p/shop"}},
        {"event_type": "message", **named, "created_at": 1777654801000000,
         "message": {"role": "user", "content": [{"text": {"value": "Inspect: mark-inspect"}}]}},
        {"event_type": "tool_use", **named, "created_at": 1777654802000000000, "tool": {"name": "read_file"},
         "input": {"path": "a.py"}},
        {"event_type": "tool_result", **named, "created_at": "1777654803", "result": ["mark-result"]},
        {"event_type": "assistant_message", **named, "updatedAt": "2026-05-01T17:00:04Z",
         "message": {"content": "Inspected."}},
        {"event_type": "checkpoint.saved", **named, "updatedAt": "2026-05-01T17:00:05Z", "payload": "mark-note"},
    ]  # fmt: skip


def workbuddy_lines() -> list[dict[str, Any]]:
    """The same in the other's shapes."""
    named = {"conversation_id": "wb-1"}
    return [
        {"kind": "conversation.created", **named, "time": "2026-05-01T19:00:00Z", "projectRoot": "/p/x", "model": "wb"},
        {"kind": "message", **named, "time": 1777662001, "author": {"role": "human"},
         "content": {"text": "Open: mark-open"}},
        {"kind": "tool-call", **named, "time": 1777662002000, "function": {"name": "open_file"},
         "parameters": {"path": "hello.py"}},
        {"kind": "tool-result", **named, "time": 1777662003000000, "message": {"content": "mark-printed"}},
        {"kind": "message", **named, "time": "2026-05-01T19:00:04Z", "author": {"role": "assistant"},
         "message": {"content": [{"text": "It prints."}]}},
        {"kind": "workspace.snapshot", **named, "time": "2026-05-01T19:00:05Z", "files": ["mark-snapshot"]},
    ]  # fmt: skip


def as_lines(values: list[Any]) -> bytes:
    """One value per line."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


CASES = (
    Case(
        "fx",
        "fx",
        json.dumps(fx_document(), indent=2).encode(),
        (("List: mark-ask", "I list.\n\nTwo files."), ("Rename: mark-rename", "I was about to.")),
        ("mark-ask", "mark-list", "mark-rename"),
        ("mark-summary",),
        appends=False,
    ),
    Case(
        "codebuddy",
        "codebuddy",
        as_lines(codebuddy_lines()),
        (("Inspect: mark-inspect", "Inspected."),),
        ("mark-inspect", "mark-result"),
        ("mark-note",),
    ),
    Case(
        "workbuddy",
        "workbuddy",
        as_lines(workbuddy_lines()),
        (("Open: mark-open", "It prints."),),
        ("mark-open", "mark-printed"),
        ("mark-snapshot",),
    ),
)
