"""Where files are made before they are copied to a run folder or a bundle: BACKFILL_SCRATCH, a node-local folder.

Parquet and index writers seek and write in small pieces, and a bundle's files are renamed into place, both slow on many
shared file systems. A file that is made on a local disk reaches the shared one in one sequential copy under its final
name; nobody reads it before a manifest names it. Publishing stays what it is: a link, or the switch of the manifest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from backfill.durable import fsync_file
from backfill.errors import UsageError

VARIABLE = "BACKFILL_SCRATCH"
_CHUNK_BYTES = 1 << 20


def staging_folder() -> Path | None:
    """The folder that the environment names, None where it names none. Raises UsageError for one that is not there."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise UsageError(f"{VARIABLE} names {named}, which is no folder", hint="make it on this host, or unset it")
    return folder


def copy_into_place(source: Path, target: Path) -> str:
    """Writes a file's bytes to `target` and fsyncs it; returns their SHA-256 in hex.

    What stands there is written over without being emptied first: where another writer has put the same bytes there
    already, no reader ever finds less than these.
    """
    digest = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o666)
    with source.open("rb") as file, os.fdopen(descriptor, "wb") as out:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
        out.truncate()
    fsync_file(target)
    return digest.hexdigest()
