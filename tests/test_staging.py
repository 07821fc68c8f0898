"""Files made on a node-local disk and copied: the same bytes, nothing left behind, renames of manifests alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill import manifest as m
from backfill.config import Config, EngineConfig
from backfill.errors import UsageError
from backfill.pipeline import run_all
from backfill.progress import Reporter
from backfill.staging import copy_into_place
from tests import fake_encoder
from tests.test_merge import canonical_files

PRINT = "0123456789abcdef0123456789abcdef"
TALK = (
    '{"role": "user", "content": "why does the nightly export fail since the upgrade to Postgres 16.2?"}\n'
    '{"role": "assistant", "content": "The role export lost CONNECT on the database; I granted it again."}\n'
)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("BACKFILL_SCRATCH", str(folder))
    return folder


def test_a_shard_is_made_in_the_staging_folder_and_copied(tmp_path: Path, scratch: Path) -> None:
    run, places = tmp_path / "run", []
    run.mkdir()

    def write(path: Path) -> int:
        places.append(path.parent)
        path.write_text("rows")
        return 1

    made = m.publish(run, "scan", 3, PRINT, {("exchanges", ".parquet"): write})
    assert places == [scratch]
    assert m.check(run, made) == []
    assert list(scratch.iterdir()) == []


def test_a_failed_writer_leaves_nothing_in_either_place(tmp_path: Path, scratch: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()

    def write(path: Path) -> int:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        m.publish(run, "scan", 0, PRINT, {("exchanges", ".parquet"): write})
    assert [*run.iterdir(), *scratch.iterdir()] == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKFILL_SCRATCH", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone, which is no folder"):
        m.publish(tmp_path, "scan", 0, PRINT, {("exchanges", ".parquet"): lambda path: 0})


def test_a_copy_over_what_stands_there_never_shows_less(tmp_path: Path) -> None:
    source, target = tmp_path / "new", tmp_path / "old"
    source.write_bytes(b"abc" * 1000)
    target.write_bytes(b"abc" * 1000 + b"torn tail of another attempt")
    with target.open("rb") as reader:
        copy_into_place(source, target)
        assert reader.read() == source.read_bytes()


def test_a_run_gives_the_same_bytes_and_renames_manifests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None
) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "talk.jsonl").write_text(TALK)
    config = Config(sources=(str(tmp_path / "source"),), engine=EngineConfig(kind="extractive"))
    renamed: list[Path] = []
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda a, b: (renamed.append(Path(b)), real(a, b))[1])

    def go(out: Path) -> dict[str, bytes]:
        renamed.clear()
        run_all(config, out, out.parent, Reporter(quiet=True), lambda: False, ungated=False)
        return canonical_files(out / "bundle")

    beside = go(tmp_path / "beside")
    assert any(path.suffix == ".f16" for path in renamed)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("BACKFILL_SCRATCH", str(tmp_path / "scratch"))
    assert go(tmp_path / "staged") == beside
    inside = {path.name for path in renamed if "bundle" in path.parts}
    assert inside == {"manifest.json", "manifest.sha256"}
    assert list((tmp_path / "scratch").iterdir()) == []
