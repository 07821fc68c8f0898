"""OpenHands event streams, built by hand."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case

HARNESS = "Please continue working on the task on whatever approach you think is suitable"


def action(number: int, name: str, source: str = "agent", **args: Any) -> dict[str, Any]:
    """An action of version 0."""
    time = f"2025-03-04T10:00:{number:02d}.500000"
    return {"id": number, "timestamp": time, "source": source, "message": "shown", "action": name, "args": args}


def seen(number: int, name: str, content: str, cause: int | None, **more: Any) -> dict[str, Any]:
    """An observation of version 0."""
    time = f"2025-03-04T10:00:{number:02d}"
    event = {"id": number, "timestamp": time, "source": "agent", "observation": name, "content": content}
    return event | ({} if cause is None else {"cause": cause}) | {"extras": {}} | more


def events() -> list[dict[str, Any]]:
    """A run of version 0."""
    call = {"function_name": "execute_bash", "tool_call_id": "t1", "model_response": {"model": "some/model"}}
    return [
        action(0, "system", content="You are OpenHands mark-system."),
        action(1, "message", "user", content="Fix the door: mark-door"),
        action(2, "recall", "user", query="mark-recall"),
        seen(3, "recall", "mark-notes", 2),
        action(4, "run", command="ls mark-ls", thought="I look, mark-look.") | {"tool_call_metadata": call},
        seen(5, "run", "door.py mark-out", 4, tool_call_metadata=call),
        action(6, "think", thought="mark-thought"),
        seen(7, "think", "Your thought has been logged.", 6),
        seen(8, "agent_state_changed", "", None),
        action(9, "edit", path="door.py", new_str="mark-edit"),
        seen(10, "edit", "[edited door.py] mark-edited", 9),
        action(11, "message", "user", content=f"{HARNESS}. mark-fake"),
        action(12, "finish", final_thought="Done, mark-done.", outputs={}),
    ]  # fmt: skip


def sdk_events() -> list[dict[str, Any]]:
    """A conversation of the SDK."""

    def event(number: int, kind: str, source: str, **more: Any) -> dict[str, Any]:
        time = f"2026-01-02T03:04:{number:02d}.000001"
        return {"id": f"e{number}", "timestamp": time, "source": source, **more, "kind": kind}

    def says(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": text}]}

    call = {"tool_name": "terminal", "tool_call_id": "t1"}
    return [
        event(0, "SystemPromptEvent", "agent", system_prompt={"text": "mark-prompt"}, tools=[]),
        event(1, "MessageEvent", "user", llm_message=says("user", "Open it: mark-open")),
        event(2, "ConversationStateUpdateEvent", "environment", key="x", value="mark-state"),
        event(
            3,
            "ActionEvent",
            "agent",
            thought=[{"type": "text", "text": "I list."}],
            reasoning_content="mark-reason",
            action={"command": "ls", "kind": "TerminalAction"},
            tool_call={"id": "t1", "name": "terminal", "arguments": '{"command": "ls mark-ls"}'},
            **call,
        ),
        event(
            4,
            "ObservationEvent",
            "environment",
            observation={"content": [{"type": "text", "text": "a.py mark-list"}], "kind": "TerminalObservation"},
            **call,
        ),
        event(
            5, "ActionEvent", "agent", thought=[], tool_name="finish", tool_call_id="t2", action={"message": "Open."}
        ),
        event(6, "MessageEvent", "user", llm_message=says("user", "Thanks, close it: mark-close")),
        event(7, "MessageEvent", "agent", llm_message=says("assistant", "Closed.")),
    ]


def run_line(history: list[Any], instance: str = "a-1") -> dict[str, Any]:
    """A line of evaluation output."""
    return {
        "instance_id": instance,
        "instruction": "mark-instruction",
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "m"}},
        "history": history,
        "metrics": {"cost": 1},
    }


def as_lines(values: list[Any]) -> bytes:
    """One value per line."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


PAIRS = [[action(0, "message", "user", content="Pairs?"), seen(1, "null", "", None)]]
V0 = (("Fix the door: mark-door", "I look, mark-look.\n\nDone, mark-done."),)
V0_SAID = ("mark-door", "mark-look", "mark-ls", "mark-out", "mark-thought", "mark-edited", "mark-done")
V0_UNSAID = ("mark-system", "mark-recall", "mark-notes", "mark-fake")
CASES = (
    Case(
        "openhands", "openhands", json.dumps(events()).encode(), V0, V0_SAID, V0_UNSAID, appends=False
    ),
    Case(
        "openhands_lines",
        "openhands",
        as_lines(sdk_events()),
        (("Open it: mark-open", "I list.\n\nOpen."), ("Thanks, close it: mark-close", "Closed.")),
        ("mark-open", "mark-reason", "mark-ls", "mark-list", "mark-close"),
        ("mark-prompt", "mark-state"),
    ),
    Case(
        "openhands_output",
        "openhands",
        as_lines([run_line(events()), run_line(PAIRS)]),
        (*V0, ("Pairs?", "")),
        V0_SAID,
        (*V0_UNSAID, "mark-instruction"),
    ),
)  # fmt: skip
