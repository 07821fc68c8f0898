"""SQLite databases in which agents keep sessions: copied, opened read-only, read session by session.

The copy takes the bytes that were planned, with the write-ahead log beside the file if there is one; nothing is ever
written to the original. The bytes get one `container` row; each session is a member `FILE!NAME` whose ledger counts
rows of the database, and `FILE!rest` counts the rows that belong to no session. Deliberately absent: what the rows
mean (`DatabaseReader`s).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from backfill.config import ScanConfig
from backfill.ids import ID_BYTES
from backfill.privacy import Redactor
from backfill.records import Record
from backfill.segment import SEGMENT_VERSION, Segmenter, SegmentSettings
from backfill.sources.jsonl import loads
from backfill.sources.result import UnitResult
from backfill.sources.units import UnitFile
from backfill.spill import exchange_rows, occurrence_rows
from backfill.types import LedgerRow

MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_REST = "rest"
# sqlite3 decodes its own messages strictly, and they may quote a damaged name.
_BROKEN = (sqlite3.Error, UnicodeDecodeError)


class Database:
    """An opened copy. `tables` are its ordinary tables with their columns; virtual tables and views are not touched."""

    def __init__(self, connection: sqlite3.Connection, assume_tz: str) -> None:
        self._connection = connection
        self.assume_tz = assume_tz
        self.beside_rows = 0  # records that are not rows of their own, counted by the reader
        names = [str(row[0]) for row in self.rows("SELECT name FROM sqlite_master WHERE type='table' AND rootpage>0")]
        self.tables: dict[str, frozenset[str]] = {
            name: frozenset(str(row[0]) for row in self.rows("SELECT name FROM pragma_table_info(?)", name))
            for name in names
        }

    def rows(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one in memory at a time. Raises sqlite3.Error where the file is damaged."""
        return self._connection.execute(sql, values)

    def count(self) -> int:
        """Rows of all ordinary tables together."""
        total = 0
        for name in self.tables:
            quoted = name.replace('"', '""')
            total += next(self.rows(f'SELECT count(*) FROM "{quoted}"'))[0]  # noqa: S608  # names cannot be bound
        return total


class DatabaseReader(Protocol):
    """One format of sessions in a database."""

    @property
    def name(self) -> str:
        """The agent that occurrences are filed under."""
        ...

    @property
    def version(self) -> int:
        """Raised when the reader understands more."""
        ...

    def claims(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Whether a database with these tables and columns is of this format."""
        ...

    def members(self, database: Database) -> Iterator[tuple[str, Iterator[Record]]]:
        """The sessions by name, each with a record per row: `start` and `end` are row numbers from 0."""
        ...


def capped(column: str) -> str:
    """SQL for a column's value, or NULL where it is too long to be read."""
    return f"CASE WHEN length({column}) <= {MAX_VALUE_BYTES} THEN {column} END"


def json_of(value: Any) -> Any:
    """The JSON value of a text or blob; None where there is none."""
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes):
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return loads(data)[0]
        except (ValueError, RecursionError):
            return None


def read_database(
    files: Sequence[UnitFile], readers: Sequence[DatabaseReader], config: ScanConfig, split_tokens: int
) -> UnitResult:
    """Reads a database file, the first of `files`, with its log. Raises OSError when a file cannot be read."""
    with tempfile.TemporaryDirectory(prefix="backfill-") as folder:
        copy = Path(folder) / "copy.db"
        ledger: list[LedgerRow] = []
        for file in files:
            suffix = file.source.removeprefix(files[0].source)
            ledger += _copied(file, None if suffix == "-shm" else copy.with_name(copy.name + suffix))
        digest = ledger[0].file_digest
        mode = "mode=ro" if copy.with_name(copy.name + "-wal").exists() else "mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(f"file:{quote(str(copy))}?{mode}", uri=True)) as connection:
                return _read(connection, files[0].source, digest, ledger, readers, config, split_tokens)
        except _BROKEN:
            return UnitResult("", [], [], _instead(ledger, files[0].source, "quarantined", "damaged"))


def _copied(file: UnitFile, copy: Path | None) -> list[LedgerRow]:
    """Copies what was planned of a file; its ledger rows."""
    hashed = hashlib.blake2b(digest_size=ID_BYTES)
    done = 0
    with file.path.open("rb") as source, (copy or Path(os.devnull)).open("wb") as target:
        while done < file.size_bytes and (block := source.read(min(_BLOCK_BYTES, file.size_bytes - done))):
            hashed.update(block)
            target.write(block)
            done += len(block)
    rows = [LedgerRow(file.source, 0, done, 0, "container", "", None, hashed.digest())]
    if done < file.size_bytes:
        rows.append(LedgerRow(file.source, done, file.size_bytes, 0, "quarantined", "shrunk", None, hashed.digest()))
    return rows


def _read(
    connection: sqlite3.Connection,
    source: str,
    digest: bytes,
    ledger: list[LedgerRow],
    readers: Sequence[DatabaseReader],
    config: ScanConfig,
    split_tokens: int,
) -> UnitResult:
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
        connection.execute(f"PRAGMA {pragma}")
    database = Database(connection, config.assume_tz)
    reader = next((r for r in readers if r.claims(database.tables) and config.agent in ("auto", r.name)), None)
    if reader is None:
        return UnitResult("", [], [], _instead(ledger, source, "skipped", "not_transcript"))
    redactor = Redactor(config.privacy)
    settings = SegmentSettings(split_tokens, config.max_tool_bytes)
    result = UnitResult(reader.name, exchange_rows(), occurrence_rows(), ledger)
    n_rows = 0
    try:
        for name, records in reader.members(database):
            member = f"{source}!{name}"
            segmenter = Segmenter(reader.name, member, reader.version * 1000 + SEGMENT_VERSION, settings, redactor)
            n, error = _fed(segmenter, records)
            n_rows += n
            result.exchanges.extend(segmenter.exchanges)
            result.occurrences.extend(segmenter.occurrences)
            result.sessions += segmenter.sessions()
            result.silent += [(reader.name, session) for session in segmenter.silent()]
            ledger += segmenter.ledger.rows(n, digest) if n else []
            if error is not None:
                raise error
        rest = max(database.count() + database.beside_rows - n_rows, 0)
        if rest:
            ledger.append(LedgerRow(f"{source}!{_REST}", 0, rest, rest, "skipped", "meta", None, digest))
    except _BROKEN:  # what was read before stands
        ledger.append(LedgerRow(f"{source}!{_REST}", 0, 1, 1, "quarantined", "damaged", None, digest))
    result.secrets = dict(redactor.counts)
    return result


def _fed(segmenter: Segmenter, records: Iterator[Record]) -> tuple[int, Exception | None]:
    """Segments the rows of one session; their number, and what stopped the reading."""
    n = 0
    stopped: Exception | None = None
    try:
        for record in records:
            segmenter.feed(record)
            n = record.end
    except _BROKEN as error:
        stopped = error
    segmenter.finish()
    return n, stopped


def _instead(ledger: list[LedgerRow], source: str, state: Any, reason: str) -> list[LedgerRow]:
    """The rows with another fate for the bytes of all files."""
    return [
        LedgerRow(r.source, r.byte_start, r.byte_end, 0, state, reason, None, r.file_digest)
        if r.state == "container"
        else r
        for r in ledger
    ]
