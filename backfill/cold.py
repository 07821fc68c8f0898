"""Cold storage as it is read: recognised by its marker, listed, read file by file, restored to the byte.

    COLD/cold.json                 the marker
    COLD/blobs/ab/<sha256>.zst     chunks of files, each stored once, named by the SHA-256 of what they hold
    COLD/sources/<id>/<number>.json   what a run of `archive` added for one source: its generation; none ever changes

Deliberately absent: writing (`archive`), and deletion of anything.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from backfill.durable import sha256_bytes
from backfill.errors import ShardError, UsageError

FORMAT = 1
MARKER, BLOBS, SOURCES = "cold.json", "blobs", "sources"
KIND = "backfill-cold"
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of bytes of a file, by the SHA-256 of its content."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ColdFile:
    """One version of a file. `path` is its POSIX path below its source, as `scan` shows it; `name_bytes` holds the
    real one in hex where it is not UTF-8. `extends` says that the version before is a beginning of this one."""

    path: str
    size_bytes: int
    mtime_ns: int
    sha256: str
    chunks: tuple[Chunk, ...]
    extends: bool = False
    name_bytes: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one run added. `previous` is the SHA-256 of the generation before, so that none can go missing."""

    number: int
    root: str
    previous: str
    created_at: str
    files: tuple[ColdFile, ...]
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a file with the number of its generation."""

    generation: int
    file: ColdFile


class ColdSource:
    """Everything that is stored of one source. Raises ShardError where a generation is missing or damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cold = folder.parent.parent
        self.root = ""
        self.last_number = 0
        self.last_sha256 = ""
        self.created_at: list[str] = []
        self.versions: dict[str, list[Version]] = defaultdict(list)
        for path in sorted(folder.glob("[0-9]*.json")):
            self._take(path)

    def _take(self, path: Path) -> None:
        data = path.read_bytes()
        try:
            generation = msgspec.json.decode(data, type=Generation)
        except msgspec.MsgspecError as error:
            raise ShardError(f"{path} is damaged: {error}", hint="restore this file from a backup") from error
        if generation.format != FORMAT:
            raise ShardError(f"{path} has format {generation.format}; this version reads {FORMAT}")
        if generation.number != self.last_number + 1 or generation.previous != self.last_sha256:
            raise ShardError(f"{path} does not follow the generation before it", hint="a generation is missing")
        self.root, self.last_number, self.last_sha256 = generation.root, generation.number, sha256_bytes(data)
        self.created_at.append(generation.created_at)
        for file in generation.files:
            self.versions[file.path].append(Version(generation.number, file))

    def newest(self) -> list[ColdFile]:
        """The newest version of every file, also of those that the source has no more."""
        return [versions[-1].file for _, versions in sorted(self.versions.items())]

    def replaced(self) -> list[Version]:
        """Versions that a later one does not begin with: only they hold what was rewritten."""
        found = []
        for _, versions in sorted(self.versions.items()):
            found += [version for version, later in pairwise(versions) if not later.file.extends]
        return found

    def find(self, path: str, size_bytes: int, mtime_ns: int) -> ColdFile:
        """A version by its size and time. Raises FileNotFoundError."""
        for version in reversed(self.versions.get(path, ())):
            if (version.file.size_bytes, version.file.mtime_ns) == (size_bytes, mtime_ns):
                return version.file
        raise FileNotFoundError(f"{path} is not in {self.folder}")

    def manifest(self, number: int) -> Path:
        """Where a generation stands."""
        return self.folder / f"{number:08d}.json"


def is_cold(path: Path) -> bool:
    """Whether a folder is a cold storage, by its marker."""
    try:
        with (path / MARKER).open("rb") as file:
            found = msgspec.json.decode(file.read(4096))
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(found, dict) and found.get("kind") == KIND


def open_sources(cold: Path) -> list[ColdSource]:
    """All sources of a cold storage. Raises UsageError where the folder is none or of an unknown format."""
    if not is_cold(cold):
        raise UsageError(f"{cold} is no cold storage: it has no {MARKER}", hint="`backfill archive SOURCE --to COLD`")
    marker = msgspec.json.decode((cold / MARKER).read_bytes())
    if marker.get("format") != FORMAT:
        raise UsageError(f"{cold} has format {marker.get('format')}; this version reads {FORMAT}")
    folders = sorted((cold / SOURCES).glob("*")) if (cold / SOURCES).is_dir() else []
    return [source for folder in folders if (source := ColdSource(folder)).last_number]


