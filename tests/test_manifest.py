from __future__ import annotations

from pathlib import Path

import pytest

from backfill import manifest as m
from backfill.errors import ShardError

PRINT = "0123456789abcdef0123456789abcdef"


def _publish(folder: Path, text: str, shard: int = 3) -> m.ShardManifest:
    def write(path: Path) -> int:
        path.write_text(text)
        return 1

    return m.publish(folder, "scan", shard, PRINT, {("exchanges", ".parquet"): write}, stats={"n": 1})


def test_a_shard_is_done_when_its_manifest_is_there(tmp_path: Path) -> None:
    assert m.read_manifest(tmp_path, 3, PRINT) is None
    made = _publish(tmp_path, "rows")
    assert m.read_manifest(tmp_path, 3, PRINT) == made
    assert m.check(tmp_path, made) == []
    assert (tmp_path / made.file("exchanges").name).read_text() == "rows"


def test_a_second_writer_discards_its_work(tmp_path: Path) -> None:
    first = _publish(tmp_path, "first")
    assert _publish(tmp_path, "second, later and longer") == first
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["shard-00003.01234567.json", first.files[0].name])


def test_a_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    def write(path: Path) -> int:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        m.publish(tmp_path, "scan", 0, PRINT, {("exchanges", ".parquet"): write})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda p: p.unlink(), "missing"),
        (lambda p: p.write_text("row"), "is 3 bytes, 4 were written"),
        (lambda p: p.write_text("rowz"), "SHA-256 differs from the manifest"),
    ],
)
def test_check_names_every_kind_of_damage(tmp_path: Path, damage: object, problem: str) -> None:
    made = _publish(tmp_path, "rows")
    damage(tmp_path / made.files[0].name)  # type: ignore[operator]
    assert m.check(tmp_path, made) == [(made.files[0].name, problem)]


def test_another_configuration_is_another_shard(tmp_path: Path) -> None:
    _publish(tmp_path, "rows")
    assert m.read_manifest(tmp_path, 3, "f" * 32) is None


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    m.manifest_path(tmp_path, 0, PRINT).write_text("{")
    with pytest.raises(ShardError, match="not a shard manifest"):
        m.read_manifest(tmp_path, 0, PRINT)


def test_a_prefix_collision_of_fingerprints_is_refused(tmp_path: Path) -> None:
    _publish(tmp_path, "rows")
    with pytest.raises(ShardError, match="another shard"):
        m.read_manifest(tmp_path, 3, PRINT[:8] + "f" * 24)
