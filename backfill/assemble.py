"""Exchanges under construction: texts, tool calls and parts, and the rows they become.

An `OpenExchange` collects acts for its running `OpenPart`; a part becomes an `Exchange` row and an `Occurrence` row
once nothing can change it. Deliberately absent: the rules of what opens an exchange (`segment`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backfill.ids import args_digest, canonical_json, content_id, exchange_id, text_digest
from backfill.ledger import Fate
from backfill.nesting import WALKED_DEPTH, too_deep
from backfill.privacy import Redactor
from backfill.records import Record
from backfill.toolpaths import text_paths, tool_paths
from backfill.types import Exchange, FileAction, ToolCall

JOIN = "\n\n"
NOTHING: list[Any] = []  # what complete parts and exchanges hold, one for all: there may be a million
LATER_PART_PROMPT_CHARS = 400
_RESULT_BEGINNING_CHARS = 4096
_SEARCHED_WHOLE = 3  # a result of so many budgets is searched whole: two ends with their slack would cost as much
_NO_ARGUMENTS = args_digest("")
_TOO_DEEP = "[arguments nested too deep]"
_READABLE_KEYS = ("command", "cmd", "query", "pattern", "url", "prompt", "description", "script", "code", "input")


@dataclass(frozen=True, slots=True)
class Caps:
    """Sizes in UTF-8 bytes of what is stored of a tool call: result (head and tail together), arguments."""

    result_bytes: int
    input_bytes: int


class Link:
    """What others need of an exchange: its stream, and the content of its last part that is complete.

    It outlives the exchange: records that come later may lead here until the unit ends.
    """

    __slots__ = ("content", "stream")

    def __init__(self, stream: object) -> None:
        self.stream = stream
        self.content: bytes | None = None


class Joined:
    """What is left of a part once it is complete: of a million records each needs the id of its exchange alone."""

    __slots__ = ("exchange_id", "link")

    def __init__(self, exchange_id: bytes, link: Link) -> None:
        self.exchange_id = exchange_id
        self.link = link


class OpenTool:
    """A tool call whose result may still come, or a result without its call (`called` is False)."""

    __slots__ = (
        "answered", "arguments", "call_id", "called", "cut_bytes", "cwd", "digest", "head", "input", "name", "paths",
        "tail",
    )  # fmt: skip

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: Any = ""
        self.digest = _NO_ARGUMENTS
        self.input = ""
        self.head = ""
        self.tail = ""
        self.cut_bytes = 0
        self.cwd = ""
        self.called = False
        self.answered = False
        self.paths: list[tuple[str, FileAction]] | None = None

    def call(self, name: str, arguments: Any, cwd: str, caps: Caps, redactor: Redactor) -> None:
        """Takes the call. Secrets are replaced before the arguments are digested."""
        self.called = True
        self.name = redactor.short(name)
        self.cwd = cwd
        self.arguments, canonical = _clean_arguments(arguments, redactor)
        self.digest = text_digest(canonical)
        self.input = cut_text(_readable(self.arguments, canonical), caps.input_bytes)[0]

    def result(self, text: str, caps: Caps, redactor: Redactor) -> None:
        """Takes the result's text: both ends are kept, and the paths it speaks of."""
        self.answered = True
        self.head, self.tail, self.cut_bytes = ends_of(text, caps.result_bytes, redactor)
        if self.called:
            self.paths = tool_paths(self.name, self.arguments, self.head[:_RESULT_BEGINNING_CHARS], self.cwd)

    def row(self) -> ToolCall:
        """The row of the call as it stands."""
        if self.paths is None or not self.answered:
            result = self.head[:_RESULT_BEGINNING_CHARS] if self.answered else None
            self.paths = tool_paths(self.name, self.arguments, result, self.cwd) if self.called else []
        return ToolCall(
            self.name,
            self.digest,
            tuple(path for path, _ in self.paths),
            tuple(action for _, action in self.paths),
            self.input,
            self.head,
            self.tail,
            self.cut_bytes,
        )


class OpenPart:
    """One part of an exchange. Its `fate` is shared by all records that joined it."""

    __slots__ = (
        "added", "agent_bytes", "agent_texts", "branch", "byte_end", "byte_start", "closed_n", "cwd", "ended_at",
        "exchange", "exchange_id", "fate", "link", "model", "n_records", "n_turns", "number", "project", "started_at",
        "thinking", "title", "tools", "tz_assumed", "user_bytes",
    )  # fmt: skip

    def __init__(self, exchange: OpenExchange, number: int, record: Record) -> None:
        self.exchange = exchange
        self.link = exchange.link
        self.number = number
        self.fate = Fate("part_of", owner=self)
        self.exchange_id = b""
        self.agent_texts: list[str] = []
        self.thinking: list[str] = []
        self.tools: list[OpenTool] = []
        self.added: list[str] = []  # texts from the queue
        self.n_turns = 0
        self.user_bytes = utf8_bytes(exchange.prompt_text(number))
        self.agent_bytes = 0
        self.byte_start = record.start
        self.byte_end = record.end
        self.n_records = 0
        self.closed_n: int | None = None
        self.started_at: int | None = None
        self.ended_at: int | None = None
        self.tz_assumed = False
        self.cwd = self.project = self.branch = self.title = self.model = ""

    @property
    def visible_bytes(self) -> int:
        """UTF-8 bytes of user_text and agent_text, without what the queue added."""
        return self.user_bytes + self.agent_bytes

    def say(self, text: str) -> None:
        """Adds a text of the agent."""
        self.agent_bytes += utf8_bytes(text) + (len(JOIN) if self.agent_texts else 0)
        self.agent_texts.append(text)

    def release(self) -> None:
        """Lets the ledger go on with what it needs, and lets go of the texts after the row was made."""
        self.fate.settle("part_of", Joined(self.exchange_id, self.link))
        for tool in self.tools:
            tool.arguments = tool.head = tool.tail = ""
        self.agent_texts = self.thinking = self.added = NOTHING
        self.tools = NOTHING

    def row(self, previous: bytes | None) -> Exchange:
        """The exchange row after an exchange of content `previous`; fixes `exchange_id`."""
        user_text = JOIN.join([t for t in (self.exchange.prompt_text(self.number), *self.added) if t])
        agent_text = JOIN.join(self.agent_texts)
        tools = tuple(tool.row() for tool in self.tools)
        content = content_id(user_text, agent_text, self.number, tools)
        self.exchange_id = exchange_id(content, previous)
        added_bytes = sum(len(t.encode()) + len(JOIN) for t in self.added)
        if self.added and not self.user_bytes:
            added_bytes -= len(JOIN)
        return Exchange(
            self.exchange_id,
            content,
            previous,
            user_text,
            agent_text,
            self.number,
            self.n_turns,
            (self.visible_bytes + added_bytes + 3) // 4,
            JOIN.join(self.thinking),
            tools,
            tuple(text_paths(user_text + "\n" + agent_text, self.cwd)),
        )


