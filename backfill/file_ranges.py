"""Ranges of a file, read where they lie.

A mapped file is for what is read as a whole: a touched page maps its neighbours too, so after a few hits most of a
table would count as this process's memory. Deliberately absent: caching, which the system does.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path


class FileRanges:
    """An open file of which parts are wanted. Reads are thread-safe. Raises OSError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._map: mmap.mmap | None = None
        self._handle = -1
        if not hasattr(os, "pread"):
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.n_bytes = len(self._map)
            return
        self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._handle)
        self.n_bytes = os.fstat(self._handle).st_size

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), fewer where the file has no more. Raises OSError where the file fails."""
        if self._map is not None:
            return self._map[start:end]
        data = os.pread(self._handle, end - start, start)
        if len(data) == end - start:
            return data
        # One call reads at most 2 GiB, and may be interrupted.
        pieces = [data]
        while pieces[-1] and (start := start + len(pieces[-1])) < end:
            pieces.append(os.pread(self._handle, end - start, start))
        return b"".join(pieces)


def joined_ranges(files: Sequence[FileRanges], starts: Sequence[int], sizes: Sequence[int]) -> bytes:
    """The bytes of many small ranges, one after another. Raises OSError where a file fails or ends early."""
    handles = [file._handle for file in files]
    if handles and min(handles) >= 0:
        # No line of Python for each: a search reads some hundred ranges of a few hundred bytes.
        data = b"".join(map(os.pread, handles, sizes, starts))
        if len(data) == sum(sizes):
            return data
    data = b"".join([file.read(at, at + size) for file, at, size in zip(files, starts, sizes, strict=True)])
    if len(data) != sum(sizes):
        raise OSError(errno.EIO, "the file ends early")
    return data
