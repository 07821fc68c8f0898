"""Writing a bundle: immutable files named by their digest, then one atomic switch of manifest.json.

Everything is written and fsynced in a scratch folder beside `seg`, renamed into place, and only then named by the new
manifest; a reader of the old manifest is never disturbed and a crash leaves either the old bundle or the new one.
With a staging folder (`staging`) the scratch folder lies there, and files are copied to their places.
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

import msgspec

from backfill.durable import (
    attempt_name,
    copy_hashed,
    fsync_dir,
    fsync_file,
    make_dirs,
    publish_file,
    replace_file,
    sha256_bytes,
    sha256_file,
)
from backfill.errors import BundleChanged, BundleError, UsageError
from backfill.ids import canonical_json
from backfill.staging import copy_into_place, staging_folder
from backfill.turns import is_alive, taking_turns

FORMAT = 1
MANIFEST, MANIFEST_SUM = "manifest.json", "manifest.sha256"
EARLIER, LINEAGE = "manifests", "lineage"


@dataclass(slots=True)
class BundleWriter:
    """One attempt at a new state of a bundle. Use as a context manager; nothing shows before `commit`."""

    path: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    _scratch: Path = field(init=False)
    _staging: Path | None = field(init=False, default_factory=staging_folder)
    _dirs: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is not a folder")
        if self.path.is_dir() and not (self.path / MANIFEST).exists() and _has_strangers(self.path):
            raise UsageError(f"{self.path} is not empty and is no bundle", hint="choose another --out")
        make_dirs(self.path)
        _drop_dead_scratch(self.path)
        self._scratch = (self._staging or self.path) / f"tmp-{socket.gethostname()}-{os.getpid()}-{attempt_name()}"
        self._scratch.mkdir()

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def scratch(self) -> Path:
        """A folder of this attempt's own, which goes with it."""
        return self._scratch

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

    def keep(self, source: Path, entry: Mapping[str, Any]) -> None:
        """Takes over an immutable file under its own name: as it lies here, or as a copy that is compared.

        Raises BundleError where it is missing or is not what `entry` says.
        """
        relative, digest = str(entry["path"]), str(entry["sha256"])
        target = self.path / relative
        if not (target.is_file() and source.samefile(target)):
            temporary = self._scratch / source.name
            copied = copy_hashed(source, temporary)
            if copied != digest:
                raise BundleError(f"{source} differs from its checksum", hint="restore it, or merge without it")
            self._settle(temporary, relative, digest)
        elif target.stat().st_size != entry["bytes"]:
            raise BundleError(f"{target} has another size than it was written with", hint="`backfill rollback`")
        self._list(relative, digest, int(entry["rows"]), str(entry["role"]))

    def commit(self, manifest: Mapping[str, Any], lineage: Mapping[str, Any], *, expected: str | None = None) -> bool:
        """Switches to the new state; False when the bundle already is in it.

        `expected` is the SHA-256 of the manifest that this state was made from ("" for none): raises BundleChanged
        when another writer has switched since, or `gc` freed files of this attempt.
        """
        full = {"format": FORMAT, **manifest, "files": sorted(self.files, key=lambda f: str(f["path"]))}
        data = canonical_json(full)
        for folder in sorted(self._dirs):
            fsync_dir(folder)
        with taking_turns(self.path):
            now = current_digest(self.path)
            if expected is not None and now != expected:
                raise BundleChanged(f"{self.path} was changed by another writer meanwhile", retryable=True)
            self._refuse_freed()
            if now == sha256_bytes(data) and _sum_line(data) == _read(self.path / MANIFEST_SUM):
                return False
            switch(self.path, data, lineage, None if self._staging else self._scratch)
        return True

    def _refuse_freed(self) -> None:
        """Until the manifest names them, files of this attempt look like garbage: `gc` may have run meanwhile."""
        for entry in self.files:
            path = self.path / str(entry["path"])
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                raise BundleChanged(f"{path} was freed while {self.path} was being written", retryable=True)

    def _settle(self, temporary: Path, relative: str, digest: str) -> None:
        target = self.path / relative
        make_dirs(target.parent)
        self._dirs.add(target.parent)
        if target.exists() and sha256_file(target) == digest:
            temporary.unlink()
            return
        if self._staging:
            if copy_into_place(temporary, target) != digest:
                raise BundleError(f"{temporary} changed while it was copied to {target}", hint="look at that disk")
            temporary.unlink()
            return
        fsync_file(temporary)
        temporary.replace(target)

    def _list(self, relative: str, digest: str, rows: int, role: str) -> None:
        if any(f["path"] == relative for f in self.files):
            raise BundleError(f"two files of one bundle are called {relative}")
        size = (self.path / relative).stat().st_size
        self.files.append({"path": relative, "bytes": size, "sha256": digest, "rows": rows, "role": role})


