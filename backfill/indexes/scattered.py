"""Single rows of a large file of vectors, read where they lie.

A mapped file is read here, not touched, unless its memory is granted: a touched page maps its neighbours too, and after
a few searches the whole file would count as this process's memory. Deliberately absent: caching, which the system does.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

F16 = npt.NDArray[np.float16]
I64 = npt.NDArray[np.int64]


def blocks(rows: F16, size: int) -> Iterator[F16]:
    """All rows, `size` at a time and in order; a block holds until the next is asked for. Raises OSError."""
    if not _is_file(rows):
        yield from (rows[at : at + size] for at in range(0, len(rows), size))
        return
    buffer = np.empty((size, rows.shape[1]), "<f2")
    with Path(str(getattr(rows, "filename", ""))).open("rb") as file:
        for at in range(0, len(rows), size):
            block = buffer[: len(rows) - at]
            if file.readinto(block.data.cast("B")) != block.nbytes:
                raise OSError(errno.EIO, "the file ends early")
            yield block


def _is_file(rows: F16) -> bool:
    return isinstance(rows, np.memmap) and rows.filename is not None and rows.offset == 0


class ScatteredRows:
    """Rows of several files [N_i, D] float16, of which few are wanted at a time; in memory, or of mapped files."""

    def __init__(self, files: Sequence[F16], *, keep_mapped: bool = False) -> None:
        """`files` as `open_vectors` gives them, or any arrays of one D; `keep_mapped` touches them where they lie."""
        # Plain arrays: each slice of a memmap is made a memmap again, which costs more than the slice.
        self._files = tuple(rows.view(np.ndarray) for rows in files)
        self._bounds = np.cumsum([0, *map(len, files)], dtype=np.int64)
        self._row_bytes = 2 * files[0].shape[1] if files else 0
        self._handles: npt.NDArray[np.int64] | None = None
        if not keep_mapped and all(map(_is_file, files)) and hasattr(os, "pread"):
            flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
            handles = []
            for rows in files:
                handles.append(os.open(str(getattr(rows, "filename", "")), flags))
                weakref.finalize(self, os.close, handles[-1])
            self._handles = np.array(handles, np.int64)

    def take(self, numbers: I64) -> F16:
        """[len(numbers), D] the rows of these numbers, rising, counted through the files in order.

        Raises OSError where a file fails.
        """
        counts = np.diff(np.searchsorted(numbers, self._bounds))
        if self._handles is None:
            cuts = np.cumsum([0, *counts])
            found = np.empty((len(numbers), self._row_bytes // 2), "<f2")
            starts = self._bounds.tolist()
            for rows, start, (low, high) in zip(self._files, starts, pairwise(cuts.tolist()), strict=False):
                if high > low:
                    rows.take(numbers[low:high] - start, axis=0, out=found[low:high], mode="clip")
            return found
        places = (numbers - np.repeat(self._bounds[:-1], counts)) * self._row_bytes
        size, handles = self._row_bytes, np.repeat(self._handles, counts).tolist()
        data = b"".join(map(os.pread, handles, repeat(size), places.tolist()))
        if len(data) != size * len(numbers):
            raise OSError(errno.EIO, "the file ends early")
        return np.frombuffer(data, "<f2").reshape(len(numbers), size // 2)
