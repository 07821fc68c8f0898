"""Messages with roles and OpenAI-style tool calls, as several agents keep them in files of their own.

Deliberately absent: detection and placing; that is each format's.
"""

from __future__ import annotations

from typing import Any

from backfill.records import Act, AgentText, Prompt, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import parse_arguments
from backfill.sources.loose import mapping, objects, readable, string, words
from backfill.sources.typed import user_acts


def chat_acts(message: dict[str, Any]) -> list[Act]:
    """The acts of one message; keys in snake_case or camelCase."""
    role, content = message.get("role"), message.get("content")
    text = words(content)
    if role == "user":
        if not text.strip() and objects(content):
            return [Prompt("", unanswered="empty")]
        return user_acts(text)
    if role == "assistant":
        thought = words(message.get("reasoning_content")) or words(message.get("reasoning"))
        acts: list[Act] = [Thinking(thought)] if thought else []
        acts.append(AgentText(text))
        return acts + calls_of(message.get("tool_calls") or message.get("toolCalls"))
    if role == "thinking":
        return [Thinking(text)]
    if role == "tool":
        call = string(message.get("tool_call_id")) or string(message.get("toolCallId"))
        return [ToolResult(call, readable(content))]
    return [Skip("system" if role == "system" else "meta")]


def calls_of(calls: Any) -> list[Act]:
    """Tool calls with their function and arguments."""
    acts: list[Act] = []
    for call in objects(calls):
        function = mapping(call.get("function")) or call
        arguments = parse_arguments(function.get("arguments", function.get("input")))
        acts.append(ToolUse(string(call.get("id")), string(function.get("name")), arguments))
    return acts
