"""What readers hand to the segmenter: small records with their byte range, and what happened in each.

A reader turns the bytes of a file into a forward stream of `Record`s; every format speaks in the same acts. Built per
record, so they are msgspec structs without garbage collector tracking. Deliberately absent: any decision about what
opens an exchange; that is `segment`'s.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Prompt(msgspec.Struct, gc=False):
    """A person's prompt, wrappers stripped. With `unanswered` set it opens an exchange only if the agent answers it
    (a slash command, a prompt of images alone); else its record is skipped with that reason."""

    text: str
    unanswered: str = ""


class AgentText(msgspec.Struct, gc=False):
    """What the agent said; an empty text marks a record of the agent without visible text."""

    text: str


class Thinking(msgspec.Struct, gc=False):
    """What the agent thought."""

    text: str


class ToolUse(msgspec.Struct, gc=False):
    """A tool call. `arguments` is parsed JSON, or text where the tool takes free text."""

    call_id: str
    name: str
    arguments: Any


class ToolResult(msgspec.Struct, gc=False):
    """The whole result of a tool call, as text."""

    call_id: str
    text: str


class Queued(msgspec.Struct, gc=False):
    """Text typed while the agent works, put into the queue."""

    text: str


class Unqueued(msgspec.Struct, gc=False):
    """The oldest queued text left the queue, or with `everything` all of them; `sure` if it was the oldest without
    doubt (a dequeue names no text, a removal may mean another than the oldest)."""

    everything: bool = False
    sure: bool = True


class Steered(msgspec.Struct, gc=False):
    """Queued text that reached the agent: names the text that left the queue."""

    text: str


class Titled(msgspec.Struct, gc=False):
    """A title of the session; one that a person gave (`given`) is not replaced by a generated one."""

    text: str
    given: bool = False


class Compacted(msgspec.Struct, gc=False):
    """A compaction boundary or summary; `parent` is the record that it continues, where it says so."""

    parent: str | None = None


class Skip(msgspec.Struct, gc=False):
    """The record, or this piece of it, belongs to no exchange."""

    reason: str


class Quarantine(msgspec.Struct, gc=False):
    """The bytes cannot be parsed."""

    reason: str


class Pending(msgspec.Struct, gc=False):
    """The bytes are a record that is still being written."""


Act: TypeAlias = (
    Prompt
    | AgentText
    | Thinking
    | ToolUse
    | ToolResult
    | Queued
    | Unqueued
    | Steered
    | Titled
    | Compacted
    | Skip
    | Quarantine
    | Pending
)


class Record(msgspec.Struct, gc=False):
    """One record of a transcript.

    `start` and `end` are byte offsets in the file. `session` is empty where the record belongs to no session. `linked`
    says that the format has parent links: then `parent` is None at a root. `turn` names the agent's message that the
    record is a part of; without it each record of the agent is a turn of its own. `at` is in microseconds since 1970,
    `block` identifies the block of a message, to recognise one that was written twice.

    `weight` is what the record adds to the session's `n_records`: text formats count bytes, so that a text which is
    still being written counts more with every reading. `forks` begins another branch of a tree: its prompt never joins
    one that waits for an answer. `scattered` records come in the order of their tree, not of their bytes.
    """

    start: int
    end: int
    acts: list[Act]
    session: str = ""
    parent_session: str = ""
    uuid: str = ""
    linked: bool = False
    parent: str | None = None
    turn: str = ""
    block: int = 0
    at: int | None = None
    tz_assumed: bool = False
    cwd: str = ""
    branch: str = ""
    model: str = ""
    weight: int = 1
    forks: bool = False
    scattered: bool = False
