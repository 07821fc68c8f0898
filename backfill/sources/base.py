"""What a reader is, what it may know of its unit, and small parsers that formats share.

A reader claims a unit by the content of its beginning and turns the unit's bytes into records. Deliberately absent:
segmentation; a reader says what happened in a record, never where an exchange begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

import msgspec

from backfill.ids import canonical_json
from backfill.reading import Readable as Readable
from backfill.records import Record

_SECONDS = {f":{n:02d}{mark}": n * 1_000_000 for n in range(60) for mark in ".,"}
_MILLIS = {f"{n:03d}": n * 1000 for n in range(1000)}
_MINUTES: dict[str, int] = {}
_MAX_MINUTES = 4096
_NUMERIC_MIN_S, _NUMERIC_MAX_S = 946_684_800, 4_102_444_800  # 2000 to 2100
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a unit that is spread over several, and its place [start, end) in the unit."""

    source: str
    start: int
    end: int


@dataclass(slots=True)
class Unit:
    """One source unit while it is read. `source` is its POSIX path below its source, `size_bytes` how far it is read.

    `file` is at the beginning, of which `head` is a copy; `hashed` takes every byte that was read. `decode_errors`
    counts lines with invalid UTF-8 or lone surrogates, which are read as U+FFFD. A unit of several files is the
    concatenation of its `members`; one of a single file has none.
    """

    file: Readable
    source: str
    size_bytes: int
    assume_tz: str
    hashed: Any
    head: bytes = b""
    bytes_read: int = 0
    decode_errors: int = 0
    members: tuple[Member, ...] = ()

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` more bytes of the unit."""
        data = self.file.read(size)
        self.hashed.update(data)
        self.bytes_read += len(data)
        return data


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a unit: its first values that parse, and the raw bytes for a first line that is not complete."""

    source: str
    raw: bytes
    objects: Sequence[dict[str, Any]] = field(default_factory=tuple)
    complete_lines: int = 0


class LineByLine:
    """A reading of lines whose state between two of them can be kept, so that a file that grew is read on (`grown`).

    A reader says what the state is (`begin`) and what it and more lines give (`go_on`), and names its own classes.
    """

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """What a state is made of, beside what the segmenter knows."""
        return ()

    def begin(self, unit: Unit) -> Any:
        """The state before the first line."""
        raise NotImplementedError

    def go_on(self, state: Any, unit: Unit) -> Iterator[Record]:
        """The records of the lines from where the unit has been read to; they change the state."""
        raise NotImplementedError

    def end(self, state: Any) -> Iterator[Record]:
        """The records that wait for a line which never came."""
        return iter(())

    def records(self, unit: Unit) -> Iterator[Record]:
        """The records of the whole unit."""
        state = self.begin(unit)
        yield from self.go_on(state, unit)
        yield from self.end(state)


@runtime_checkable
class Reader(Protocol):
    """One transcript format."""

    @property
    def name(self) -> str:
        """The agent that occurrences are filed under."""
        ...

    @property
    def version(self) -> int:
        """Raised when the reader understands more: its rows then replace those that it read before."""
        ...

    def claims(self, head: Head) -> bool:
        """Whether the unit is of this format, by its content."""
        ...

    def records(self, unit: Unit) -> Iterator[Record]:
        """The unit's records in file order; each ends where the next begins or before."""
        ...


@runtime_checkable
class FolderReader(Reader, Protocol):
    """A reader that also reads a session which is spread over several files (`unit.members`)."""

    @property
    def spans_files(self) -> bool:
        """Always true."""
        ...


def parse_time(value: Any, assume_tz: str) -> tuple[int | None, bool]:
    """(microseconds since 1970 UTC or None, whether the zone was assumed) of ISO 8601 text or an epoch number.

    Numbers are taken as seconds, milliseconds, microseconds or nanoseconds by their size (years 2000 to 2100). What
    lies outside the years 1 to 9999 in UTC, as a mark for "never" may by its zone, is no time.
    """
    if isinstance(value, str):
        if len(value) == 24 and value[23] == "Z":
            # "2026-03-01T10:00:00.000Z", the commonest form: the calendar is asked once a minute
            seconds, millis = _SECONDS.get(value[16:20]), _MILLIS.get(value[20:23])
            if seconds is not None and millis is not None:
                minute = _MINUTES.get(value[:16]) or _minute(value[:16])
                if minute is not None:
                    return minute + seconds + millis, False
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None, False
        assumed = moment.tzinfo is None
        if assumed:
            moment = moment.replace(tzinfo=_zone(assume_tz))
        # A double holds microseconds since 1970 exactly until the year 2255.
        at = round(moment.timestamp() * 1_000_000)
        return (at, assumed) if _FIRST_US <= at <= _LAST_US else (None, False)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _NUMERIC_MAX_S * 1e9:
        for scale in (1_000_000, 1_000, 1):
            if _NUMERIC_MIN_S <= value * scale / 1_000_000 <= _NUMERIC_MAX_S:
                return round(value * scale), False
        if _NUMERIC_MIN_S <= value / 1e9 <= _NUMERIC_MAX_S:
            return round(value / 1000), False
    return None, False


def _minute(text: str) -> int | None:
    """Microseconds since 1970 UTC of "2026-03-01T10:00", remembered; None for any other text."""
    try:
        moment = datetime.fromisoformat(f"{text}:00.000Z")
    except ValueError:
        return None
    if len(_MINUTES) >= _MAX_MINUTES:
        _MINUTES.clear()
    at = _MINUTES[text] = round(moment.timestamp()) * 1_000_000
    return at


@lru_cache(maxsize=8)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def parse_arguments(value: Any) -> Any:
    """Arguments of a tool call: JSON text is parsed, other text stays text."""
    if isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
        return parsed if isinstance(parsed, (dict, list)) else value
    return {} if value is None else value


def as_text(value: Any) -> str:
    """A value as text: text stays, nothing is empty, content gives its text, anything else its JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    text = text_of(value)
    if text:
        return text
    try:
        return canonical_json(value).decode()
    except RecursionError:
        return ""


def text_of(content: Any) -> str:
    """The text of message content: a string, or the text blocks of a list, joined by line breaks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (block if isinstance(block, str) else _block_text(block) for block in content)
        return "\n".join(text for text in texts if text)
    return ""


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    text = block.get("text")
    if isinstance(text, str):
        return text
    if isinstance(block.get("url"), str):  # a hit of a web search
        return f"{block.get('title') or ''} {block['url']}".strip()
    return ""
