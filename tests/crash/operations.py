"""Counts and records what a process does to the files below one folder, and can end it at any of these operations,
or tell it from there on that the disk is full.

Every durable step of the product goes through the functions of `os` that are wrapped here, also where a C++ writer made
the file: its content is looked at when it is fsynced. "write" is the moment before an fsync, where half of the file is
there. Not for threads: one process, one at a time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Names = dict[str, tuple[int, bool]]  # name -> inode, whether it is a folder


@dataclass(slots=True)
class Moment:
    """The folder just before operation `what`: what a power cut would surely leave, and what the page cache holds.

    `synced_files` maps inodes to the digest of their content at the last fsync, `synced_dirs` to their names at the
    last fsync of the folder; `names` and `files` are the same as of now. Contents are in `Recording.blobs`.
    """

    what: str
    synced_dirs: dict[int, Names]
    synced_files: dict[int, str]
    names: dict[int, Names]
    files: dict[int, str]


@dataclass(slots=True)
class Recording:
    """The operations of a process, and the moment before each; contents by digest."""

    whats: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Recorder:
    """Wraps `os` in this process. `kill_at` ends it before that operation (from 1); 0 lets it live. From operation
    `full_at` (0: never) whatever takes room fails; what was being written is there by half."""

    root: Path
    kill_at: int = 0
    full_at: int = 0
    remember: bool = False
    recording: Recording = field(default_factory=Recording)
    _dirs: dict[int, Names] = field(default_factory=dict)
    _files: dict[int, str] = field(default_factory=dict)
    _seen: dict[tuple[int, int, int], str] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)
    _real: dict[str, Any] = field(default_factory=dict)

    def install(self) -> None:
        """Wraps the functions; the process is expected to end with the recorder."""
        # What lies there before the first operation has lain there for long.
        self._dirs, self._files = self._look()
        for name in ("fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir"):
            self._real[name] = getattr(os, name)
            setattr(os, name, self._fsync if name == "fsync" else self._wrapped(name))

    def _wrapped(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            inside = [a for a in args[:2] if isinstance(a, (str, os.PathLike)) and self._below(os.fspath(a))]
            if inside:
                self._step(f"{name} {Path(os.fspath(inside[-1])).name}")
            return self._real[name](*args, **kwargs)

        return call

    def _fsync(self, descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not self._below(path):
            return
        status = os.fstat(descriptor)
        name = Path(path).name
        if stat.S_ISDIR(status.st_mode):
            self._step(f"fsync-dir {name}")
            self._dirs[status.st_ino] = self._names(Path(path))
            return
        self._step(f"write {name}", half=Path(path))
        self._step(f"fsync {name}")
        if self.remember:
            self._files[status.st_ino] = self._content(Path(path), status)

    def _step(self, what: str, half: Path | None = None) -> None:
        self.recording.whats.append(what)
        if len(self.recording.whats) == self.kill_at:
            if half is not None:
                os.truncate(half, half.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        if 0 < self.full_at <= len(self.recording.whats) and what.split()[0] in ("write", "link", "mkdir"):
            if half is not None:
                os.truncate(half, half.stat().st_size // 2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)
        if self.remember:
            names, files = self._look()
            self.recording.moments.append(Moment(what, dict(self._dirs), dict(self._files), names, files))

    def _below(self, path: str) -> bool:
        return Path(path).absolute().is_relative_to(self.root)

    def _look(self) -> tuple[dict[int, Names], dict[int, str]]:
        names: dict[int, Names] = {}
        files: dict[int, str] = {}
        for folder, _, below in os.walk(self.root):
            names[Path(folder).stat().st_ino] = self._names(Path(folder))
            for name in below:
                path = Path(folder) / name
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    files[status.st_ino] = self._content(path, status)
        return names, files

    def _names(self, folder: Path) -> Names:
        return {e.name: (e.inode(), e.is_dir(follow_symlinks=False)) for e in os.scandir(folder) if not e.is_symlink()}

    def _content(self, path: Path, status: os.stat_result) -> str:
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._seen:
            # Held open, the inode's number is not given to another file.
            self._held.setdefault(status.st_ino, os.open(path, os.O_RDONLY))
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            self.recording.blobs[digest] = data
            self._seen[key] = digest
        return self._seen[key]


def lay_out(moment: Moment, recording: Recording, root: Path, *, names_survive: bool) -> str:
    """Makes `root` what a power cut at a moment leaves; returns a digest of it.

    Everything that was not fsynced is gone; with `names_survive` names are there as they stood, and of content that
    was not fsynced the first half.
    """
    dirs = moment.names if names_survive else moment.synced_dirs
    print_ = hashlib.sha256()

    def content(inode: int) -> bytes:
        synced = recording.blobs[moment.synced_files[inode]] if inode in moment.synced_files else b""
        if not names_survive or inode not in moment.files:
            return synced
        now = recording.blobs[moment.files[inode]]
        return synced if now == synced else now[: max(len(synced), len(now) // 2)]

    def build(inode: int, folder: Path) -> None:
        folder.mkdir()
        for name, (below, is_dir) in sorted(dirs.get(inode, {}).items()):
            print_.update(repr((str(folder / name), is_dir)).encode())
            if is_dir:
                build(below, folder / name)
            else:
                data = content(below)
                (folder / name).write_bytes(data)
                print_.update(hashlib.sha256(data).digest())

    build(_root_of(moment), root)
    return print_.hexdigest()


def _root_of(moment: Moment) -> int:
    inner = {inode for names in moment.names.values() for inode, _ in names.values()}
    return next(inode for inode in moment.names if inode not in inner)
