"""Units of several files: which files belong to one session, and how they are read as one.

`gather` decides from the listing alone, by names and never by content, so that a plan can freeze it. A unit is read
as the concatenation of its files; every file keeps a ledger, and a digest, of its own, and an occurrence names the
file in which its exchange begins. Deliberately absent: formats; a group whose files no folder reader claims is read
file by file.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from backfill.ids import ID_BYTES
from backfill.ledger import Fate, LedgerBuilder
from backfill.records import Act, Pending, Quarantine, Skip
from backfill.rundir import PlannedFile, PlannedUnit
from backfill.sources.base import Member, Readable, Unit
from backfill.sources.jsonl import MAX_LINE_BYTES, loads
from backfill.types import LedgerRow, Occurrence

SQLITE_COMPANIONS = ("-wal", "-shm")
_TASK_FILES = ("history_item.json", "task_metadata.json", "ui_messages.json", "api_conversation_history.json")
_VIBE_FILES = ("meta.json", "messages.jsonl")
_TREE_KINDS = ("session", "message", "part")

Place: TypeAlias = tuple[str, tuple[Any, ...]]  # (group, rank in the group)


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file to be read: its first `size_bytes` bytes, known as `source`."""

    path: Path
    source: str
    size_bytes: int


# -- which files belong together ------------------------------------------------------------------------------------


def gather(files: Sequence[PlannedUnit]) -> list[PlannedUnit]:
    """The units of a listing: files of one root that hold one session become one unit, the others stay alone."""
    by_root: dict[int, list[PlannedUnit]] = defaultdict(list)
    for file in files:
        by_root[file.root].append(file)
    units: list[PlannedUnit] = []
    for found in by_root.values():
        places = _places([file.source for file in found])
        groups: dict[str, list[PlannedUnit]] = defaultdict(list)
        for file in found:
            if file.source in places:
                groups[places[file.source][0]].append(file)
            else:
                units.append(file)
        for group in groups.values():
            first, *others = sorted(group, key=lambda file: places[file.source][1])
            members = tuple(PlannedFile(file.source, file.size_bytes, file.mtime_ns) for file in others)
            units.append(replace(first, members=members))
    return units


def _places(sources: Sequence[str]) -> dict[str, Place]:
    """Group and rank of the files that belong to a group."""
    names = frozenset(sources)
    places = _tree_places(sources)
    for source in sources:
        place = None if source in places else _place(source, names)
        if place is not None:
            places[source] = place
    return places


def _place(source: str, names: frozenset[str]) -> Place | None:
    """A database with its log, or a folder that holds one task or session in files of fixed names."""
    for rank, suffix in enumerate(SQLITE_COMPANIONS, 1):
        if source.endswith(suffix) and source.removesuffix(suffix) in names:
            return source.removesuffix(suffix), (rank,)
        if source + suffix in names:
            return source, (0,)
    folder, slash, name = source.rpartition("/")
    for fixed, needed in ((_TASK_FILES, _TASK_FILES[2:]), (_VIBE_FILES, _VIBE_FILES[1:])):
        if name in fixed and any(folder + slash + n in names for n in needed):
            return folder + slash, (fixed.index(name),)
    if f"/{folder}".endswith("/events") and name.startswith("event-") and name.endswith(".json"):
        return folder + slash, (name,)
    if source.endswith(".messages.json") and source.removesuffix(".messages.json") + ".json" in names:
        return source.removesuffix(".messages.json"), (1,)
    if source.endswith(".json") and source.removesuffix(".json") + ".messages.json" in names:
        return source.removesuffix(".json"), (0,)
    return None


@dataclass(frozen=True, slots=True)
class _TreeFile:
    """A file of a tree of sessions, messages and parts; `owner` is the folder below the kind, or empty."""

    root: str
    kind: str
    owner: str
    stem: str


def _tree_file(source: str) -> _TreeFile | None:
    if not source.endswith(".json"):
        return None
    steps = source.removesuffix(".json").split("/")
    for depth, kinds in ((3, _TREE_KINDS), (4, ("part",)), (2, ("part",))):
        if len(steps) >= depth and steps[-depth] in kinds:
            root = steps[:-depth]
            if steps[-depth] != "session" and root[-1:] == ["session"]:  # the layout before there were projects
                root = root[:-1]
            return _TreeFile("/".join(root), steps[-depth], steps[-2] if depth > 2 else "", steps[-1])
    return None


def _tree_places(sources: Sequence[str]) -> dict[str, Place]:
    """A session with its messages and their parts, in trees that hold messages.

    Parts whose folder is named after no message are read with the sessions that have no parts by name: only the
    content says which belongs where.
    """
    files = {source: file for source in sources if (file := _tree_file(source)) is not None}
    sessions_of = {(f.root, f.stem): f.owner for f in files.values() if f.kind == "message"}
    sessions = {(root, session) for (root, _), session in sessions_of.items()}
    parts = {s: f for s, f in files.items() if f.kind == "part"}
    known = {(f.root, sessions_of[f.root, f.owner]) for f in parts.values() if (f.root, f.owner) in sessions_of}
    loose = {f.root for f in parts.values() if (f.root, f.owner) not in sessions_of}
    places: dict[str, Place] = {}
    for source, file in files.items():
        root = file.root
        rank: tuple[Any, ...]
        if file.kind == "session":
            session = next((s for s in (file.stem, file.stem.removeprefix("ses_")) if (root, s) in sessions), "")
            rank = (0, source)
        elif file.kind == "message":
            session = file.owner
            rank = (1, session, file.stem, 0)
        else:
            session = sessions_of.get((root, file.owner), "")
            rank = (1, session, file.owner, 1, file.stem) if session else (2, source)
        if session and ((root, session) in known or root not in loose):
            places[source] = f"{root}//{session}", rank
        elif session or (file.kind == "part" and any(r == root for r, _ in sessions)):
            places[source] = f"{root}//", rank
    return places


