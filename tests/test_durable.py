from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from backfill import durable


def test_publish_lets_the_first_writer_win(tmp_path: Path) -> None:
    target = tmp_path / "shard.json"
    assert durable.publish_file(target, b"first")
    assert not durable.publish_file(target, b"second")
    assert target.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["shard.json"]


def test_replace_leaves_one_file_with_the_new_content(tmp_path: Path) -> None:
    target = tmp_path / "manifest.json"
    durable.replace_file(target, b"one")
    durable.replace_file(target, b"two")
    assert target.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_publish_cleans_up_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", no_space)
    with pytest.raises(OSError, match="No space"):
        durable.publish_file(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_sha256_of_a_file_in_chunks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "x").write_bytes(data)
    assert durable.sha256_file(tmp_path / "x") == hashlib.sha256(data).hexdigest()


def test_make_dirs_makes_parents(tmp_path: Path) -> None:
    durable.make_dirs(tmp_path / "a" / "b")
    durable.make_dirs(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
