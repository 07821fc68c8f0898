"""Members of zip, tar (plain, gzip, zstd) and single compressed files, unpacked one by one within bounds.

Writes into a folder of ours under names of ours, whatever a member calls itself; what is refused gets a row that says
why. Deliberately absent: what is in the members (`archives`), archives inside archives, links and devices.
"""

from __future__ import annotations

import errno
import gzip
import re
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from backfill.ids import ID_BYTES
from backfill.sources.base import Readable
from backfill.sources.units import UnitFile
from backfill.types import LedgerRow, LedgerState

# Real transcripts shrink 4 to 30 times; deflate can do 1,032. What stays below the grace is read whatever its ratio.
MAX_RATIO = 200
RATIO_GRACE_BYTES = 64 << 20
MAX_MEMBERS = 200_000
MAX_TOTAL_BYTES = 32 << 30
_MAX_NAME_CHARS = 1024
_MAX_HEADER_BYTES = 1 << 20  # of a tar's own long-name and pax records, which tarfile reads into memory
CHUNK_BYTES = 1 << 20
_ZIP, _EMPTY_ZIP, _GZIP, _ZSTD = b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]|\A[A-Za-z]:|\A/|(?:\A|/)\.\.(?:/|\Z)")


class Damaged(Exception):
    """The archive cannot be read on: torn or corrupt."""


class TooLarge(Exception):
    """The archive unpacks to more than is allowed."""


@dataclass(slots=True)
class Unpacked:
    """What was found in an archive: files to read, and rows of members that are not read."""

    folder: Path
    source: str
    budget_bytes: int
    files: list[UnitFile] = field(default_factory=list)
    rows: list[LedgerRow] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    n_members: int = 0

    def named(self, name: str) -> str:
        """The source of the next member; one without a safe name is known by its number."""
        self.n_members += 1
        if self.n_members > MAX_MEMBERS:
            raise TooLarge
        clean = _safe_name(name)
        known = f"{self.source}!{clean or f'#{self.n_members}'}"
        self.seen[known] += 1
        return known if self.seen[known] == 1 else f"{known}#{self.seen[known]}"

    def leave(self, known: str, size: int, state: LedgerState, reason: str) -> None:
        """A member that is not read."""
        self.rows.append(LedgerRow(known, 0, max(0, size), 0, state, reason, None, bytes(ID_BYTES)))

    def add(self, known: str, stream: Readable, size: int) -> None:
        """Unpacks a member of at most `size` bytes; of a torn one, what stands before the tear is kept."""
        path = self.folder / f"{self.n_members}"
        written = 0
        try:
            with path.open("xb") as file:
                while written < size and (data := stream.read(min(CHUNK_BYTES, size - written))):
                    file.write(data)
                    written += len(data)
                    self.budget_bytes -= len(data)
                    if self.budget_bytes < 0:
                        raise TooLarge
        except TooLarge:
            self.leave(known, written, "quarantined", "too_large")
            raise
        except (Damaged, tarfile.TarError):
            self._keep(known, path, written)
            raise
        self._keep(known, path, written)

    def _keep(self, known: str, path: Path, size: int) -> None:
        with path.open("rb") as file:
            nested = is_archive(file.read(512))
        if nested:
            path.unlink()
            self.leave(known, size, "skipped", "nested_archive")
        else:
            self.files.append(UnitFile(path, known, size))


def is_archive(head: bytes) -> bool:
    """Whether a file is a container, by its beginning (at least 262 bytes for a plain tar)."""
    return head.startswith((_ZIP, _EMPTY_ZIP, _GZIP, _ZSTD)) or _is_tar(head)


def _safe_name(name: str) -> str:
    """The member's POSIX path, or nothing where it would lead out of a folder or cannot be shown."""
    path = name.replace("\\", "/")
    if len(path) > _MAX_NAME_CHARS or _UNSAFE.search(path):
        return ""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _is_tar(head: bytes) -> bool:
    return head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + len(_TAR_MAGIC)] == _TAR_MAGIC


def unpack(path: Path, size_bytes: int, found: Unpacked) -> None:
    """Unpacks an archive of `size_bytes` into `found`. Raises TooLarge beyond the bounds, Damaged or what zipfile and
    tarfile raise where it cannot be read on; what stands before is in `found`."""
    with path.open("rb") as file:
        head = file.read(512)
        file.seek(0)
        if head.startswith((_ZIP, _EMPTY_ZIP)):
            with zipfile.ZipFile(file) as opened:
                _unpack_zip(opened, size_bytes, found)
        elif _is_tar(head):
            _unpack_tar(file, found)
        else:
            _unpack_stream(_Inflated(file, head, size_bytes), PurePosixPath(found.source).name, found)


