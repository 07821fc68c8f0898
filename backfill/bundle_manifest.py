"""A bundle's manifest: what it says, and the checks that come before anything else of the bundle is believed.

A bundle may come from a stranger: the manifest must match `manifest.sha256`, be of a known format, and name plain files
inside the folder with their true sizes. Deliberately absent: checksums of the files (`verify`).
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from backfill.errors import BundleError

FORMAT = 1
# A file takes about 250 bytes of the manifest: 256 MiB are a million files.
MAX_MANIFEST_BYTES = 256 << 20
MAX_FILES = 1_000_000

_SEGMENT = re.compile(r"\d{4}-\d{2}|undated")


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle as its manifest names it; `rows` is 0 where it has none."""

    path: str
    bytes: int
    sha256: str
    rows: int
    role: str


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """The query encoder that the bundle carries in the folder `path`."""

    sha256: str
    dim: int
    pooling: str = ""
    prompts: dict[str, str] = field(default_factory=dict)
    probe_cosine_min: float = 0.0
    path: str = "encoder"


@dataclass(frozen=True, slots=True)
class Bm25Info:
    """How the BM25 fields were cut into tokens, and the constants of their scores."""

    tokenizer_version: int | str
    k1: float = 1.5
    b: float = 0.75


@dataclass(frozen=True, slots=True)
class SearchDefaults:
    """How the default mode joins its signals; the bundle's own, or what a caller of `search` gives instead.

    `weights`: of the signals `bm25` (verbatim), `vector` (distilled), `claims-vector`, `nearest` (the better of these
    two), `verbatim-vector`, `distilled-bm25` and `claims-bm25` (0 or absent: not used), and of BM25 fields: `title`,
    `rooms`, `files` join bm25 where given, `verbatim`, `core`, `context` are 1 unless given. `session_prior`: what part
    of a session's best score its other exchanges get on top. `min_cosine`: where no exchange has a word of the query
    and none is as near in meaning, nothing was found. `zero_cosine`: from where min-max counts cosines; None: the least
    among the candidates. `depth`: the best units taken of each signal. `parts`: the
    object's parts that have a vector. `k1` and `b`: BM25's constants, the index's where None.
    """

    fusion: str = "weighted"
    normalization: str = "minmax"
    weights: dict[str, float] = field(default_factory=dict)
    session_prior: float = 0.0
    depth: int = 200
    parts: tuple[str, ...] = ("core", "context")
    rrf_k: int = 60
    min_cosine: float = 0.3
    zero_cosine: float | None = None
    k1: float | None = None
    b: float | None = None


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """manifest.json, as far as reading needs it; what it holds beyond that stays in the file."""

    format: int
    logical_digest: str
    counts: dict[str, int]
    files: tuple[BundleFile, ...]
    segments: tuple[str, ...]
    encoder: EncoderInfo | None = None
    bm25: Bm25Info | None = None
    index: SearchDefaults = field(default_factory=SearchDefaults)
    fingerprints: dict[str, Any] = field(default_factory=dict)
    gate: dict[str, Any] = field(default_factory=dict)


def read_manifest(root: Path) -> BundleManifest:
    """The manifest of a bundle, checked against `manifest.sha256`. Raises BundleError."""
    path = root / "manifest.json"
    if path.is_symlink() or path.stat().st_size > MAX_MANIFEST_BYTES:
        raise BundleError(f"{path} is a link or larger than {MAX_MANIFEST_BYTES:,} bytes")
    data = path.read_bytes()
    try:
        lines = (root / "manifest.sha256").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise BundleError(f"{root} has no manifest.sha256") from error
    # While a writer replaces the manifest, the file names the old and the new one.
    if hashlib.sha256(data).hexdigest() not in [line.split(" ")[0] for line in lines]:
        raise BundleError(f"{path} does not match manifest.sha256", hint="restore the bundle, or roll it back")
    return decode_manifest(data, path)


def decode_manifest(data: bytes, path: Path) -> BundleManifest:
    """A manifest from its bytes; `path` is for messages. Raises BundleError for another format or anything odd."""
    root = path.parent
    try:
        version = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"null"))
        if bytes(version) != str(FORMAT).encode():
            raise BundleError(
                f"{root} has bundle format {bytes(version)[:20].decode(errors='replace')}, this version reads {FORMAT}",
                hint="use the version of backfill that wrote it, or a newer one",
            )
        manifest = msgspec.json.decode(data, type=BundleManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{path} is not a bundle manifest: {error}") from error
    if len(manifest.files) > MAX_FILES or len(set(manifest.segments)) != len(manifest.segments):
        raise BundleError(f"{path} names too many files, or a segment twice")
    bad = [name for name in manifest.segments if not _SEGMENT.fullmatch(name)]
    if bad:
        raise BundleError(f"{path} names a segment {bad[0][:40]!r}, which is no month")
    return manifest


def check_name(entry: BundleFile) -> PurePosixPath:
    """The path of a file below the bundle. Raises BundleError where it leads anywhere else."""
    relative = PurePosixPath(entry.path)
    unsafe = relative.is_absolute() or "\\" in entry.path or ":" in entry.path or "\0" in entry.path
    if unsafe or ".." in relative.parts or str(relative) != entry.path or not relative.name:
        raise BundleError(f"the manifest names {entry.path[:200]!r}, which is no path inside a bundle")
    if entry.rows < 0 or entry.bytes < 0:
        raise BundleError(f"the manifest gives {entry.path} a negative size")
    return relative


def check_files(root: Path, files: Sequence[BundleFile]) -> None:
    """Every file is a plain file inside the bundle, has its size, and no folder on the way to it is a link.

    Raises BundleError naming the first that is not.
    """
    plain: set[PurePosixPath] = set()
    for entry in files:
        relative = check_name(entry)
        for parent in relative.parents:
            if parent not in plain and (root / parent).is_symlink() and str(parent) != ".":
                raise BundleError(f"{parent} is a link; a bundle's folders are plain ones")
            plain.add(parent)
        try:
            found = (root / relative).lstat()
        except OSError as error:
            raise BundleError(f"{entry.path} is missing from the bundle") from error
        if not stat.S_ISREG(found.st_mode):
            raise BundleError(f"{entry.path} is not a plain file")
        if found.st_size != entry.bytes:
            raise BundleError(
                f"{entry.path} is {found.st_size:,} bytes, the manifest says {entry.bytes:,}",
                hint="the copy is incomplete, or the bundle was changed",
            )
