"""Source units to rows: finds the reader of a unit by its content, reads it, segments it, accounts for every byte.

Reads one file alone and only its first `size_bytes` bytes, so that what a unit yields never depends on what else is
read. Deliberately absent: walking folders and writing tables (`scan`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
from backfill.sources.aider import AiderReader
from backfill.sources.antigravity import AntigravityReader
from backfill.sources.archives import folder_of, is_archive, read_archive
from backfill.sources.base import FolderReader, Head, Reader, Unit
from backfill.sources.buddies import CodeBuddyReader, WorkBuddyReader
from backfill.sources.chatgpt import ChatGPTReader
from backfill.sources.claude_ai import ClaudeAIReader
from backfill.sources.claude_code import ClaudeCodeReader
from backfill.sources.claude_console import ClaudeConsoleReader
from backfill.sources.cline import ClineReader
from backfill.sources.codex import CodexReader
from backfill.sources.continue_dev import ContinueReader
from backfill.sources.copilot_chat import CopilotChatReader
from backfill.sources.copilot_cli import CopilotCliReader
from backfill.sources.cursor import CursorDatabaseReader, CursorReader, CursorStoreReader
from backfill.sources.databases import MAGIC, DatabaseReader, read_database
from backfill.sources.deepseek import DeepSeekReader
from backfill.sources.documents import DocumentReader, is_named
from backfill.sources.droid import DroidReader
from backfill.sources.fx import FxReader
from backfill.sources.gemini_cli import GeminiCliReader
from backfill.sources.goose import GooseDatabaseReader, GooseReader
from backfill.sources.grok import GrokReader
from backfill.sources.hermes import HermesDatabaseReader, HermesReader
from backfill.sources.jsonl import loads
from backfill.sources.kimi import KimiReader
from backfill.sources.mini_swe_agent import MiniSweAgentReader
from backfill.sources.mistral_vibe import MistralVibeReader
from backfill.sources.musecode import MusecodeReader
from backfill.sources.openai_messages import OpenAIMessagesReader
from backfill.sources.opencode import OpenCodeDatabaseReader, OpenCodeReader
from backfill.sources.opencode_transcripts import OpenCodeTranscriptsReader
from backfill.sources.openhands import OpenHandsReader
from backfill.sources.pi import PiReader
from backfill.sources.qwen_code import QwenCodeReader
from backfill.sources.result import UnitResult as UnitResult
from backfill.sources.sharegpt import ShareGPTReader
from backfill.sources.specstory import SpecStoryReader
from backfill.sources.swe_agent import SweAgentReader
from backfill.sources.units import Concatenation, FolderLedger, UnitFile, located
from backfill.sources.zed import ZedReader
from backfill.types import LedgerRow

SOURCES_VERSION = 2
HEAD_BYTES = 256 << 10
_MAX_HEAD_LINES, _MAX_HEAD_VALUES = 200, 20

# Specific formats first, the generic one last.
READERS: tuple[Reader, ...] = (
    ClaudeConsoleReader(),
    SpecStoryReader(),
    AiderReader(),
    ClaudeCodeReader(),
    MiniSweAgentReader(),
    OpenHandsReader(),
    FxReader(),
    CodeBuddyReader(),
    WorkBuddyReader(),
    SweAgentReader(),
    CodexReader(),
    ClineReader(),
    CursorReader(),
    GooseReader(),
    ContinueReader(),
    MistralVibeReader(),
    HermesReader(),
    OpenCodeReader(),
    OpenCodeTranscriptsReader(),
    GeminiCliReader(),
    QwenCodeReader(),
    CopilotCliReader(),
    KimiReader(),
    ChatGPTReader(),
    ClaudeAIReader(),
    PiReader(),
    DroidReader(),
    GrokReader(),
    DeepSeekReader(),
    AntigravityReader(),
    MusecodeReader(),
    ShareGPTReader(),
    CopilotChatReader(),
    OpenAIMessagesReader(),
)

# Reads what `scan.documents` names; these formats are texts too, and go before it.
DOCUMENTS = DocumentReader()
_TEXT_FORMATS = ("specstory", "aider", "claude_console")

DATABASE_READERS: tuple[DatabaseReader, ...] = (
    OpenCodeDatabaseReader(),
    CursorDatabaseReader(),
    CursorStoreReader(),
    ZedReader(),
    GooseDatabaseReader(),
    HermesDatabaseReader(),
)


def reader_named(name: str) -> Reader | DatabaseReader:
    """The reader of that name. Raises ConfigError naming the known ones."""
    known: dict[str, Reader | DatabaseReader] = {r.name: r for r in DATABASE_READERS}
    known |= {r.name: r for r in (*READERS, DOCUMENTS)}
    if name not in known:
        raise ConfigError(f"no reader is called {name!r}", hint=f"known: auto, {', '.join(sorted(known))}")
    return known[name]


def detect(head: bytes, source: str, documents: Sequence[str] = ()) -> Reader | None:
    """The reader that claims a unit by the content of its beginning; None for a file that is no transcript.

    A file that `documents` names is one unless it is a transcript: lines of JSON in a text make none.
    """
    seen = _look(head, source)
    if documents and is_named(source, documents) and DOCUMENTS.claims(seen):
        json_file = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
        readers = [r for r in READERS if (json_file and not _is_index(seen)) or r.name in _TEXT_FORMATS]
        return next((reader for reader in readers if reader.claims(seen)), DOCUMENTS)
    if _is_index(seen):
        return None
    return next((reader for reader in READERS if reader.claims(seen)), None)


def read_unit(
    path: Path,
    source: str,
    size_bytes: int,
    config: ScanConfig,
    *,
    split_tokens: int = 1500,
    members: Sequence[UnitFile] = (),
) -> UnitResult:
    """Reads the first `size_bytes` bytes of one file, with the `members` over which its session is spread.

    `source` is its POSIX path below its SOURCE. Raises OSError when the file cannot be read, ConfigError when
    `config.agent` names no reader. Bytes that the file no longer has are quarantined as `shrunk`.
    """
    forced = None if config.agent == "auto" else reader_named(config.agent)
    first = UnitFile(path, source, size_bytes)
    hashed = hashlib.blake2b(digest_size=ID_BYTES)
    redactor = Redactor(config.privacy)
    with path.open("rb", buffering=0) as file:
        head = file.read(min(HEAD_BYTES, size_bytes))
        if head.startswith(MAGIC):
            return read_database([first, *members], DATABASE_READERS, config, split_tokens)
        if members:
            return _read_folder([first, *members], config, split_tokens)
        if is_archive(head):

            def read_member(file: UnitFile, others: Sequence[UnitFile]) -> UnitResult:
                return read_unit(
                    file.path, file.source, file.size_bytes, config, split_tokens=split_tokens, members=others
                )

            return read_archive(path, source, size_bytes, read_member)
        reader = detect(head, source, config.documents) if forced is None else forced
        if not isinstance(reader, Reader):
            reader = None
        file.seek(0)
        unit = Unit(file, source, size_bytes, config.assume_tz, hashed, head)
        if reader is None:
            return UnitResult("", [], [], _unread(unit, head))
        settings = SegmentSettings(split_tokens, config.max_tool_bytes)
        version = reader.version * 1000 + SEGMENT_VERSION
        folder = _project(source)
        segmenter = Segmenter(reader.name, source, version, settings, redactor, folder)
        for record in reader.records(unit):
            segmenter.feed(record)
    segmenter.finish()
    return UnitResult(
        reader.name,
        segmenter.exchanges.settled(),
        segmenter.occurrences,
        _rows(segmenter.ledger, unit),
        dict(redactor.counts),
        unit.decode_errors,
        segmenter.sessions(),
    )


def _read_folder(files: Sequence[UnitFile], config: ScanConfig, split_tokens: int) -> UnitResult:
    """Reads the files of one session as one unit; file by file where no folder reader knows any of them."""
    reader = next((r for file in files if isinstance(r := _reader_of(file, config), FolderReader)), None)
    if reader is None:
        return _read_apart(files, config, split_tokens)
    redactor = Redactor(config.privacy)
    stream = Concatenation(files)
    end = stream.members[-1].end
    hashed = hashlib.blake2b(digest_size=ID_BYTES)
    unit = Unit(stream, files[0].source, end, config.assume_tz, hashed, members=stream.members)
    settings = SegmentSettings(split_tokens, config.max_tool_bytes)
    version = reader.version * 1000 + SEGMENT_VERSION
    folder = _project(files[0].source)
    segmenter = Segmenter(reader.name, files[0].source, version, settings, redactor, folder)
    ledger = segmenter.ledger = FolderLedger(stream.members)
    for record in reader.records(unit):
        segmenter.feed(record)
    stream.close()
    segmenter.finish()
    return UnitResult(
        reader.name,
        segmenter.exchanges.settled(),
        located(segmenter.occurrences, stream.members),
        ledger.all_rows(stream),
        dict(redactor.counts),
        unit.decode_errors,
        segmenter.sessions(),
    )


def _reader_of(file: UnitFile, config: ScanConfig) -> Reader | DatabaseReader | None:
    if config.agent != "auto":
        return reader_named(config.agent)
    try:
        with file.path.open("rb") as opened:
            return detect(opened.read(min(HEAD_BYTES, file.size_bytes)), file.source, config.documents)
    except OSError:
        return None  # the ledger says so when the file is read


def _read_apart(files: Sequence[UnitFile], config: ScanConfig, split_tokens: int) -> UnitResult:
    """The files each as a unit of its own, in one result."""
    whole = UnitResult("", [], [], [])
    for file in files:
        try:
            one = read_unit(file.path, file.source, file.size_bytes, config, split_tokens=split_tokens)
        except OSError as error:
            reason = "vanished" if isinstance(error, FileNotFoundError) else "unreadable"
            row = LedgerRow(file.source, 0, file.size_bytes, 0, "quarantined", reason, None, bytes(ID_BYTES))
            one = UnitResult("", [], [], [row])
        whole.agent = whole.agent or one.agent
        whole.exchanges.extend(one.exchanges)
        whole.occurrences += one.occurrences
        whole.ledger += one.ledger
        whole.secrets = dict(Counter(whole.secrets) + Counter(one.secrets))
        whole.decode_errors += one.decode_errors
        whole.sessions += one.sessions
    return whole


def _project(source: str) -> str:
    """The folder that a unit lies in, or that its agent's own folder lies in."""
    for own in (".specstory/", "agent-transcripts/"):
        above, found, _ = source.partition(own)
        if found and above:
            return PurePosixPath(above).name
    return folder_of(source)


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
    # An array over several lines begins with its first element, not with the first one that fills a line.
    objects = list(_document(body)) if body.lstrip()[:1] == b"[" else []
    objects = objects or list(islice(_objects(lines[:_MAX_HEAD_LINES]), _MAX_HEAD_VALUES)) or list(_document(body))
    return Head(source, head, objects, len(lines) - 1)


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        body = line.strip(b" \t\r\n\0")
        if not body.startswith((b"{", b"[")):
            continue  # prose, or a value that carries nothing
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
    for index in ({"display", "pastedContents"}, {"id", "ts", "task", "totalCost"}, {"sessionId", "dateCreated"}):
        if index <= keys and "history" not in keys:
            return True
    return keys in ({"session_id", "ts", "text"}, {"entries", "version"})
