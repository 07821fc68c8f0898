"""Single rows of several files: read singly, or where they are mapped, they are the rows of the files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from backfill.indexes.scattered import ScatteredRows
from backfill.indexes.vectors import open_vectors


@pytest.mark.parametrize("keep_mapped", [False, True])
def test_rows_are_taken_across_files_and_an_empty_one(tmp_path: Path, keep_mapped: bool):
    parts = [np.random.default_rng(n).normal(size=(n, 5)).astype("<f2") for n in (7, 0, 3, 40)]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.f16").write_bytes(part.tobytes())
    files = [open_vectors(tmp_path / f"{number}.f16", 5) for number in range(4)]
    rows = ScatteredRows(files, keep_mapped=keep_mapped)
    every = np.concatenate(parts)
    for wanted in ([], [0], [6, 7, 9, 10, 49], list(range(50))):
        taken = rows.take(np.array(wanted, np.int64))
        assert taken.dtype == np.float16
        assert taken.tolist() == every[wanted].tolist()


def test_a_file_that_was_cut_after_it_was_opened_is_an_error_of_reading(tmp_path: Path):
    path = tmp_path / "a.f16"
    path.write_bytes(np.ones((9, 5), "<f2").tobytes())
    rows = ScatteredRows([open_vectors(path, 5)])
    os.truncate(path, 44)
    with pytest.raises(OSError, match="ends early"):
        rows.take(np.array([8], np.int64))
