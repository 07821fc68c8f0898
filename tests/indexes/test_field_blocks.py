"""A field that was written in blocks is, byte for byte, the one that was sorted at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.arrays import open_arrays, write_arrays
from backfill.indexes import field_blocks
from backfill.indexes.field import FieldIndex, build_field

WORDS = st.sampled_from(["retry", "cache", "src/retry_policy.ts", "ü", "日本語", "x", "timeout=30", "a", ""])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=30)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from([1, 7, 40, 1 << 20]))
def test_blocks_of_any_size_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block_chars: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    write_arrays(folder / "once", build_field(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_blocks, "BLOCK_CHARS", block_chars)
        assert field_blocks.write_field(iter(texts), folder / "field") == len(texts)
    assert (folder / "field").read_bytes() == (folder / "once").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["field", "once"]


def test_counts_are_wide_where_one_block_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_blocks, "BLOCK_CHARS", 10)
    field_blocks.write_field(["x", "y " * 70_000, "x x"], tmp_path / "field")
    index = FieldIndex.open(open_arrays(tmp_path / "field"))
    assert [found.tolist() for found in index.postings("y")] == [[1], [70_000]]
    assert [found.tolist() for found in index.postings("x")] == [[0, 2], [1, 2]]


def test_terms_are_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_blocks, "_READ_TERMS", 3)
    monkeypatch.setattr(field_blocks, "BLOCK_CHARS", 50)
    texts = [f"word{i} word{i * 7 % 31} alpha beta" for i in range(40)]
    field_blocks.write_field(texts, tmp_path / "field")
    write_arrays(tmp_path / "once", build_field(texts))
    assert (tmp_path / "field").read_bytes() == (tmp_path / "once").read_bytes()


def test_there_may_be_more_blocks_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(field_blocks, "BLOCK_CHARS", 1)
    monkeypatch.setattr(field_blocks, "_BLOCKS_AT_ONCE", 8, raising=False)
    texts = [f"word{i} word{i * 7 % 31} alpha" for i in range(100)]
    write_arrays(tmp_path / "once", build_field(texts))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 40, hard))
    try:
        assert field_blocks.write_field(texts, tmp_path / "field") == len(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (tmp_path / "field").read_bytes() == (tmp_path / "once").read_bytes()


def test_a_folder_that_cannot_go_yet_is_left_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any, **__: Any) -> None:  # as NFS is while a file that was removed is still open
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(field_blocks, "BLOCK_CHARS", 1)
    monkeypatch.setattr(os, "rmdir", busy)
    assert field_blocks.write_field(["a b", "b c"], tmp_path / "field") == 2
    monkeypatch.undo()
    write_arrays(tmp_path / "once", build_field(["a b", "b c"]))
    assert (tmp_path / "field").read_bytes() == (tmp_path / "once").read_bytes()
