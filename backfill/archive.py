"""Cold storage as it is written: raw sources compressed, each chunk once, private, only ever added to.

Agents delete their files after weeks; a better reader must be able to start again from the raw. Reads the sources,
writes blobs first and the generation that names them last, so that a crash leaves blobs that the next run finds
again. Deliberately absent: secret replacement (the raw is kept as it is, mode 0700) and any export.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from backfill.cold import (
    BLOBS,
    CHUNK_BYTES,
    FORMAT,
    KIND,
    MARKER,
    SOURCES,
    Chunk,
    ColdFile,
    ColdSource,
    Generation,
    blob_path,
    is_cold,
    open_sources,
)
from backfill.durable import attempt_name, fsync_dir, sha256_bytes
from backfill.errors import UsageError
from backfill.ids import canonical_json
from backfill.scan import walk_files

_LEVEL = 10  # written once, read rarely
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(slots=True)
class Summary:
    """What a run of `archive` did. `read_bytes` were read, `new_bytes` of them were not stored yet and take
    `stored_bytes` compressed."""

    files: int = 0
    bytes: int = 0
    added: int = 0
    grown: int = 0
    rewritten: int = 0
    unchanged: int = 0
    read_bytes: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def archive_sources(sources: Sequence[str], cold: Path) -> Summary:
    """Stores what is new in the sources since the last run; files that vanished there stay.

    Raises UsageError for a missing source, or where `cold` is a folder of something else or a source itself.
    """
    for given in sources:
        if not Path(given).expanduser().exists():
            raise UsageError(f"the source {given} does not exist")
        if is_cold(Path(given).expanduser()):
            raise UsageError(f"{given} is a cold storage itself", hint="copy its folder to keep a second one")
    _prepare(cold)
    summary = Summary()
    for given in dict.fromkeys(str(Path(s).expanduser().absolute()) for s in sources):
        writer = _SourceWriter(cold, Path(given), summary)
        for source, path in sorted(walk_files(Path(given), summary.problems)):
            writer.take(source, path)
        writer.publish()
    return summary


def storage_rows(cold: Path) -> list[dict[str, object]]:
    """One record per source: where it came from, its generations, files, versions and bytes."""
    rows: list[dict[str, object]] = []
    for source in open_sources(cold):
        newest = source.newest()
        chunks = {c.sha256 for found in source.versions.values() for v in found for c in v.file.chunks}
        rows.append(
            {
                "id": source.folder.name,
                "root": source.root,
                "generations": source.last_number,
                "first_at": source.created_at[0],
                "last_at": source.created_at[-1],
                "files": len(newest),
                "versions": sum(len(found) for found in source.versions.values()),
                "rewritten": len(source.replaced()),
                "bytes": sum(file.size_bytes for file in newest),
                "stored_bytes": sum(blob_path(cold, name).stat().st_size for name in chunks),
            }
        )
    return rows


def source_id(root: Path) -> str:
    """The folder of a source in the storage: its name, and eight hex digits of its absolute path."""
    digest = hashlib.blake2b(os.fsencode(root), digest_size=4).hexdigest()
    return f"{_NOT_IN_NAMES.sub('_', root.name)[:60] or 'root'}-{digest}"


class _SourceWriter:
    """Adds one generation of one source."""

    def __init__(self, cold: Path, root: Path, summary: Summary) -> None:
        import zstandard

        self._cold, self._root, self._summary = cold, root, summary
        self._folder = cold / SOURCES / source_id(root)
        _make_private(self._folder)
        self._known = ColdSource(self._folder)
        self._files: list[ColdFile] = []
        self._touched: set[Path] = set()
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def take(self, source: str, path: Path) -> None:
        """Stores a file as far as it reaches now, unless this version is known."""
        summary = self._summary
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return
            summary.files += 1
            summary.bytes += status.st_size
            versions = self._known.versions.get(source)
            before = versions[-1].file if versions else None
            if before is not None and (before.size_bytes, before.mtime_ns) == (status.st_size, status.st_mtime_ns):
                summary.unchanged += 1
                return
            with path.open("rb") as file:
                stored = self._store(file, source, status.st_size, status.st_mtime_ns, before)
        except OSError as error:
            summary.problems.append(f"{path}: {error.strerror}")
            return
        if "\ufffd" in source:
            relative = path.name if path == self._root else path.relative_to(self._root).as_posix()
            stored = replace(stored, name_bytes=os.fsencode(relative).hex())
        summary.added += before is None
        summary.grown += stored.extends
        summary.rewritten += before is not None and not stored.extends
        self._files.append(stored)

    def _store(self, file: BinaryIO, source: str, size_bytes: int, mtime_ns: int, before: ColdFile | None) -> ColdFile:
        """Stores the tail of a file that still begins with the version before, else all of it."""
        whole = hashlib.sha256()
        chunks: list[Chunk] = []
        extends = False
        if before is not None and size_bytes >= before.size_bytes:
            n_read = self._hash(file, whole, before.size_bytes)
            extends = n_read == before.size_bytes and whole.hexdigest() == before.sha256
        if extends and before is not None:
            chunks += before.chunks
        else:
            file.seek(0)
            whole = hashlib.sha256()
        done = sum(chunk.size_bytes for chunk in chunks)
        while done < size_bytes and (data := file.read(min(CHUNK_BYTES, size_bytes - done))):
            whole.update(data)
            chunks.append(self._put(data))
            done += len(data)
            self._summary.read_bytes += len(data)
        return ColdFile(source, done, mtime_ns, whole.hexdigest(), tuple(chunks), extends)

    def _hash(self, file: BinaryIO, whole: Any, size_bytes: int) -> int:
        done = 0
        while done < size_bytes and (data := file.read(min(1 << 20, size_bytes - done))):
            whole.update(data)
            done += len(data)
        self._summary.read_bytes += done
        return done

    def _put(self, data: bytes) -> Chunk:
        chunk = Chunk(sha256_bytes(data), len(data))
        path = blob_path(self._cold, chunk.sha256)
        self._touched.add(path.parent)  # also where it stands already: its name may not be durable yet
        if not path.exists():
            _make_private(path.parent)
            packed = self._compressor.compress(data)
            if _publish(path, packed):
                self._summary.new_bytes += len(data)
                self._summary.stored_bytes += len(packed)
        return chunk

    def publish(self) -> None:
        """Makes what was stored part of the storage; nothing is published where nothing changed."""
        if not self._files:
            return
        for folder in sorted(self._touched):
            fsync_dir(folder)
        fsync_dir(self._cold / BLOBS)
        while True:
            generation = Generation(
                self._known.last_number + 1,
                os.fsencode(self._root).decode("utf-8", "replace"),
                self._known.last_sha256,
                datetime.fromtimestamp(int(time.time()), UTC).isoformat(),
                tuple(self._files),
            )
            path = self._known.manifest(generation.number)
            if _publish(path, canonical_json(generation)):
                fsync_dir(path.parent)
                return
            self._known = ColdSource(self._folder)  # another run was first: this one comes after it


def _prepare(cold: Path) -> None:
    if cold.exists() and not is_cold(cold) and (not cold.is_dir() or any(cold.iterdir())):
        raise UsageError(f"{cold} is not empty and is no cold storage", hint="choose a new folder for --to")
    for folder in (cold, cold / BLOBS, cold / SOURCES):
        _make_private(folder)
    if not is_cold(cold):
        _publish(cold / MARKER, canonical_json({"format": FORMAT, "kind": KIND}))
        fsync_dir(cold)
    open_sources(cold)


def _make_private(folder: Path) -> None:
    """A folder that only its owner can look into."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    for created in missing:
        fsync_dir(created.parent)


def _publish(path: Path, data: bytes) -> bool:
    """Creates a private file atomically unless its name is taken; its name is durable after `fsync_dir`."""
    temporary = path.parent / f".{path.name}.{attempt_name()}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