def cold_roots(cold: Path) -> list[tuple[Path, list[ColdFile]]]:
    """What a scan reads: per source the newest version of every file, and per generation what was rewritten since.

    The paths stand for the source, or for one of its generations. Raises like `open_sources`.
    """
    roots: list[tuple[Path, list[ColdFile]]] = []
    for source in open_sources(cold):
        roots.append((source.folder, source.newest()))
        by_generation: dict[int, list[ColdFile]] = defaultdict(list)
        for version in source.replaced():
            by_generation[version.generation].append(version.file)
        roots += [(source.manifest(number), files) for number, files in sorted(by_generation.items())]
    return roots


def source_of(root: Path) -> Path | None:
    """The folder of the cold source that a planned root stands for (itself, or one of its generations), else None."""
    folder = root if root.suffix != ".json" else root.parent
    return folder if folder.parent.name == SOURCES and is_cold(folder.parent.parent) else None


def write_content(cold: Path, file: ColdFile, to: BinaryIO) -> None:
    """Writes the bytes of a file. Raises ShardError where a chunk is missing or they are not the stored ones."""
    import zstandard

    whole = hashlib.sha256()
    decompressor = zstandard.ZstdDecompressor()
    for chunk in file.chunks:
        path = blob_path(cold, chunk.sha256)
        if not 0 < chunk.size_bytes <= CHUNK_BYTES:
            raise ShardError(f"{file.path}: a chunk of {chunk.size_bytes} bytes is none of ours")
        try:
            with path.open("rb") as stored:
                data = decompressor.stream_reader(stored).read(chunk.size_bytes + 1)
        except (OSError, zstandard.ZstdError) as error:
            raise ShardError(f"{path} is missing or damaged: {error}", hint="restore it from a backup") from error
        if sha256_bytes(data) != chunk.sha256:
            raise ShardError(f"{path} does not hold what its name says", hint="restore it from a backup")
        whole.update(data)
        to.write(data)
    if whole.hexdigest() != file.sha256:
        raise ShardError(f"the chunks of {file.path} do not add up to the file that was stored")


def blob_path(cold: Path, sha256: str) -> Path:
    """Where a chunk stands. Raises ShardError for a name that is no SHA-256."""
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ShardError(f"{sha256[:80]!r} is no SHA-256")
    return cold / BLOBS / sha256[:2] / f"{sha256}.zst"


@lru_cache(maxsize=4)
def _loaded(folder: Path, n_generations: int) -> ColdSource:
    """A source as it stood with so many generations; they are only ever added."""
    return ColdSource(folder)


@contextmanager
def unpacked(folder: Path, wanted: Sequence[tuple[str, int, int]]) -> Iterator[list[Path]]:
    """Plain copies of files (path, size_bytes, mtime_ns) of the cold source at `folder`, in a private temporary folder.

    Raises FileNotFoundError for a version that is not there, ShardError for a damaged one.
    """
    source = _loaded(folder, sum(1 for _ in folder.glob("[0-9]*.json")))
    with tempfile.TemporaryDirectory(prefix="backfill-") as temporary:
        paths = []
        for number, key in enumerate(wanted):
            path = Path(temporary) / str(number)
            with path.open("xb") as file:
                write_content(source.cold, source.find(*key), file)
            paths.append(path)
        yield paths


def restore(cold: Path, to: Path, *, all_versions: bool = False) -> int:
    """Writes every file back, below a folder per source; returns how many.

    With `all_versions` also those that were rewritten, as `NAME~GENERATION`. Raises UsageError when `to` is not
    empty, ShardError when something is damaged or a stored path would lead out of `to`.
    """
    sources = open_sources(cold)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} is not empty", hint="restore into a new folder")
    n_files = 0
    for source in sources:
        older = source.replaced() if all_versions else []
        for file, suffix in [(f, "") for f in source.newest()] + [(v.file, f"~{v.generation}") for v in older]:
            path = to / source.folder.name / (_safe_path(file) + suffix)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                write_content(source.cold, file, opened)
            os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
            n_files += 1
    return n_files


def _safe_path(file: ColdFile) -> str:
    path = os.fsdecode(bytes.fromhex(file.name_bytes)) if file.name_bytes else file.path
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ShardError(f"the stored path {path!r} leads out of the folder", hint="this storage is not honest")
    return path
