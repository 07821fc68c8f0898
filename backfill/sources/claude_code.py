"""Claude Code sessions: `~/.claude/projects/**/*.jsonl`, one JSON record per line.

One line is one block group of a message; sidechains of sub-agents lie inline, in `agent-*.jsonl` beside the session or
below it. Tool results are read from the message content; `toolUseResult` repeats them and is ignored. Deliberately
absent: `progress` records, which embed whole messages of sub-agents that have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from backfill.records import (
    Act,
    AgentText,
    Compacted,
    Prompt,
    Queued,
    Record,
    Skip,
    Steered,
    Thinking,
    Titled,
    ToolResult,
    ToolUse,
    Unqueued,
)
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time, text_of
from backfill.sources.claude_lines import Block, Inner, Line, lenient
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.typed import command_act, merge_prompts, queued_text, user_acts

_TYPES = frozenset((
    "user", "human", "assistant", "system", "summary", "progress", "queue-operation", "attachment",
    "file-history-snapshot", "last-prompt", "pr-link", "permission-mode", "ai-title", "custom-title",
    "agent-name", "mode", "worktree-state", "relocated", "bridge-session", "frame-link", "started", "result",
))  # fmt: skip
_SESSIONLESS = frozenset(("summary", "file-history-snapshot"))
# Keys of formats with a similar envelope.
_FOREIGN = frozenset(("payload", "event_msg", "provenance", "systemPayload", "role"))
_SYNTHETIC = "<synthetic>"
_WARMUP = "Warmup"
_packed = msgspec.msgpack.Encoder().encode
_META = Skip("meta")  # one for all records that say nothing


class ClaudeCodeReader(LineByLine):
    """Reads Claude Code's own session files."""

    name = "claude_code"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Pass,)

    def claims(self, head: Head) -> bool:
        """By the first record of a known type that carries a message, a session or a title."""
        for value in head.objects:
            if not isinstance(value.get("type"), str) or value["type"] not in _TYPES:
                continue
            message = value.get("message")
            if value.keys() & _FOREIGN or (isinstance(message, dict) and "parts" in message):
                return False
            if value["type"] in ("user", "human", "assistant"):
                return message is not None and ("parentUuid" in value or "id" not in value)
            if value["type"] in _SESSIONLESS:
                return "summary" in value or "snapshot" in value
            if isinstance(value.get("sessionId"), str):
                return value["type"] != "system" or "uuid" in value
        return not head.complete_lines and b'"parentUuid":' in head.raw and b'"parts":' not in head.raw

    def begin(self, unit: Unit) -> _Pass:
        """See `LineByLine`."""
        return _Pass(unit)

    def go_on(self, state: _Pass, unit: Unit) -> Iterator[Record]:
        """One record per line; of a torn line one per whole object on it."""
        decoder = Decoder(Line, lenient, _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield Record(piece.start, piece.end, acts)
            else:
                yield state.record(piece.start, piece.end, line)


class _Pass:
    """What must be remembered from line to line while one unit is read."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session = ""
        self._settled = ""  # session id of the last record whose session is known without looking
        self._roots: dict[str, str] = {}  # record of an inline sidechain -> uuid of its first record
        self._last_root = ""
        self._titles: dict[str, str] = {}  # leaf uuid that has not been seen yet -> title
        self._leaves: dict[str, str] = {}  # uuid -> session
        self._begun: set[str] = set()
        self._continued: dict[str, str] = {}  # session id that took over in mid-conversation -> the session it goes on

    def record(self, start: int, end: int, line: Line) -> Record:
        """The record of a decoded line."""
        kind = line.type
        if kind == "summary":
            return self._summary(start, end, line)
        if line.sessionId and line.sessionId == self._settled and not line.isSidechain:
            session, parent_session = self._session, ""
        else:
            session, parent_session = self._session_of(start, line)
        if not session:
            return Record(start, end, [Skip("meta")])
        uuid = line.uuid or ""
        make = _ACTS.get(kind)
        acts: list[Act] = [_META if kind in _TYPES else Skip("unknown_type")] if make is None else make(line)
        if self._titles and uuid in self._titles:
            acts.insert(0, Titled(self._titles.pop(uuid)))
        at, assumed = None, False
        if line.timestamp is not None and acts[0] is not _META:  # what joins no exchange needs no time
            at, assumed = parse_time(line.timestamp, self._unit.assume_tz)
        turn = model = ""
        block = 0
        message = line.message
        if kind == "assistant" and message is not None:
            turn = message.id or ""
            model = message.model if message.model and message.model != _SYNTHETIC else ""
            if turn and isinstance(message.content, list):
                block = _block_key(turn, message.content)
        parent = line.parentUuid
        linked = parent is not msgspec.UNSET
        if uuid:
            self._leaves[uuid] = session
        return Record(
            start, end, acts, session, parent_session, uuid, linked, parent if isinstance(parent, str) else None, turn,
            block, at, assumed, line.cwd or "", line.gitBranch or "", model,
        )  # fmt: skip

    def _session_of(self, start: int, line: Line) -> tuple[str, str]:
        """(session, parent session) of a line; inline sidechains are told apart by their first record."""
        own = line.sessionId or line.session_id
        if own:
            self._session = self._continued.get(own) or self._begin(own, line)
            self._settled = own if own in self._begun else ""
        elif line.type in _SESSIONLESS or (line.message is None and line.uuid is None and not self._session):
            return "", ""
        else:
            self._session = self._session or self._unit.source
        if not line.isSidechain:
            return self._session, ""
        if line.agentId:
            return f"{self._session}/agent-{line.agentId}", self._session
        parent = line.parentUuid if isinstance(line.parentUuid, str) else ""
        root = self._roots.get(parent, "")
        if not root:
            root = (line.uuid or f"{start}") if line.uuid or not self._last_root else self._last_root
        if line.uuid:
            self._roots[line.uuid] = root
        self._last_root = root
        return f"{self._session}/sidechain-{root}", self._session

    def _begin(self, session: str, line: Line) -> str:
        """The session of a session id. One whose first message is the agent's answer to a prompt under another id is
        that other session: accepting a plan renews the id between prompt and answer."""
        if session in self._begun or line.isSidechain or line.type not in ("user", "human", "assistant"):
            return session
        self._begun.add(session)
        parent = line.parentUuid if isinstance(line.parentUuid, str) else ""
        before = self._leaves.get(parent, session)
        if line.type != "assistant" or before == session or "/" in before:
            return session
        self._continued[session] = before
        return before

    def _summary(self, start: int, end: int, line: Line) -> Record:
        """A title. It may name a record of this file, seen or still to come, or one of another file."""
        session = self._leaves.get(line.leafUuid or "", "")
        if session and line.summary:
            return Record(start, end, [Titled(line.summary)], session)
        if line.summary and line.leafUuid:
            self._titles[line.leafUuid] = line.summary
        return Record(start, end, [Skip("meta")])


def _agent_acts(line: Line) -> list[Act]:
    message = line.message
    if line.isApiErrorMessage or (message is not None and message.model == _SYNTHETIC):
        return [Skip("api_error")]
    if line.isMeta:
        return [Skip("meta")]
    content = message.content if message is not None else None
    if isinstance(content, str):
        return [AgentText(content)]
    acts: list[Act] = []
    for block in content or ():
        kind = block.type
        if kind == "text":
            acts.append(AgentText(block.text or ""))
        elif kind == "thinking":
            acts.append(Thinking(block.thinking or ""))
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            acts.append(ToolUse(block.id or "", block.name or "", parse_arguments(block.input)))
        elif kind.endswith("tool_result"):
            acts.append(ToolResult(block.tool_use_id or "", _result_text(block.content)))
    # An agent's record without text is still something from the agent, where there was a message at all.
    return acts or [AgentText("") if content else Skip("empty")]


def _user_acts(line: Line) -> list[Act]:
    content = line.message.content if line.message is not None else None
    blocks: Sequence[Block] = ()
    if isinstance(content, str):
        texts = [content]
    else:
        blocks = content or ()
        texts = [block.text for block in blocks if block.text and block.type == "text"]
    acts: list[Act] = [
        ToolResult(block.tool_use_id or "", _result_text(block.content))
        for block in blocks
        if block.type == "tool_result"
    ]
    if line.isCompactSummary:
        return [*acts, Compacted(), Skip("compact_summary")]
    if line.isMeta or line.isVisibleInTranscriptOnly:
        return acts or [Skip("meta")]
    if line.sourceToolUseID or _is_foreign(line.origin):
        return acts or [Skip("injected")]
    if line.isSidechain and texts == [_WARMUP]:
        return [*acts, Skip("warmup")]
    if texts:
        typed = merge_prompts([act for text in texts for act in user_acts(text)])
        if any(isinstance(act, Skip) and act.reason == "compact_summary" for act in typed):
            typed.insert(0, Compacted())
        acts += typed
    elif not acts and any(block.type in ("image", "document") for block in blocks):
        acts.append(Prompt("", unanswered="empty"))
    return acts or [Skip("empty")]


def _queue_acts(line: Line) -> list[Act]:
    operation = line.operation
    if operation == "enqueue":
        text = queued_text(text_of(line.content))
        return [Queued(text)] if text else [Skip("queue")]
    if operation == "dequeue":
        return [Unqueued()]
    if operation == "remove":
        return [Unqueued(sure=False)]
    return [Unqueued(everything=True)] if operation == "popAll" else [Skip("queue")]


def _system_acts(line: Line) -> list[Act]:
    if line.subtype == "compact_boundary":
        return [Compacted(line.logicalParentUuid), Skip("meta")]
    if line.subtype == "local_command" and isinstance(line.content, str):
        if line.content.lstrip().startswith(("<command-name>", "<command-message>")):
            return [command_act(line.content)]
        return [Skip("command")]
    return [Skip("api_error" if line.subtype == "api_error" else "meta")]


def _attachment_acts(line: Line) -> list[Act]:
    attachment = line.attachment
    if isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        mode = attachment.get("commandMode")
        if mode in (None, "prompt") and not _is_foreign(attachment.get("origin")):
            text = queued_text(text_of(prompt))
            if text:
                return [Steered(text)]
        return [Skip("queue")]
    return [Skip("meta")]


def _title_acts(line: Line) -> list[Act]:
    if line.type == "custom-title" and line.customTitle:
        return [Titled(line.customTitle, given=True)]
    return [Titled(line.aiTitle)] if line.type == "ai-title" and line.aiTitle else [_META]


def _is_foreign(origin: Any) -> bool:
    """Whether a record says that no person typed it."""
    kind = origin.get("kind") if isinstance(origin, dict) else origin
    return isinstance(kind, str) and kind not in ("human", "user", "prompt", "")


def _result_text(content: str | list[Inner] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = (i.text if i.text is not None else f"{i.title or ''} {i.url}".strip() if i.url else "" for i in content)
    return "\n".join(text for text in texts if text)


def _stable_hash(value: Any) -> int:
    """Equal in every process, so that a reading may go on in another; 63 bits of XXH3."""
    return xxhash.xxh3_64_intdigest(_packed(value)) >> 1


def _block_key(message_id: str, blocks: list[Block]) -> int:
    """Identity of what a line says of its message; equal keys mean equal content."""
    if len(blocks) == 1:  # nearly always
        b = blocks[0]
        if b.type == "tool_use" and not b.id:
            return 0
        return _stable_hash((message_id, b.type, b.text, b.thinking, b.id, b.tool_use_id))
    if any(block.type == "tool_use" and not block.id for block in blocks):
        return 0
    parts = tuple((b.type, b.text, b.thinking, b.id, b.tool_use_id) for b in blocks)
    return _stable_hash((message_id, parts)) if parts else 0


def _is_record(line: Line) -> bool:
    return line.type in _TYPES and bool(line.sessionId or line.session_id or line.type in _SESSIONLESS)


_ACTS: dict[str, Callable[[Line], list[Act]]] = {
    "assistant": _agent_acts,
    "user": _user_acts,
    "human": _user_acts,
    "queue-operation": _queue_acts,
    "system": _system_acts,
    "attachment": _attachment_acts,
    "custom-title": _title_acts,
    "ai-title": _title_acts,
}