def switch(path: Path, data: bytes, lineage: Mapping[str, Any], scratch: Path | None = None) -> None:
    """Makes `data` the bundle's manifest; the earlier one stays in manifests/, and lineage/ records the step.

    manifest.sha256 names the old and the new digest while manifest.json is being replaced, so that at every moment
    the one that stands is vouched for. `seq` orders the steps, for clocks go backwards.
    """
    target = path / MANIFEST
    previous = target.read_bytes() if target.exists() else None
    step = {
        "seq": 1 + max((s.seq for s in steps(path)), default=0),
        "manifest": sha256_bytes(data),
        "previous": sha256_bytes(previous) if previous is not None else "",
    }
    add_lineage(path, "run", {**lineage, "state": step})
    lines = _sum_line(data)
    if previous is not None:
        make_dirs(path / EARLIER)
        publish_file(path / EARLIER / f"manifest-{sha256_bytes(previous)[:16]}.json", previous)
        lines += _sum_line(previous)
    replace_file(path / MANIFEST_SUM, lines.encode(), scratch)
    replace_file(target, data, scratch)
    replace_file(path / MANIFEST_SUM, _sum_line(data).encode(), scratch)


def add_lineage(path: Path, name: str, record: Mapping[str, Any]) -> None:
    """Adds a record of hosts, times and inputs under a name that carries its digest."""
    data = canonical_json(record)
    make_dirs(path / LINEAGE)
    publish_file(path / LINEAGE / f"{name}-{sha256_bytes(data)[:16]}.json", data)


@dataclass(frozen=True, slots=True)
class Step:
    """One switch of a bundle's manifest, as lineage/ records it; SHA-256 in hex, `previous` "" for the first."""

    seq: int
    manifest: str
    previous: str
    at: str = ""
    kind: str = ""


def steps(path: Path) -> list[Step]:
    """The switches of a bundle in the order in which they were made; damaged records are passed over."""
    found = []
    for file in (path / LINEAGE).glob("run-*.json"):
        try:
            record = msgspec.json.decode(file.read_bytes())
            step = record["state"]
            found.append(
                Step(
                    int(step["seq"]),
                    str(step["manifest"]),
                    str(step["previous"]),
                    str(record.get("at", "")),
                    str(record.get("kind", "")),
                )
            )
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return sorted(found, key=lambda s: (s.seq, s.manifest))


def states_within(path: Path) -> set[str]:
    """Digests of the manifests whose rows the current state holds: itself and what it grew from.

    A rollback is no growth, so what was rolled back is not among them.
    """
    before: dict[str, set[str]] = {}
    for step in steps(path):
        if step.kind != "rollback":
            before.setdefault(step.manifest, set()).add(step.previous)
    found: set[str] = set()
    open_ = {current_digest(path)}
    while open_:
        found |= open_
        open_ = {previous for one in open_ for previous in before.get(one, ())} - found
    return found


def current_digest(path: Path) -> str:
    """SHA-256 of the bundle's manifest; "" where there is none."""
    target = path / MANIFEST
    return sha256_bytes(target.read_bytes()) if target.exists() else ""


def _sum_line(data: bytes) -> str:
    return f"{sha256_bytes(data)}  {MANIFEST}\n"


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _has_strangers(path: Path) -> bool:
    ours = ("seg", "encoder", "lineage", "manifests", "ann")
    made = ("tmp-", "rooms-", "tombstones-", "superseded-", "manifest")
    # A writer that was killed may leave the hidden file of a name that it was about to publish.
    return any(not (p.name in ours or p.name.removeprefix(".").startswith(made)) for p in path.iterdir())


def _drop_dead_scratch(path: Path) -> None:
    prefix = f"tmp-{socket.gethostname()}-"
    for folder in path.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
