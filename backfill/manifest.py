"""Shard manifests: a shard is done when its manifest is there and matches, nothing else.

Data files are written under the attempt's own name and fsynced, then the manifest that names them is published with
`os.link`: the first writer wins, a second discards its files. Deliberately absent: locks and marker files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.durable import attempt_name, fsync_dir, fsync_file, publish_file, sha256_file
from backfill.errors import ShardError
from backfill.ids import canonical_json
from backfill.staging import copy_into_place, staging_folder

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One data file of a shard: its role (a table or a vector part), name, size, SHA-256 and rows."""

    role: str
    name: str
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """What a finished shard is made of. `inputs` are the SHA-256 of the manifests it was made from."""

    stage: str
    shard: int
    fingerprint: str
    files: tuple[ShardFile, ...]
    inputs: tuple[str, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def file(self, role: str) -> ShardFile:
        """The file of a role; raises ShardError when the shard has none."""
        for file in self.files:
            if file.role == role:
                return file
        raise ShardError(f"shard {self.shard} of stage {self.stage} has no {role} file")


def manifest_path(folder: Path, shard: int, fingerprint: str) -> Path:
    """Where the manifest of a shard under a fingerprint stands."""
    return folder / f"shard-{shard:05d}.{fingerprint[:8]}.json"


def data_name(role: str, shard: int, fingerprint: str, suffix: str) -> str:
    """A data file's name for a new attempt."""
    return f"{role.replace(':', '-')}-{shard:05d}.{fingerprint[:8]}-{attempt_name()}{suffix}"


def publish(
    folder: Path,
    stage: str,
    shard: int,
    fingerprint: str,
    writers: dict[tuple[str, str], Callable[[Path], int]],
    *,
    inputs: tuple[str, ...] = (),
    stats: dict[str, Any] | None = None,
) -> ShardManifest:
    """Writes the data files by their `writers` ((role, suffix) -> function of a path that returns rows) and publishes.

    Returns the manifest that stands afterwards: this attempt's, or that of the writer that was first.
    """
    files: list[ShardFile] = []
    try:
        for (role, suffix), write in writers.items():
            path = folder / data_name(role, shard, fingerprint, suffix)
            files.append(ShardFile(role, path.name, 0, "", 0))
            rows, digest = _write_data(path, write)
            files[-1] = ShardFile(role, path.name, path.stat().st_size, digest, rows)
        fsync_dir(folder)
        manifest = ShardManifest(stage, shard, fingerprint, tuple(files), inputs, stats or {})
        publish_file(manifest_path(folder, shard, fingerprint), canonical_json(manifest))
    finally:
        # Also when an interrupt comes between the link and the return: what a manifest names is never discarded.
        first = read_manifest(folder, shard, fingerprint)
        named = {file.name for file in first.files} if first else set()
        for file in files:
            if file.name not in named:
                (folder / file.name).unlink(missing_ok=True)
    if first is None:
        raise ShardError(f"the manifest of shard {shard} vanished while it was being published", retryable=True)
    return first


def _write_data(path: Path, write: Callable[[Path], int]) -> tuple[int, str]:
    """(rows, SHA-256) of a data file, written there and fsynced, or made in the staging folder and copied."""
    staging = staging_folder()
    if staging is None:
        rows = write(path)
        fsync_file(path)
        return rows, sha256_file(path)
    made = staging / path.name
    try:
        rows = write(made)
        return rows, copy_into_place(made, path)
    finally:
        made.unlink(missing_ok=True)


def read_manifest(folder: Path, shard: int, fingerprint: str) -> ShardManifest | None:
    """The manifest of a done shard, or None. Raises ShardError when the file there is not a manifest of this shard."""
    path = manifest_path(folder, shard, fingerprint)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(data, type=ShardManifest)
    except msgspec.MsgspecError as error:
        raise ShardError(
            f"{path} is not a shard manifest: {error}", hint="delete it to have the shard redone"
        ) from error
    if (manifest.shard, manifest.fingerprint, manifest.format) != (shard, fingerprint, FORMAT):
        raise ShardError(f"{path} belongs to another shard, configuration or format", hint="use another --out folder")
    return manifest


def check(folder: Path, manifest: ShardManifest) -> list[tuple[str, str]]:
    """(file, problem) of every data file of a shard that is missing or differs from its manifest."""
    problems = []
    for file in manifest.files:
        path = folder / file.name
        if not path.is_file():
            problems.append((file.name, "missing"))
        elif path.stat().st_size != file.bytes:
            problems.append((file.name, f"is {path.stat().st_size} bytes, {file.bytes} were written"))
        elif sha256_file(path) != file.sha256:
            problems.append((file.name, "SHA-256 differs from the manifest"))
    return problems
