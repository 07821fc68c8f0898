"""Lines of Claude Code sessions as structs: what is read of one, strictly where it is well formed, leniently else.

Only the fields that decide something are built; `toolUseResult` repeats the message, snapshots and progress are
skipped by the decoder. Deliberately absent: what a line means (`claude_code`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from backfill.sources.base import text_of


class Inner(msgspec.Struct, gc=False):
    """A block inside a tool result."""

    type: str = ""
    text: str | None = None
    title: str | None = None
    url: str | None = None


class Block(msgspec.Struct, gc=False):
    """A content block of a message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | list[Inner] | None = None


class Message(msgspec.Struct, gc=False):
    """The API message of a line."""

    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None


class Line(msgspec.Struct, gc=False):
    """What is read of one line."""

    type: str = ""
    uuid: str | None = None
    parentUuid: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    logicalParentUuid: str | None = None  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    session_id: str | None = None
    agentId: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    timestamp: str | None = None
    cwd: str | None = None
    gitBranch: str | None = None  # noqa: N815
    message: Message | None = None
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isVisibleInTranscriptOnly: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    sourceToolUseID: str | None = None  # noqa: N815
    origin: Any = None
    subtype: str | None = None
    content: Any = None
    operation: str | None = None
    attachment: Any = None
    summary: str | None = None
    leafUuid: str | None = None  # noqa: N815
    aiTitle: str | None = None  # noqa: N815
    customTitle: str | None = None  # noqa: N815


_TEXT_FIELDS = (
    "type", "uuid", "logicalParentUuid", "sessionId", "session_id", "agentId", "timestamp", "cwd", "gitBranch",
    "sourceToolUseID", "subtype", "operation", "summary", "leafUuid", "aiTitle", "customTitle",
)  # fmt: skip
_FLAG_FIELDS = ("isSidechain", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")


def lenient(value: Any) -> Line | None:
    """A line of any JSON value: what has another type than expected is left out."""
    if not isinstance(value, dict):
        return None
    line = Line()
    for name in _TEXT_FIELDS:
        if isinstance(value.get(name), str):
            setattr(line, name, value[name])
    for name in _FLAG_FIELDS:
        if isinstance(value.get(name), bool):
            setattr(line, name, value[name])
    if "parentUuid" in value:
        line.parentUuid = value["parentUuid"] if isinstance(value["parentUuid"], str) else None
    line.content = value.get("content")
    line.attachment = value.get("attachment")
    line.origin = value.get("origin")
    line.message = _lenient_message(value.get("message"))
    return line


def _lenient_message(value: Any) -> Message | None:
    if isinstance(value, str):
        return Message(content=value)
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    return Message(
        id=_text(value.get("id")),
        model=_text(value.get("model")),
        content=[_lenient_block(block) for block in content] if isinstance(content, list) else _text(content),
    )


def _lenient_block(value: Any) -> Block:
    if isinstance(value, str):
        return Block(type="text", text=value)
    if not isinstance(value, dict):
        return Block()
    block = Block(input=value.get("input"), content=text_of(value.get("content")))
    for name in ("type", "text", "thinking", "id", "name", "tool_use_id"):
        if isinstance(value.get(name), str):
            setattr(block, name, value[name])
    return block


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
