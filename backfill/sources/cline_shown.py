"""What Cline's editor showed of a task: `ui_messages.json`, beside the API's messages or alone.

Beside them it repeats what they say, but for prompts that a condensed history has lost: those are read here, with
what followed them. Deliberately absent: the API's messages (`cline`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import parse_time
from backfill.sources.doubles import same_text
from backfill.sources.typed import user_acts
from backfill.steering import normal

_META = frozenset(("api_req_started", "api_req_finished", "api_req_retried", "checkpoint_created", "task_progress"))
_COPY = "copy"
# A shorter prompt must be one of the API's prompts: "yes" is contained in too many texts.
_CONTAINED_MIN_CHARS = 12


class Message(msgspec.Struct, gc=False):
    """A message of either file."""

    role: str | None = None
    content: Any = None
    ts: Any = None
    modelInfo: Any = None  # noqa: N815
    type: str | None = None
    say: str | None = None
    ask: str | None = None
    text: str | None = None
    partial: bool | None = None
    images: Any = None
    conversationHistoryIndex: Any = None  # noqa: N815

    @property
    def kind(self) -> str:
        """What it says or asks; empty for a message that does neither."""
        return (self.say if self.type == "say" else self.ask if self.type == "ask" else "") or ""


class Shown:
    """The messages of one task as they were shown."""

    def __init__(self, session: str, assume_tz: str) -> None:
        self.kept: list[tuple[int, int, Message]] = []
        self._session = session
        self._assume_tz = assume_tz
        self._n = 0
        self._calls: list[tuple[str, str]] = []  # (id, tool) without a result
        self._prompted = False

    def record(self, start: int, end: int, message: Message) -> Record:
        """The record of a shown message that says what nothing else says."""
        if message.type not in ("say", "ask"):
            return Record(start, end, [Skip("meta")])
        at, _ = parse_time(message.ts, self._assume_tz)
        return Record(start, end, self._acts(message), self._session, at=at)

    def keep(self, start: int, end: int, message: Message, times: dict[int, int | None]) -> None:
        """Keeps a message until the API's are known; `times` by the number of the API's message learn its time."""
        self.kept.append((start, end, message))
        index = message.conversationHistoryIndex
        at, _ = parse_time(message.ts, self._assume_tz)
        if isinstance(index, int) and at is not None:
            times.setdefault(index + 1, at)

    def merged(self, told: list[tuple[Record, str]], cwd: str) -> Iterator[Record]:
        """The kept messages and the API's, each with the text of its user: where the API's lost a prompt, it stands
        before the next one that both have."""
        prompts = self._prompts()
        found = _found([message.text or "" for _, _, message in (self.kept[i] for i in prompts)], told)
        first = prompts[0] if prompts else len(self.kept)
        for start, end, message in self.kept[:first]:
            yield _copy(start, end, message)
        done = 0
        for n, (begin, place) in enumerate(zip(prompts, found, strict=True)):
            until = prompts[n + 1] if n + 1 < len(prompts) else len(self.kept)
            if place is not None:
                for start, end, message in self.kept[begin:until]:
                    yield _copy(start, end, message)
                continue
            following = next((later for later in found[n:] if later is not None), len(told))
            for record, _ in told[done:following]:
                yield record
            done = max(done, following)
            yield from self._lost(self.kept[begin:until], cwd)
        for record, _ in told[done:]:
            yield record

    def _prompts(self) -> list[int]:
        """Where a person's text stands among the kept messages."""
        places: list[int] = []
        for i, (_, _, message) in enumerate(self.kept):
            feedback = message.kind in ("task", "user_feedback", "user_feedback_diff")
            if message.text and (feedback or (message.kind == "text" and not places)):
                places.append(i)
        return places

    def _lost(self, messages: list[tuple[int, int, Message]], cwd: str) -> Iterator[Record]:
        for n, (start, end, message) in enumerate(messages):
            record = self.record(start, end, message)
            record.scattered = True
            if n == 0:
                record.uuid, record.cwd = f"shown-{message.ts if isinstance(message.ts, int) else start}", cwd
            yield record

    def _acts(self, message: Message) -> list[Act]:
        kind = message.kind
        text = message.text or ""
        self._n += 1
        if kind in _META:
            return [Skip("meta")]
        if kind in ("task", "user_feedback", "user_feedback_diff") or (kind == "text" and not self._prompted):
            self._prompted = True
            acts = user_acts(text)
            return [Prompt("", unanswered="empty")] if message.images and not text else acts
        if message.partial and kind not in ("text", "reasoning", "completion_result"):
            return [Skip("partial")]
        if kind in ("text", "completion_result"):
            return [AgentText(text)]
        if kind == "reasoning":
            return [Thinking(text)]
        if kind in ("followup", "plan_mode_respond"):
            value = _json(text)
            return [AgentText(str(value.get("question") or value.get("response") or text))]
        if kind in ("tool", "command", "use_mcp_server", "browser_action_launch"):
            value = _json(text)
            self._calls.append((str(self._n), kind))
            return [ToolUse(str(self._n), str(value.get("tool") or kind), value or {"command": text})]
        if kind in ("command_output", "mcp_server_response"):
            call = self._answered("command" if kind == "command_output" else "use_mcp_server")
            return [ToolResult(call, text)]
        return [Skip("meta")]

    def _answered(self, tool: str) -> str:
        """The id of the oldest open call of a tool."""
        for open_call in self._calls:
            if open_call[1] == tool:
                self._calls.remove(open_call)
                return open_call[0]
        return ""


def _copy(start: int, end: int, message: Message) -> Record:
    reason = _COPY if message.type in ("say", "ask") else "meta"
    return Record(start, end, [Skip(reason)], scattered=True)


def _found(prompts: list[str], told: list[tuple[Record, str]]) -> list[int | None]:
    """For each prompt the number of the API's message that has it, None where none has.

    Of equal prompts the last ones are found: what is condensed is the beginning.
    """
    texts = [(i, normal(text), _typed(record)) for i, (record, text) in enumerate(told) if text]
    places: list[int | None] = [None] * len(prompts)
    taken: set[tuple[int, str]] = set()
    for n in range(len(prompts) - 1, -1, -1):
        wanted = normal(prompts[n])
        for i, text, typed in reversed(texts):
            inside = len(wanted) >= _CONTAINED_MIN_CHARS and wanted in text
            if (i, wanted) not in taken and (inside or (typed and same_text(prompts[n], typed))):
                taken.add((i, wanted))
                places[n] = i
                break
    return places


def _typed(record: Record) -> str:
    return "\n\n".join(act.text for act in record.acts if isinstance(act, Prompt))


def _json(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    return value if isinstance(value, dict) else {}
