"""Mistral Vibe: one document per session (v1), or a folder with `meta.json` and `messages.jsonl` (v2).

Times without a zone, of the session alone. Deliberately absent: statistics and the agent's configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec

from backfill.records import Act, Record, Skip, Titled
from backfill.sources.base import Head, Unit, parse_time
from backfill.sources.chat import chat_acts
from backfill.sources.jsonl import Decoder, elements, lines
from backfill.sources.loose import loosely, mapping, string
from backfill.sources.nested import array_in, reading
from backfill.sources.units import document_of, files_of


class _Session(msgspec.Struct, gc=False):
    """A session of v1 without its messages."""

    metadata: Any = None


class _Message(msgspec.Struct, gc=False):
    """A message of either layout."""

    role: str | None = None
    content: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    message_id: str | None = None
    injected: bool | None = None


_message = reading(_Message)


class MistralVibeReader:
    """Reads both layouts."""

    name = "mistral_vibe"
    version = 1
    spans_files = True

    def claims(self, head: Head) -> bool:
        """By a session's metadata, alone or beside its messages."""
        if head.objects:
            first = head.objects[0]
            return _is_about(mapping(first.get("metadata"))) if "messages" in first else _is_about(first)
        begins = head.raw[:8192]
        return b'"metadata"' in begins and b'"start_time"' in begins and b'"environment"' in begins

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message."""
        about: dict[str, Any] = {}
        titled: list[Act] = []
        for member, inner in files_of(unit):
            name = PurePosixPath(member.source).name
            if unit.members and name == "messages.jsonl":
                decoder = Decoder(_Message, loosely(_Message), lambda message: message.role is not None, inner)
                for piece, message, acts in decoder.read(lines(inner)):
                    start, end = member.start + piece.start, member.start + piece.end
                    if message is None:
                        yield Record(start, end, acts)
                    else:
                        record = _placed(start, end, msgspec.structs.asdict(message), about, unit)
                        record.acts = titled + record.acts
                        titled = []
                        yield record
            elif unit.members:
                value, acts = document_of(inner)
                about = mapping(value)
                titled = _titled(about)
                yield Record(member.start, member.end, acts or [Skip("meta")])
            else:
                yield from _whole(inner)


def _whole(unit: Unit) -> Iterator[Record]:
    """The messages of a document of v1; metadata alone carries nothing."""
    decoder = Decoder(_Session, loosely(_Session), lambda session: session.metadata is not None, unit)
    for piece, session, acts in decoder.read(elements(unit)):
        places = [] if session is None else array_in(piece, "messages")
        if session is None or not places:
            yield Record(piece.start, piece.end, acts or [Skip("meta")])
            continue
        about = mapping(session.metadata)
        titled = _titled(about)
        for place in places:
            message = _message(place) or _Message()
            record = _placed(place.start, place.end, msgspec.structs.asdict(message), about, unit)
            record.acts = titled + record.acts
            titled = []
            yield record


def _is_about(value: dict[str, Any]) -> bool:
    return isinstance(value.get("session_id"), str) and {"start_time", "environment"} <= value.keys()


def _session(about: dict[str, Any], unit: Unit) -> str:
    return string(about.get("session_id")) or unit.source


def _titled(about: dict[str, Any]) -> list[Act]:
    title = string(about.get("title"))
    return [Titled(title)] if title else []


def _placed(start: int, end: int, message: dict[str, Any], about: dict[str, Any], unit: Unit) -> Record:
    """The record of a message in its session. Only the session's start is known: its first exchange begins there."""
    record = Record(start, end, _acts(message), _session(about, unit), string(about.get("parent_session_id")))
    record.at, record.tz_assumed = parse_time(about.get("start_time"), unit.assume_tz)
    record.cwd = string(mapping(about.get("environment")).get("working_directory"))
    record.branch = string(about.get("git_branch"))
    record.model = string(mapping(about.get("agent_config")).get("active_model"))
    record.uuid = string(message.get("message_id"))
    return record


def _acts(message: dict[str, Any]) -> list[Act]:
    return [Skip("injected")] if message.get("injected") is True else chat_acts(message)