# -- zip ----------------------------------------------------------------------------------------------------------


def _unpack_zip(opened: zipfile.ZipFile, size_bytes: int, found: Unpacked) -> None:
    members = opened.infolist()
    # Overlapping members unpack the same bytes again and again: no honest writer makes them.
    if len(members) > MAX_MEMBERS or sum(m.compress_size for m in members) > size_bytes:
        raise TooLarge
    for member in members:
        if member.is_dir():
            continue
        known = found.named(member.filename)
        refused = _refused(member)
        if refused is not None:
            found.leave(known, member.file_size, *refused)
            continue
        try:
            with opened.open(member) as stream:
                found.add(known, stream, member.file_size)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
            found.leave(known, member.file_size, "quarantined", "damaged")
        except OSError as error:
            if error.errno != errno.EINVAL:  # a place before the beginning of the file, as the directory says
                raise
            found.leave(known, member.file_size, "quarantined", "damaged")


def _refused(member: zipfile.ZipInfo) -> tuple[LedgerState, str] | None:
    """(state, reason) of a member that is not unpacked."""
    if stat.S_ISLNK(member.external_attr >> 16):
        return "skipped", "link"
    if not _safe_name(member.filename):
        return "quarantined", "unsafe_path"
    if member.flag_bits & 1:
        return "quarantined", "encrypted"
    if member.file_size > max(RATIO_GRACE_BYTES, MAX_RATIO * member.compress_size):
        return "quarantined", "ratio"
    return None


# -- tar and compressed streams -----------------------------------------------------------------------------------


class _Inflated:
    """What a gzip or zstd file holds; raises TooLarge beyond the allowed ratio, Damaged where it is torn."""

    def __init__(self, file: BinaryIO, head: bytes, size_bytes: int) -> None:
        self._limit = max(RATIO_GRACE_BYTES, MAX_RATIO * size_bytes)
        self._held = b""
        self._errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
        if head.startswith(_GZIP):
            self._stream: Any = gzip.GzipFile(fileobj=file)
        else:
            import zstandard

            self._errors += (zstandard.ZstdError,)
            self._stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
                file, read_across_frames=True, closefd=False
            )

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay to be read."""
        while len(self._held) < size and (data := self._inflate(size - len(self._held))):
            self._held += data
        return self._held[:size]

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes."""
        if self._held:
            data, self._held = self._held[:size], self._held[size:]
            return data
        return self._inflate(size if size >= 0 else CHUNK_BYTES)

    def _inflate(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except self._errors as error:
            raise Damaged from error
        self._limit -= len(data)
        if self._limit < 0:
            raise TooLarge
        return data


def _unpack_stream(stream: _Inflated, name: str, found: Unpacked) -> None:
    """A compressed tar, or one compressed file, which is named like its container without the last suffix."""
    if _is_tar(stream.peek(512)):
        _unpack_tar(stream, found)
        return
    stem = PurePosixPath(name).stem if PurePosixPath(name).suffix in (".gz", ".zst", ".zstd") else name
    found.add(found.named(stem), stream, MAX_TOTAL_BYTES)


class _Header(tarfile.TarInfo):
    """A member's header; refuses long-name and pax records that would not fit in memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        extended = header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
        if (extended or header.type == tarfile.SOLARIS_XHDTYPE) and header.size > _MAX_HEADER_BYTES:
            raise Damaged
        return header


def _unpack_tar(stream: Any, found: Unpacked) -> None:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as opened:
        for member in _members(opened):
            if member.isdir():
                continue
            known = found.named(member.name)
            if member.islnk() or member.issym():
                found.leave(known, 0, "skipped", "link")
            elif not member.isreg() or member.issparse():
                found.leave(known, 0, "skipped", "special")
            elif not _safe_name(member.name):
                found.leave(known, member.size, "quarantined", "unsafe_path")
            elif (reader := opened.extractfile(member)) is not None:
                found.add(known, reader, member.size)


def _members(opened: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, none of which is remembered: tarfile keeps every header it has seen."""
    while (member := opened.next()) is not None:
        yield member
        opened.members = []  # type: ignore[attr-defined]
