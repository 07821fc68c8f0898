"""A bundle as one file and back: FILE.tar.zst, equal bundles as equal bytes, nothing of the machine that packed it.

Packed are manifest.json, manifest.sha256 and the files that it names, in order, without times or owners; lineage and
earlier states stay at home. What is unpacked is a stranger's: names, kinds, sizes and the ratio of decompression are
checked before and while anything is written, and nothing is called a bundle before every checksum holds.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from backfill.bundle_manifest import (
    MAX_MANIFEST_BYTES,
    BundleFile,
    BundleManifest,
    check_files,
    check_name,
    decode_manifest,
    read_manifest,
)
from backfill.bundle_writer import MANIFEST, MANIFEST_SUM
from backfill.durable import attempt_name, fsync_dir, fsync_file, make_dirs, sha256_bytes, write_file
from backfill.errors import BundleError, UsageError

LEVEL = 3
# Tables and vectors hardly compress, postings by three to five. Zeros alone go beyond this.
MAX_RATIO = 100
FREE_BYTES = 64 << 20  # small archives may expand to this whatever their ratio
MAX_WINDOW_BYTES = 128 << 20
_CHUNK_BYTES = 1 << 20


def export_bundle(bundle: Path, target: Path, *, keep_paths: bool = False) -> dict[str, Any]:
    """Packs a bundle into `target`, replacing it atomically; home directories are masked unless `keep_paths`.

    Raises BundleError when a file of the bundle does not hold.
    """
    with tempfile.TemporaryDirectory(prefix="backfill-export-") as scratch:
        source, n_masked = (bundle, 0) if keep_paths else _masked(bundle, Path(scratch) / "bundle")
        manifest = read_manifest(source)
        check_files(source, manifest.files)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{target.name}.{attempt_name()}"
        try:
            _pack(source, manifest, temporary)
            fsync_file(temporary)
            temporary.replace(target)
            fsync_dir(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
        return {
            "file": str(target),
            "bytes": target.stat().st_size,
            "files": len(manifest.files),
            "exchanges": manifest.counts.get("visible_exchanges", 0),
            "logical_digest": manifest.logical_digest,
            "masked_rows": n_masked,
            "keep_paths": keep_paths,
        }


def _masked(bundle: Path, scratch: Path) -> tuple[Path, int]:
    """The bundle without home directories, and how many rows that changed; itself where it names none."""
    from backfill.compose import write_bundle
    from backfill.inputs import read_bundle
    from backfill.masking import masked_union

    whole = read_bundle(bundle)
    union = masked_union(whole.union, whole.settings.parts)
    names = ("exchanges", "occurrences", "objects", "claims")
    changed = sum(len(getattr(union, n).keys() - getattr(whole.union, n).keys()) for n in names)
    if not changed:
        return bundle, 0
    write_bundle(union, whole.settings, whole.encoder_files, scratch, {"kind": "export"})
    return scratch, changed


def _pack(source: Path, manifest: BundleManifest, target: Path) -> None:
    import zstandard

    with (
        target.open("wb") as raw,
        zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(raw) as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        data = (source / MANIFEST).read_bytes()
        _put_bytes(tar, MANIFEST, data)
        _put_bytes(tar, MANIFEST_SUM, f"{sha256_bytes(data)}  {MANIFEST}\n".encode())
        for entry in manifest.files:
            with (source / entry.path).open("rb") as file:
                tar.addfile(_header(entry.path, entry.bytes), _Checked(file, entry))


def _put_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_header(name, len(data)), io.BytesIO(data))


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info


class _Checked:
    """A file that raises at its end when its bytes were not those of the manifest."""

    def __init__(self, file: BinaryIO, entry: BundleFile) -> None:
        self._file, self._entry, self._left = file, entry, entry.bytes
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        self._left -= len(data)
        if self._left == 0 and self._digest.hexdigest() != self._entry.sha256:
            raise BundleError(
                f"{self._entry.path} differs from the manifest", hint="`backfill verify` names the damage"
            )
        return data


def import_bundle(archive: Path, bundle: Path) -> dict[str, Any]:
    """Unpacks an archive into the new bundle `bundle`.

    Raises UsageError where there is something already, BundleError for an archive that is damaged or hostile.
    """
    if bundle.exists() and (not bundle.is_dir() or any(bundle.iterdir())):
        raise UsageError(f"{bundle} is not empty", hint="import into a new folder, then `backfill merge` the two")
    if not archive.is_file():
        raise UsageError(f"{archive} is not a file")
    make_dirs(bundle.parent.absolute())
    scratch = bundle.parent / f".{bundle.name}.import-{attempt_name()}"
    scratch.mkdir()
    try:
        manifest = _unpack(archive, scratch)
        check_files(scratch, manifest.files)
        for folder in sorted({p.parent for p in scratch.rglob("*")}):
            fsync_dir(folder)
        if bundle.is_dir():
            bundle.rmdir()
        scratch.rename(bundle)
        fsync_dir(bundle.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {
        "bundle": str(bundle),
        "files": len(manifest.files),
        "bytes": sum(entry.bytes for entry in manifest.files),
        "exchanges": manifest.counts.get("visible_exchanges", 0),
        "logical_digest": manifest.logical_digest,
    }


def _unpack(archive: Path, scratch: Path) -> BundleManifest:
    with _tar_of(archive) as members:
        first = next(members, None)
        if first is None or first.name != MANIFEST:
            raise BundleError(f"{archive} does not begin with {MANIFEST}: it is no exported bundle")
        data = first.take(MAX_MANIFEST_BYTES)
        write_file(scratch / MANIFEST, data)
        manifest = decode_manifest(data, scratch / MANIFEST)
        second = next(members, None)
        wanted_sum = f"{sha256_bytes(data)}  {MANIFEST}\n".encode()
        if second is None or second.name != MANIFEST_SUM or second.take(1024) != wanted_sum:
            raise BundleError(f"{archive} lacks the manifest's checksum")
        write_file(scratch / MANIFEST_SUM, wanted_sum)
        _room_for(manifest, scratch)
        left = {entry.path: entry for entry in manifest.files}
        for member in members:
            entry = left.pop(member.name, None)
            if entry is None:
                raise BundleError(f"{archive} holds {member.name[:200]!r}, which its manifest does not name")
            check_name(entry)
            _write(member, entry, scratch / entry.path)
    if left:
        raise BundleError(f"{archive} lacks {min(left)} and {len(left) - 1} more files", hint="the copy is incomplete")
    return manifest


def _room_for(manifest: BundleManifest, scratch: Path) -> None:
    needed, free = sum(entry.bytes for entry in manifest.files), shutil.disk_usage(scratch).free
    if needed > free:
        raise BundleError(f"the bundle needs {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free")


def _write(member: _Member, entry: BundleFile, path: Path) -> None:
    if member.size != entry.bytes:
        raise BundleError(f"{entry.path} is {member.size:,} bytes, the manifest says {entry.bytes:,}")
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        while data := member.read(_CHUNK_BYTES):
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != entry.sha256:
        raise BundleError(f"{entry.path} differs from its checksum", hint="the archive is damaged")
    fsync_file(path)


@dataclass(slots=True)
class _Member:
    """One plain file of an archive."""

    name: str
    size: int
    file: Any

    def read(self, size: int) -> bytes:
        data: bytes = self.file.read(size)
        return data

    def take(self, limit: int) -> bytes:
        """All of it. Raises BundleError above `limit` bytes."""
        if self.size > limit:
            raise BundleError(f"{self.name} is {self.size:,} bytes, at most {limit:,} are read")
        return self.read(self.size)


class _Bounded:
    """Decompressed bytes of an archive, up to what its compressed size warrants."""

    def __init__(self, stream: Any, compressed_bytes: int) -> None:
        self._stream = stream
        self._left = max(FREE_BYTES, MAX_RATIO * compressed_bytes)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(min(size, _CHUNK_BYTES) if size >= 0 else _CHUNK_BYTES)
        self._left -= len(data)
        if self._left < 0:
            raise BundleError(f"the archive expands to more than {MAX_RATIO} times its size", hint="it is hostile")
        return data


@contextmanager
def _tar_of(archive: Path) -> Iterator[Iterator[_Member]]:
    import zstandard

    with archive.open("rb") as raw:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        bounded = _Bounded(decompressor.stream_reader(raw, read_across_frames=False), archive.stat().st_size)
        try:
            with tarfile.open(fileobj=bounded, mode="r|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
                yield _members(tar)
        except (tarfile.TarError, zstandard.ZstdError, EOFError, OverflowError, ValueError) as error:
            raise BundleError(f"{archive} is not a tar.zst of a bundle: {error}") from error


def _members(tar: tarfile.TarFile) -> Iterator[_Member]:
    for info in tar:
        if not info.isreg() or info.issparse():
            raise BundleError(f"the archive holds {info.name[:200]!r}, which is no plain file", hint="it is hostile")
        yield _Member(info.name, info.size, tar.extractfile(info))
        tar.members = []  # type: ignore[attr-defined]
