"""Kimi CLI: `sessions/<workspace>/<session>/agents/<agent>/wire.jsonl`, one `{type, ..., time}` per line.

A prompt comes as `turn.prompt` and again as `context.append_message`; the message is read, a prompt that never became
one counts as it is. No line names its session: it is the folder's, where the file lies in such a folder. Messages have
no ids: anchors are ordinals. Deliberately absent: requests to the model, which repeat tools and prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from backfill.records import (
    Act,
    AgentText,
    Compacted,
    Prompt,
    Record,
    Skip,
    Steered,
    Thinking,
    ToolResult,
    ToolUse,
)
from backfill.sources.base import Head, LineByLine, Unit, parse_arguments, parse_time
from backfill.sources.doubles import COPY, Doubles, Held
from backfill.sources.jsonl import Decoder, lines
from backfill.sources.loose import loosely, mapping, objects, readable, string, words
from backfill.sources.typed import queued_text, user_acts

_PREFIXES = ("context.", "turn.", "config.", "tools.", "llm.", "usage.", "permission.", "profile.", "plugin.",
             "runtime.", "token_counting.", "metadata", "goal.", "skill.", "subagent.", "task.")  # fmt: skip
_GIT_CONTEXT = re.compile(r"\A\s*<git-context>.*?</git-context>\s*", re.DOTALL)
_FOLDER = re.compile(r"(?:^|/)([^/]+)/agents/([^/]+)/wire\.jsonl$")


class _Line(msgspec.Struct, gc=False):
    """A record of the wire."""

    type: str | None = None
    time: Any = None
    message: Any = None
    event: Any = None
    input: Any = None
    origin: Any = None
    cwd: Any = None
    environmentDisclosure: Any = None  # noqa: N815
    modelAlias: Any = None  # noqa: N815


class KimiReader(LineByLine):
    """Reads the wire files of the Kimi CLI."""

    name = "kimi"
    version = 1

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Wire, Doubles, Held)

    def claims(self, head: Head) -> bool:
        """By the header with a protocol version, or by a record of the context."""
        first = head.objects[0] if head.objects else {}
        if first.get("type") == "metadata" and "protocol_version" in first:
            return True
        kind = string(first.get("type"))
        return "data" not in first and kind.startswith(("context.append_", "turn.prompt", "config.update"))

    def begin(self, unit: Unit) -> _Wire:
        """See `LineByLine`."""
        return _Wire(unit)

    def go_on(self, wire: _Wire, unit: Unit) -> Iterator[Record]:
        """One record per line, but for what waits for the next ones."""
        decoder = Decoder(_Line, loosely(_Line), _is_record, unit)
        for piece, line, acts in decoder.read(lines(unit)):
            if line is None:
                yield from wire.spoken()
                yield from wire.doubles.other(Record(piece.start, piece.end, acts))
            else:
                yield from wire.line(piece.start, piece.end, line)

    def end(self, wire: _Wire) -> Iterator[Record]:
        """What waited."""
        yield from wire.spoken()
        yield from wire.doubles.finish()


class _Wire:
    """What must be remembered from line to line."""

    def __init__(self, unit: Unit) -> None:
        self.doubles = Doubles()
        self._unit = unit
        self._n = 0
        self._pieces: list[Record] = []  # of one text, which comes in several parts of a step
        self._texts: list[str] = []
        found = _FOLDER.search(unit.source)
        self._session = found[1] if found else unit.source
        self._parent = ""
        if found and found[2] != "main":
            self._session, self._parent = f"{found[1]}/{found[2]}", found[1]

    def line(self, start: int, end: int, line: _Line) -> Iterator[Record]:
        """A line of the wire."""
        self._n += 1
        record = Record(start, end, [Skip("meta")], self._session, self._parent)
        if line.time is not None:
            record.at, record.tz_assumed = parse_time(line.time, self._unit.assume_tz)
        record.cwd = string(line.cwd) or string(mapping(line.environmentDisclosure).get("cwd"))
        record.model = string(line.modelAlias)
        kind = string(line.type)
        event = mapping(line.event)
        part = mapping(event.get("part"))
        if kind == "context.append_loop_event" and event.get("type") == "content.part" and part.get("type") == "text":
            return self._text(record, string(event.get("stepUuid")), string(part.get("text")))
        return chain(self.spoken(), self._other(record, kind, line))

    def spoken(self) -> list[Record]:
        """The parts of one text: the first brings it, the others belong to it."""
        pieces, texts = self._pieces, self._texts
        self._pieces, self._texts = [], []
        if pieces:
            self.doubles.turn("user")
            pieces[0].acts = [AgentText("".join(texts))]
        return [ready for record in pieces for ready in self.doubles.other(record)]

    def _text(self, record: Record, step: str, text: str) -> Iterator[Record]:
        ready = [] if self._pieces and self._pieces[0].turn == step else self.spoken()
        record.turn, record.acts = step, [AgentText("")]
        self._pieces.append(record)
        self._texts.append(text)
        return iter(ready)

    def _other(self, record: Record, kind: str, line: _Line) -> Iterator[Record]:
        if kind == "turn.prompt":
            text = words(line.input)
            record.acts = _prompt_acts(text, line.origin)
            if isinstance(record.acts[0], Prompt):
                return self.doubles.event(record, "user", text, self._n)
            record.acts = [Skip(COPY)]
        elif kind == "turn.steer":
            text = queued_text(words(line.input))
            record.acts = [Steered(text)] if text else [Skip("queue")]
        elif kind == "turn.cancel":
            record.acts = [Skip("interrupted")]
        elif kind == "context.append_message":
            return self._message(record, mapping(line.message))
        elif kind == "context.append_loop_event":
            return self._event(record, mapping(line.event))
        elif kind.startswith(("context.compact", "context.apply_compact", "full_compaction")):
            record.acts = [Compacted(), Skip("compact_summary")]
        elif not kind.startswith(_PREFIXES):
            record.acts = [Skip("unknown_type")]
        return self.doubles.other(record)

    def _message(self, record: Record, message: dict[str, Any]) -> Iterator[Record]:
        role, text = message.get("role"), words(message.get("content"))
        if role == "user":
            record.acts = _prompt_acts(text, message.get("origin"))
            if isinstance(record.acts[0], Prompt):
                return self.doubles.item(record, "user", text)
        elif role == "assistant":
            record.acts = [AgentText(text)]
            for call in objects(message.get("toolCalls")):
                called = mapping(call.get("function")) or call
                arguments = called.get("arguments", called.get("args"))
                record.acts.append(
                    ToolUse(string(call.get("id")), string(called.get("name")), parse_arguments(arguments))
                )
            self.doubles.turn("user")
        elif role == "tool":
            record.acts = [ToolResult(string(message.get("toolCallId")), text)]
        else:
            record.acts = [Skip("system")]
        return self.doubles.other(record)

    def _event(self, record: Record, event: dict[str, Any]) -> Iterator[Record]:
        kind = event.get("type")
        record.turn = string(event.get("stepUuid"))
        if kind == "content.part":
            part = mapping(event.get("part"))
            record.acts = [Thinking(string(part.get("think")) or string(part.get("text")))]
        elif kind == "tool.call":
            arguments = parse_arguments(event.get("args"))
            record.acts = [ToolUse(string(event.get("toolCallId")), string(event.get("name")), arguments)]
        elif kind == "tool.result":
            result = event.get("result")
            output = result.get("output", result) if isinstance(result, dict) else result
            record.acts = [ToolResult(string(event.get("toolCallId")), readable(output))]
        else:
            return self.doubles.other(record)
        self.doubles.turn("user")
        return self.doubles.other(record)


def _prompt_acts(text: str, origin: Any) -> list[Act]:
    """A prompt, unless its origin says that no person gave it; the prompt of a sub-agent opens its session."""
    kind, name = mapping(origin).get("kind"), mapping(origin).get("name")
    if kind in (None, "user") or (kind, name) == ("system_trigger", "subagent"):
        return user_acts(_GIT_CONTEXT.sub("", text))
    return [Skip("injected")]


def _is_record(line: _Line) -> bool:
    return isinstance(line.type, str) and line.type.startswith(_PREFIXES)