# -- several files as one -------------------------------------------------------------------------------------------


class Concatenation:
    """The files of a unit, one after the other; only one is open at a time.

    A file that is shorter than planned, or gone, is filled up with NUL bytes: the places of the others stay.
    """

    def __init__(self, files: Sequence[UnitFile]) -> None:
        self._files = files
        ends = [0]
        for file in files:
            ends.append(ends[-1] + file.size_bytes)
        self.members = tuple(Member(f.source, a, b) for f, a, b in zip(files, ends, ends[1:], strict=False))
        self.n_read = [0] * len(files)
        self.problems = [""] * len(files)
        self._hashes = [hashlib.blake2b(digest_size=ID_BYTES) for _ in files]
        self._at = self._index = 0
        self._open: BinaryIO | None = None
        self._opened = -1

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, never over the end of a file; none only at the end of the last one."""
        while self._index < len(self.members) and self.members[self._index].end <= self._at:
            self._index += 1
        index = self._index
        if index == len(self.members):
            self.close()
            return b""
        left = self.members[index].end - self._at
        wanted = min(left, size) if size >= 0 else left
        data = self._bytes(index, wanted)
        self._hashes[index].update(data)
        self.n_read[index] += len(data)
        data += b"\0" * (wanted - len(data))
        self._at += len(data)
        return data

    def _bytes(self, index: int, wanted: int) -> bytes:
        try:
            if self._opened != index:
                self.close()
                self._opened = index
                self._open = self._files[index].path.open("rb", buffering=0)
            return b"" if self._open is None else self._open.read(wanted)
        except OSError as error:
            self.close()
            self.problems[index] = "vanished" if isinstance(error, FileNotFoundError) else "unreadable"
            return b""

    def close(self) -> None:
        """Closes the file that is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def digest(self, index: int) -> bytes:
        """BLAKE2b-128 of what was read of a file."""
        return self._hashes[index].digest()


class FolderLedger(LedgerBuilder):
    """A ledger per file of a unit; records never reach over the end of their file."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members[0].source if members else "")
        self._members = members
        self._member_ends = [m.end for m in members]
        self._ledgers = [LedgerBuilder(m.source) for m in members]

    def add(self, byte_end: int, fate: Fate, *, scattered: bool = False) -> None:
        """One record that ends at `byte_end` of the unit."""
        index = bisect_left(self._member_ends, byte_end)
        self._ledgers[index].add(byte_end - self._members[index].start, fate, scattered=scattered)

    def all_rows(self, stream: Concatenation) -> list[LedgerRow]:
        """The rows of every file, each tiling its planned size."""
        rows: list[LedgerRow] = []
        for index, (member, ledger) in enumerate(zip(self._members, self._ledgers, strict=True)):
            n_read, size, digest = stream.n_read[index], member.end - member.start, stream.digest(index)
            if n_read:
                rows += [row for row in ledger.rows(n_read, digest) if row.byte_start < row.byte_end]
            if n_read < size:
                reason = stream.problems[index] or "shrunk"
                rows.append(LedgerRow(member.source, n_read, size, 0, "quarantined", reason, None, digest))
            elif not size:
                rows.append(LedgerRow(member.source, 0, 0, 0, "skipped", "empty", None, digest))
        return rows


def located(occurrences: Iterable[Occurrence], members: Sequence[Member]) -> list[Occurrence]:
    """The occurrences with the file in which their exchange begins, and the bytes there."""
    ends = [m.end for m in members]
    found = []
    for o in occurrences:
        member = members[min(bisect_right(ends, o.byte_start), len(members) - 1)]
        end = min(o.byte_end, member.end) - member.start
        found.append(replace(o, source=member.source, byte_start=o.byte_start - member.start, byte_end=end))
    return found


class _Unhashed:
    """Takes what is hashed elsewhere already."""

    def update(self, data: bytes, /) -> None:
        """Nothing."""


def files_of(unit: Unit) -> Iterator[tuple[Member, Unit]]:
    """Each file of a unit as a unit of its own, to be read before the next one is asked for; a unit of a single file
    gives itself. Offsets in it count from `member.start`."""
    if not unit.members:
        yield Member(unit.source, 0, unit.size_bytes), unit
        return
    for member in unit.members:
        stream: Readable = unit
        inner = Unit(stream, member.source, member.end - member.start, unit.assume_tz, _Unhashed())
        yield member, inner
        while inner.bytes_read < inner.size_bytes and inner.read(min(1 << 20, inner.size_bytes - inner.bytes_read)):
            pass
        unit.decode_errors += inner.decode_errors


def document_of(unit: Unit) -> tuple[Any, list[Act]]:
    """The JSON value of a file, or what became of its bytes."""
    if unit.size_bytes > MAX_LINE_BYTES:
        return None, [Quarantine("line_too_long")]
    pieces = []
    while unit.bytes_read < unit.size_bytes and (piece := unit.read(unit.size_bytes - unit.bytes_read)):
        pieces.append(piece)
    body = b"".join(pieces).removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\0")
    if not body:
        return None, [Skip("empty")]
    try:
        return msgspec.json.decode(body.decode()), []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # read leniently, or not at all
    try:
        value, broken = loads(body)
    except RecursionError:
        return None, [Quarantine("too_deep")]
    except ValueError:
        return None, [Quarantine("not_json") if body.endswith(b"}") else Pending()]
    unit.decode_errors += broken
    return value, []
