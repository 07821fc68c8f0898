"""Trajectories of benchmark agents, built by hand: SWE-agent, mini-swe-agent."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case


def openai_call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call in the shape of OpenAI's chat API."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def swe_history() -> list[dict[str, Any]]:
    """A run in text mode: a demonstration, the task, two steps; observations are role user."""
    return [
        {"role": "system", "content": "SETTING: you are programmer zero.", "agent": "primary"},
        {"role": "user", "content": "A demonstration: mark-demo", "agent": "demo", "is_demo": True},
        {"role": "user", "content": "Fix the clock: mark-task", "agent": "primary"},
        {
            "role": "assistant",
            "content": "I look first, mark-look.\n```\nopen clock.py\n```",
            "thought": "I look first, mark-look.\n",
            "action": "open clock.py\n",
            "agent": "primary",
        },
        {"role": "user", "content": "[File: clock.py]\r\n1:tick mark-seen", "agent": "primary"},
        {
            "role": "assistant",
            "content": "Done, mark-done.\n```\nsubmit\n```",
            "thought": "Done, mark-done.\n",
            "action": "submit",
            "agent": "primary",
        },
        {"role": "user", "content": "diff --git mark-diff", "agent": "primary"},
    ]


def swe_document() -> dict[str, Any]:
    """The same run as a whole file: the trajectory repeats the history, before it."""
    step = {
        "action": "open clock.py\n",
        "observation": "mark-copy",
        "response": "I look",
        "thought": "I",
        "state": "{}",
    }
    return {
        "environment": "swe_main",
        "trajectory": [step, step],
        "history": swe_history(),
        "info": {"exit_status": "submitted", "submission": "mark-info"},
    }


def swe_calls() -> dict[str, Any]:
    """A run with function calls and nothing but a history."""
    agent = {"agent": "main", "message_type": "action"}
    return {
        "history": [
            {"message_type": "system_prompt", "role": "system", "content": "SETTING", "agent": "main"},
            {"message_type": "observation", "role": "user", "content": "Fix it: mark-fix", "agent": "main"},
            {
                **agent,
                "role": "assistant",
                "content": "I open it.",
                "thought": "I open it.",
                "action": "open a.py",
                "tool_calls": [openai_call("c1", "open", path="a.py")],
                "thinking_blocks": [{"type": "thinking", "thinking": "mark-thought"}],
            },
            {
                "role": "tool",
                "content": [{"type": "text", "text": "1: mark-line"}],
                "agent": "main",
                "tool_call_ids": ["c1"],
            },
        ]
    }


def mini_info(cwd: str = "/testbed") -> dict[str, Any]:
    """What stands before the messages."""
    config = {"environment": {"cwd": cwd}, "model": {"model_name": "some/model"}}
    return {"model_stats": {"api_calls": 2}, "config": config, "mini_version": "2.2.7", "exit_status": "Submitted"}


def mini_messages() -> list[dict[str, Any]]:
    """A run of version 2."""
    return [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Fix the lock: mark-lock"},
        {
            "role": "assistant",
            "content": "I list.",
            "reasoning_content": "mark-reason",
            "tool_calls": [openai_call("c1", "bash", command="ls mark-ls")],
            "extra": {"timestamp": 1775793867.5, "response": {"x": "mark-extra"}},
        },
        {
            "role": "tool",
            "content": "<returncode>0</returncode> mark-out",
            "tool_call_id": "c1",
            "extra": {"raw_output": "x"},
        },
        {
            "role": "assistant",
            "content": "I submit.",
            "tool_calls": [openai_call("c2", "bash", command="echo COMPLETE")],
            "extra": {"timestamp": 1775793900},
        },
        {"role": "exit", "content": "diff --git mark-patch", "extra": {"exit_status": "Submitted"}},
    ]


def mini_document(messages: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The run as a whole file."""
    found = mini_messages() if messages is None else messages
    return {"info": mini_info(), "messages": found, "trajectory_format": "mini-swe-agent-1.1", "instance_id": "x-1"}


def mini_list() -> list[dict[str, Any]]:
    """A run of version 1: a bare list, results as role user, a person who speaks in between."""
    return [
        {"role": "system", "content": "One bash block per answer."},
        {"role": "user", "content": "Say hello: mark-hello"},
        {"role": "assistant", "content": "THOUGHT\n\n```mswea_bash_command\necho mark-echo\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\nmark-echoed\n</output>"},
        {"role": "user", "content": "Interrupted by user: louder, mark-louder"},
        {"role": "assistant", "content": "HELLO\n\n```mswea_bash_command\necho HELLO\n```"},
        {"role": "user", "content": ""},
    ]


def dump(value: Any) -> bytes:
    """As the agents write it."""
    return json.dumps(value, indent=2).encode()


CASES = (
    Case(
        "swe_agent",
        "swe_agent",
        dump(swe_document()),
        (
            (
                "Fix the clock: mark-task",
                "I look first, mark-look.\n```\nopen clock.py\n```\n\nDone, mark-done.\n```\nsubmit\n```",
            ),
        ),
        ("mark-task", "mark-look", "mark-seen", "mark-done", "mark-diff"),
        ("mark-demo", "mark-copy", "mark-info", "programmer zero"),
        appends=False,
    ),
    Case(
        "swe_agent_calls",
        "swe_agent",
        dump(swe_calls()),
        (("Fix it: mark-fix", "I open it."),),
        ("mark-fix", "mark-thought", "mark-line"),
        appends=False,
    ),
    Case(
        "mini_swe_agent",
        "mini_swe_agent",
        dump(mini_document()),
        (("Fix the lock: mark-lock", "I list.\n\nI submit."),),
        ("mark-lock", "mark-reason", "mark-ls", "mark-out", "mark-patch"),
        ("mark-extra", "helpful assistant"),
        appends=False,
    ),
    Case(
        "mini_swe_agent_list",
        "mini_swe_agent",
        dump(mini_list()),
        (
            ("Say hello: mark-hello", "THOUGHT\n\n```mswea_bash_command\necho mark-echo\n```"),
            ("Interrupted by user: louder, mark-louder", "HELLO\n\n```mswea_bash_command\necho HELLO\n```"),
        ),
        ("mark-hello", "mark-echoed", "mark-louder"),
        appends=False,
    ),
)
