"""Durable file operations: data before names, names before the manifest that vouches for them.

Everything that the ledger, shards and bundles promise after a crash rests on these few functions. `os.link` publishes
because it fails when the name is taken: of two writers the first wins on every POSIX file system, NFS and Lustre
included.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from backfill.errors import DiskFull

_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def told_when_full(where: Path) -> Iterator[None]:
    """Turns the system's word that no room is left into a DiskFull that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        place = error.filename or where
        raise DiskFull(
            f"cannot write to {place}: {os.strerror(error.errno)}",
            hint=f"free space, or raise the quota or limit, where {where} lies; what is published stays, and the same "
            "command goes on",
            retryable=True,
        ) from error


def attempt_name() -> str:
    """Eight random hex digits that name one attempt at a file."""
    return secrets.token_hex(4)


def fsync_file(path: Path) -> None:
    """Makes the content of a file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_dir(path: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    fsync_file(path)


def make_dirs(path: Path) -> None:
    """Creates a folder and its missing parents, and makes their names survive a power cut."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for created in missing:
        fsync_dir(created.parent)


def write_file(path: Path, data: bytes) -> None:
    """Writes and fsyncs a file; its name is durable only after `fsync_dir`."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Replaces a file atomically and durably. `scratch` (same file system) holds the temporary file."""
    temporary = (scratch or path.parent) / f".{path.name}.{attempt_name()}"
    write_file(temporary, data)
    temporary.replace(path)
    fsync_dir(path.parent)


def publish_file(path: Path, data: bytes) -> bool:
    """Creates a file atomically and durably unless its name is taken; says whether this call created it."""
    temporary = path.parent / f".{path.name}.{attempt_name()}"
    write_file(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(path.parent)
    return True


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, in hex, read in chunks."""
    with path.open("rb") as file:
        return sha256_stream(file)


def copy_hashed(source: Path, target: Path) -> str:
    """Copies a file and returns the SHA-256 of what was written, in hex. Not fsynced."""
    digest = hashlib.sha256()
    with source.open("rb") as file, target.open("wb") as out:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def sha256_stream(file: BinaryIO) -> str:
    """SHA-256 of what is left of an open file, in hex."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()
