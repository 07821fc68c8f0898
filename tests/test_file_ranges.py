"""Ranges of a file: with and without pread, to the end and beyond it, and through interrupted reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backfill.file_ranges import FileRanges

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(DATA)
    return tmp_path / "file"


@pytest.mark.parametrize("pread", [True, False])
def test_ranges_are_those_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch, pread: bool) -> None:
    if not pread:
        monkeypatch.delattr(os, "pread", raising=False)
    ranges = FileRanges(path)
    assert ranges.n_bytes == len(DATA)
    for start, end in ((0, 0), (0, 1), (77, 900), (0, len(DATA)), (len(DATA) - 3, len(DATA) + 9)):
        assert ranges.read(start, end) == DATA[start:end]


def test_a_read_that_gives_less_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges, whole = FileRanges(path), os.pread
    monkeypatch.setattr(os, "pread", lambda handle, n, at: whole(handle, min(n, 1000), at))
    assert ranges.read(5, len(DATA)) == DATA[5:]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        FileRanges(tmp_path / "none")
