"""Single rows of a large file of vectors, read where they lie.

A mapped file is read here, not touched: a touched page maps its neighbours too, and after a few searches the whole file
would count as this process's memory. Deliberately absent: caching, which the system does.
"""

from __future__ import annotations

import os
import weakref

import numpy as np
import numpy.typing as npt

F16 = npt.NDArray[np.float16]
I64 = npt.NDArray[np.int64]


class ScatteredRows:
    """Rows [N, D] float16, of which few are wanted at a time; of an array in memory, or of a mapped file."""

    def __init__(self, rows: F16) -> None:
        """`rows` as `open_vectors` gives them, or any array [N, D]."""
        self._rows = rows
        self._row_bytes = rows.shape[1] * rows.itemsize
        self._handle: int | None = None
        if isinstance(rows, np.memmap) and rows.filename is not None and rows.offset == 0 and hasattr(os, "pread"):
            self._handle = os.open(rows.filename, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            weakref.finalize(self, os.close, self._handle)

    def take(self, numbers: I64, out: F16) -> None:
        """Copies the rows of these numbers into `out` [len(numbers), D]. Raises OSError where the file fails."""
        if self._handle is None:
            np.take(self._rows, numbers, axis=0, out=out)
            return
        handle, size = self._handle, self._row_bytes
        data = b"".join([os.pread(handle, size, at) for at in (numbers * size).tolist()])
        out[:] = np.frombuffer(data, "<f2").reshape(out.shape)