class OpenExchange:
    """An exchange that may still grow, in its last part."""

    __slots__ = ("anchor", "has_agent", "link", "part", "previous", "prompts", "turns")

    def __init__(self, stream: object, anchor: str, prompt: str, previous: Link | None, record: Record) -> None:
        self.link = Link(stream)
        self.anchor = anchor
        self.prompts = [prompt]
        self.previous = previous
        self.has_agent = False
        self.turns: set[str] = set()
        self.part = OpenPart(self, 0, record)

    def prompt_text(self, part: int) -> str:
        """The prompt as part `part` carries it."""
        text = JOIN.join([p for p in self.prompts if p])
        return text if part == 0 else text[:LATER_PART_PROMPT_CHARS]

    def add_prompt(self, text: str) -> None:
        """A further prompt before the agent has done anything."""
        self.prompts.append(text)
        self.part.user_bytes = utf8_bytes(self.prompt_text(0))


def utf8_bytes(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def cut_text(text: str, budget_bytes: int) -> tuple[str, int]:
    """The beginning of a text within a budget, cut at a line end where one is near, and the bytes left out."""
    if len(text) <= budget_bytes and text.isascii():
        return text, 0
    raw = text.encode()
    if len(raw) <= budget_bytes:
        return text, 0
    head = _head(raw, budget_bytes)
    return head.decode(), len(raw) - len(head)


def ends_of(text: str, budget_bytes: int, redactor: Redactor) -> tuple[str, str, int]:
    """Head (two thirds of the budget), tail (one third) and the UTF-8 bytes left out, secrets replaced.

    Of a long text only the ends are searched for secrets, as far as one may reach into what is stored.
    """
    n_head, n_tail = budget_bytes * 2 // 3, budget_bytes // 3
    middle_bytes = 0
    if len(text) > _SEARCHED_WHOLE * budget_bytes:
        beginning, end = redactor.beginning(text, n_head + 1)  # one more, so that the cut finds its line end
        ending, start = redactor.ending(text, n_tail + 1)
        middle_bytes = utf8_bytes(text[end:start])
        first, last = beginning.encode(), ending.encode()
    else:
        text = redactor.text(text)
        if len(text) <= budget_bytes and text.isascii():
            return text, "", 0
        first = last = text.encode()
        if len(first) <= budget_bytes:
            return text, "", 0
    head, tail = _head(first, n_head), _tail(last, n_tail)
    total = len(first) + middle_bytes + (len(last) if middle_bytes else 0)
    return head.decode(), tail.decode(), total - len(head) - len(tail)


def _head(raw: bytes, budget: int) -> bytes:
    """The first bytes, never ending inside a code point, ending at a line end where one lies in the last quarter."""
    if len(raw) <= budget:
        return raw
    end = budget
    while end > 0 and raw[end] & 0xC0 == 0x80:
        end -= 1
    line_end = raw.rfind(b"\n", end - budget // 4, end)
    return raw[: line_end + 1] if line_end > 0 else raw[:end]


def _tail(raw: bytes, budget: int) -> bytes:
    """The last bytes, beginning at a line where one begins in their first quarter."""
    if not budget:
        return b""
    start = max(0, len(raw) - budget)
    if start == 0:
        return raw
    while start < len(raw) and raw[start] & 0xC0 == 0x80:
        start += 1
    line_end = raw.find(b"\n", start, start + budget // 4)
    return raw[line_end + 1 :] if line_end >= 0 else raw[start:]


def _clean_arguments(arguments: Any, redactor: Redactor) -> tuple[Any, bytes]:
    """The arguments without secrets, and the UTF-8 of their canonical JSON (of text: the text)."""
    if isinstance(arguments, str):
        text = redactor.text(arguments)
        return text, text.encode()
    try:
        data = canonical_json(arguments)
        if too_deep(data, WALKED_DEPTH):
            return _TOO_DEEP, _TOO_DEEP.encode()
        if redactor.suspects(data):
            arguments = redactor.tree(arguments)
            data = canonical_json(arguments)
    except RecursionError:
        return _TOO_DEEP, _TOO_DEEP.encode()
    return arguments, data


def _readable(arguments: Any, canonical: bytes) -> str:
    if isinstance(arguments, dict):
        for key in _READABLE_KEYS:
            value = arguments.get(key)
            if not value:
                continue
            if isinstance(value, str):
                return value
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                return " ".join(value)
    return canonical.decode()
