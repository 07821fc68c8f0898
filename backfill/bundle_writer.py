"""Writing a bundle: immutable files named by their digest, then one atomic switch of manifest.json.

Everything is written and fsynced in a scratch folder beside `seg`, renamed into place, and only then named by the new
manifest; a reader of the old manifest is never disturbed and a crash leaves either the old bundle or the new one.
Deliberately absent: deciding what goes in (`merge`) and reading it back (`bundle`).
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from backfill.durable import (
    attempt_name,
    fsync_dir,
    fsync_file,
    make_dirs,
    publish_file,
    replace_file,
    sha256_bytes,
    sha256_file,
)
from backfill.errors import BundleError, UsageError
from backfill.ids import canonical_json

FORMAT = 1
MANIFEST, MANIFEST_SUM = "manifest.json", "manifest.sha256"


@dataclass(slots=True)
class BundleWriter:
    """One attempt at a new state of a bundle. Use as a context manager; nothing shows before `commit`."""

    path: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    _scratch: Path = field(init=False)
    _dirs: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is not a folder")
        if self.path.is_dir() and not (self.path / MANIFEST).exists() and _has_strangers(self.path):
            raise UsageError(f"{self.path} is not empty and is no bundle", hint="choose another --out")
        make_dirs(self.path)
        _drop_dead_scratch(self.path)
        self._scratch = self.path / f"tmp-{socket.gethostname()}-{os.getpid()}-{attempt_name()}"
        self._scratch.mkdir()

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, folder: str, name: str, suffix: str, role: str, write: Callable[[Path], int]) -> str:
        """Writes one file by `write` (path -> rows) as FOLDER/NAME-<8 hex>SUFFIX; returns that path."""
        temporary = self._scratch / f"{name}{suffix}"
        rows = write(temporary)
        digest = sha256_file(temporary)
        relative = f"{folder}/{name}-{digest[:8]}{suffix}".removeprefix("/")
        self._settle(temporary, relative, digest)
        self._list(relative, digest, rows, role)
        return relative

    def add_copy(self, source: Path, relative: str, role: str) -> str:
        """Copies a file under its own name (encoder files); returns its SHA-256."""
        temporary = self._scratch / source.name
        shutil.copyfile(source, temporary)
        digest = sha256_file(temporary)
        self._settle(temporary, relative, digest)
        self._list(relative, digest, 0, role)
        return digest

    def add_lineage(self, name: str, record: Mapping[str, Any]) -> None:
        """Adds a record of hosts, times and inputs under a name that carries its digest."""
        data = canonical_json(record)
        folder = self.path / "lineage"
        make_dirs(folder)
        publish_file(folder / f"{name}-{sha256_bytes(data)[:16]}.json", data)

    def commit(self, manifest: Mapping[str, Any], lineage: Mapping[str, Any]) -> bool:
        """Switches to the new state; False when the bundle already is in it.

        manifest.sha256 names the old and the new digest while manifest.json is being replaced, so that at every
        moment the one that stands is vouched for.
        """
        full = {"format": FORMAT, **manifest, "files": sorted(self.files, key=lambda f: str(f["path"]))}
        data = canonical_json(full)
        for folder in sorted(self._dirs):
            fsync_dir(folder)
        target = self.path / MANIFEST
        previous = target.read_bytes() if target.exists() else None
        if previous == data and _sum_line(data) == _read(self.path / MANIFEST_SUM):
            return False
        self.add_lineage("run", lineage)
        lines = _sum_line(data)
        if previous is not None:
            make_dirs(self.path / "manifests")
            publish_file(self.path / "manifests" / f"manifest-{sha256_bytes(previous)[:16]}.json", previous)
            lines += _sum_line(previous)
        replace_file(self.path / MANIFEST_SUM, lines.encode(), self._scratch)
        replace_file(target, data, self._scratch)
        replace_file(self.path / MANIFEST_SUM, _sum_line(data).encode(), self._scratch)
        return True

    def _settle(self, temporary: Path, relative: str, digest: str) -> None:
        target = self.path / relative
        make_dirs(target.parent)
        self._dirs.add(target.parent)
        if target.exists() and sha256_file(target) == digest:
            temporary.unlink()
            return
        fsync_file(temporary)
        temporary.replace(target)

    def _list(self, relative: str, digest: str, rows: int, role: str) -> None:
        if any(f["path"] == relative for f in self.files):
            raise BundleError(f"two files of one bundle are called {relative}")
        size = (self.path / relative).stat().st_size
        self.files.append({"path": relative, "bytes": size, "sha256": digest, "rows": rows, "role": role})


def _sum_line(data: bytes) -> str:
    return f"{sha256_bytes(data)}  {MANIFEST}\n"


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _has_strangers(path: Path) -> bool:
    ours = ("seg", "encoder", "lineage", "manifests", "ann")
    return any(
        not (p.name in ours or p.name.startswith(("tmp-", "rooms-", "tombstones-", "superseded-", "manifest")))
        for p in path.iterdir()
    )


def _drop_dead_scratch(path: Path) -> None:
    prefix = f"tmp-{socket.gethostname()}-"
    for folder in path.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
