"""Source units to rows: finds the reader of a unit by its content, reads it, segments it, accounts for every byte.

Reads one file alone and only its first `size_bytes` bytes, so that what a unit yields never depends on what else is
read. Deliberately absent: walking folders and writing tables (`scan`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from backfill.config import ScanConfig
from backfill.errors import ConfigError
from backfill.ids import ID_BYTES
from backfill.ledger import Fate, LedgerBuilder
from backfill.privacy import Redactor
from backfill.segment import SEGMENT_VERSION, Segmenter, SegmentSettings
from backfill.sources.base import Head, Reader, Unit
from backfill.sources.claude_code import ClaudeCodeReader
from backfill.sources.jsonl import loads
from backfill.sources.mini_swe_agent import MiniSweAgentReader
from backfill.sources.openai_messages import OpenAIMessagesReader
from backfill.sources.swe_agent import SweAgentReader
from backfill.types import Exchange, LedgerRow, Occurrence

SOURCES_VERSION = 1
HEAD_BYTES = 256 << 10
_MAX_HEAD_LINES, _MAX_HEAD_VALUES = 200, 20

# Specific formats first, the generic one last.
READERS: tuple[Reader, ...] = (
    ClaudeCodeReader(),
    MiniSweAgentReader(),
    SweAgentReader(),
    OpenAIMessagesReader(),
)


@dataclass(slots=True)
class UnitResult:
    """What one unit yields. `agent` is empty where no reader knows it; `secrets` counts replacements by type."""

    agent: str
    exchanges: list[Exchange]
    occurrences: list[Occurrence]
    ledger: list[LedgerRow]
    secrets: dict[str, int] = field(default_factory=dict)
    decode_errors: int = 0
    sessions: int = 0


def reader_named(name: str) -> Reader:
    """The reader of that name. Raises ConfigError naming the known ones."""
    for reader in READERS:
        if reader.name == name:
            return reader
    raise ConfigError(f"no reader is called {name!r}", hint=f"known: auto, {', '.join(r.name for r in READERS)}")


def detect(head: bytes, source: str) -> Reader | None:
    """The reader that claims a unit by the content of its beginning; None for a file that is no transcript."""
    seen = _look(head, source)
    if _is_index(seen):
        return None
    return next((reader for reader in READERS if reader.claims(seen)), None)


def read_unit(path: Path, source: str, size_bytes: int, config: ScanConfig, *, split_tokens: int = 1500) -> UnitResult:
    """Reads the first `size_bytes` bytes of one file.

    `source` is its POSIX path below its SOURCE. Raises OSError when the file cannot be read, ConfigError when
    `config.agent` names no reader. Bytes that the file no longer has are quarantined as `shrunk`.
    """
    forced = None if config.agent == "auto" else reader_named(config.agent)
    hashed = hashlib.blake2b(digest_size=ID_BYTES)
    redactor = Redactor(config.privacy)
    with path.open("rb", buffering=0) as file:
        head = file.read(min(HEAD_BYTES, size_bytes))
        reader = forced or detect(head, source)
        file.seek(0)
        unit = Unit(file, source, size_bytes, config.assume_tz, hashed, head)
        if reader is None:
            return UnitResult("", [], [], _unread(unit, head))
        settings = SegmentSettings(split_tokens, config.max_tool_bytes)
        version = reader.version * 1000 + SEGMENT_VERSION
        folder = PurePosixPath(source).parent.name
        segmenter = Segmenter(reader.name, source, version, settings, redactor, folder)
        for record in reader.records(unit):
            segmenter.feed(record)
    segmenter.finish()
    return UnitResult(
        reader.name,
        [row for rows in segmenter.exchanges.values() for row in rows],
        segmenter.occurrences,
        _rows(segmenter.ledger, unit),
        dict(redactor.counts),
        unit.decode_errors,
        segmenter.sessions(),
    )


def _rows(ledger: LedgerBuilder, unit: Unit) -> list[LedgerRow]:
    """The ledger's rows over all bytes that the unit was said to have."""
    digest = unit.hashed.digest()
    rows = ledger.rows(unit.bytes_read, digest)
    if unit.bytes_read < unit.size_bytes:
        shrunk = LedgerRow(unit.source, unit.bytes_read, unit.size_bytes, 0, "quarantined", "shrunk", None, digest)
        rows = [row for row in rows if row.byte_end] + [shrunk]
    return rows


def _unread(unit: Unit, head: bytes) -> list[LedgerRow]:
    """One row for a file that nobody reads."""
    while unit.bytes_read < unit.size_bytes and unit.read(1 << 20):
        pass
    ledger = LedgerBuilder(unit.source)
    if head.strip():
        reason = "index" if _is_index(_look(head, unit.source)) else "not_transcript"
        ledger.cover(unit.bytes_read, Fate("skipped", reason))
    return _rows(ledger, unit)


def _look(head: bytes, source: str) -> Head:
    """The first JSON values of a unit: of its lines, or of the document that it is."""
    body = head.removeprefix(b"\xef\xbb\xbf")
    lines = body.split(b"\n")
    objects = list(islice(_objects(lines[:_MAX_HEAD_LINES]), _MAX_HEAD_VALUES)) or list(_document(body))
    return Head(source, head, objects, len(lines) - 1)


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        body = line.strip(b" \t\r\n\0")
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                value = loads(body)[0]
            except (ValueError, RecursionError):
                continue
        yield from _dictionaries(value)


def _document(body: bytes) -> Iterator[dict[str, Any]]:
    """The first value of a document, or the first element of its array."""
    text = body.decode("utf-8", "replace").lstrip()
    for start in (text, text[1:].lstrip() if text[:1] == "[" else ""):
        if not start.startswith(("{", "[")):
            continue
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(start)
        except (ValueError, RecursionError):
            continue
        yield from _dictionaries(value)
        return


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for item in value[:3]:
            yield from _dictionaries(item) if isinstance(item, list) else [item] if isinstance(item, dict) else []


def _is_index(head: Head) -> bool:
    """Lists of prompts or sessions that agents keep beside the transcripts."""
    if not head.objects:
        return False
    keys = head.objects[0].keys()
    return {"display", "pastedContents"} <= keys or keys in ({"session_id", "ts", "text"}, {"entries", "version"})
