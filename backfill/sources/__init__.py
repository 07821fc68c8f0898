"""Source units to rows: finds the reader of a unit by its content, reads it, segments it, accounts for every byte.

Reads one file alone and only its first `size_bytes` bytes, so that what a unit yields never depends on what else is
read. Deliberately absent: walking folders and writing tables (`scan`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from backfill.config import ScanConfig
from backfill.ids import ID_BYTES
from backfill.ledger import Fate, LedgerBuilder
from backfill.privacy import Redactor
from backfill.reading import MeteredFile
from backfill.segment import SEGMENT_VERSION, Segmenter, SegmentSettings
from backfill.sources.archives import folder_of, read_archive
from backfill.sources.base import FolderReader, LineByLine, Reader, Unit
from backfill.sources.checkpoint import Checkpoint
from backfill.sources.databases import MAGIC, DatabaseReader, read_database
from backfill.sources.grown import Feed
from backfill.sources.look import HEAD_BYTES, is_index, is_too_deep, look
from backfill.sources.registry import DATABASE_READERS, detect, reader_named
from backfill.sources.registry import READERS as READERS
from backfill.sources.result import UnitResult as UnitResult
from backfill.sources.result import join
from backfill.sources.units import Concatenation, FolderLedger, UnitFile, located
from backfill.sources.unpacking import is_archive
from backfill.types import LedgerRow

SOURCES_VERSION = 3


def read_unit(
    path: Path,
    source: str,
    size_bytes: int,
    config: ScanConfig,
    *,
    split_tokens: int = 1500,
    members: Sequence[UnitFile] = (),
    checkpoint: Checkpoint | None = None,
    keep: bool = False,
) -> UnitResult:
    """Reads the first `size_bytes` bytes of one file, with the `members` over which its session is spread.

    `source` is its POSIX path below its SOURCE. Raises OSError when the file cannot be read, ConfigError when
    `config.agent` names no reader. Bytes that the file no longer has are quarantined as `shrunk`. With `keep` the
    result of a file of lines has what a later reading needs to go on; such a `checkpoint` is used where it fits.
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
        unit = Unit(MeteredFile(file) if keep else file, source, size_bytes, config.assume_tz, hashed, head)
        if reader is None:
            return UnitResult("", [], [], _unread(unit, head))
        settings = SegmentSettings(split_tokens, config.max_tool_bytes)
        version = reader.version * 1000 + SEGMENT_VERSION
        folder = _project(source)
        segmenter = Segmenter(reader.name, source, version, settings, redactor, folder)
        kept, earlier = None, frozenset[bytes]()
        if keep and isinstance(reader, LineByLine):
            feed = Feed(reader, segmenter, unit, Redactor(config.privacy))
            feed.read(checkpoint, file)
            kept, earlier = feed.kept, feed.earlier
        else:
            for record in reader.records(unit):
                segmenter.feed(record)
    segmenter.finish()
    return UnitResult(
        reader.name,
        segmenter.exchanges.settled(),
        segmenter.occurrences.settled(),
        _rows(segmenter.ledger, unit),
        dict(redactor.counts),
        unit.decode_errors,
        segmenter.sessions(),
        [(reader.name, session) for session in segmenter.silent()],
        kept=kept,
        earlier=earlier,
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
        [(reader.name, session) for session in segmenter.silent()],
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
        join(whole, one, {file.source: file.size_bytes})
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
    if is_too_deep(head):
        ledger.cover(unit.bytes_read, Fate("quarantined", "too_deep"))
    elif head.strip():
        reason = "index" if is_index(look(head, unit.source)) else "not_transcript"
        ledger.cover(unit.bytes_read, Fate("skipped", reason))
    return _rows(ledger, unit)
