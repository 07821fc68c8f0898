"""Cold storage: restored to the byte, only new bytes stored, private, crash-safe, read like its sources."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from zstandard import ZstdDecompressor

from backfill import archive, cold
from backfill.archive import Summary, archive_sources, storage_rows
from backfill.cli import main
from backfill.cold import is_cold, open_sources, restore
from backfill.config import Config, EngineConfig
from backfill.errors import ShardError, UsageError
from backfill.pipeline import run_all
from backfill.progress import Reporter
from backfill.rundir import RunDir
from backfill.scan import list_units, plan_scan, scan_shard, scan_summary
from backfill.transport import export_bundle
from tests import fake_encoder
from tests.claude_lines import ClaudeFile

pytestmark = pytest.mark.usefixtures("no_fsync")


def transcript(prompt: str) -> bytes:
    f = ClaudeFile()
    f.user(prompt)
    f.agent("In db.py.")
    return f.data()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "p").mkdir(parents=True)
    (folder / "p" / "one.jsonl").write_bytes(transcript("Where is the lock?"))
    (folder / "p" / "copy.jsonl").write_bytes(transcript("Where is the lock?"))
    (folder / "noise.bin").write_bytes(os.urandom(5000))
    (folder / "empty").write_bytes(b"")
    return folder


def store(source: Path, to: Path) -> Summary:
    return archive_sources([str(source)], to)


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def blobs(to: Path) -> set[str]:
    return {p.name for p in (to / "blobs").rglob("*") if p.is_file()}


def scanned(run: Path, *sources: Path) -> dict[str, object]:
    config = Config()
    folder = RunDir(run)
    folder.make()
    plan = plan_scan(folder, config, [str(s) for s in sources])
    for shard in range(len(plan.scan_shards)):
        scan_shard(folder, plan, shard, lambda: False)
    return scan_summary(folder, plan, 0.0)


def test_everything_comes_back_to_the_byte_with_its_time(tmp_path: Path, source: Path) -> None:
    os.utime(source / "noise.bin", ns=(1, 1_600_000_000_123_456_789))
    summary = store(source, tmp_path / "cold")
    assert (summary.files, summary.added, summary.unchanged, summary.problems) == (4, 4, 0, [])
    assert restore(tmp_path / "cold", tmp_path / "back") == 4
    (folder,) = (tmp_path / "back").iterdir()
    assert tree(folder) == tree(source)
    assert (folder / "noise.bin").stat().st_mtime_ns == 1_600_000_000_123_456_789
    with pytest.raises(UsageError, match="not empty"):
        restore(tmp_path / "cold", tmp_path / "back")


def test_equal_files_are_stored_once_and_a_second_run_stores_nothing(tmp_path: Path, source: Path) -> None:
    first = store(source, tmp_path / "cold")
    assert first.new_bytes == 5000 + len(transcript("Where is the lock?"))
    before = tree(tmp_path / "cold")
    second = store(source, tmp_path / "cold")
    assert (second.unchanged, second.read_bytes, second.new_bytes) == (4, 0, 0)
    assert tree(tmp_path / "cold") == before


def test_of_a_file_that_grew_only_the_tail_is_stored(tmp_path: Path, source: Path) -> None:
    store(source, tmp_path / "cold")
    path = source / "p" / "one.jsonl"
    more = transcript("And the key?")
    with path.open("ab") as file:
        file.write(more)
    summary = store(source, tmp_path / "cold")
    assert (summary.grown, summary.rewritten, summary.new_bytes) == (1, 0, len(more))
    restore(tmp_path / "cold", tmp_path / "back")
    assert tree(next((tmp_path / "back").iterdir())) == tree(source)


def test_large_files_are_cut_into_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "CHUNK_BYTES", 1000)
    (tmp_path / "src").mkdir()
    data = os.urandom(2500)
    (tmp_path / "src" / "x").write_bytes(data)
    store(tmp_path / "src", tmp_path / "cold")
    (tmp_path / "src" / "x").write_bytes(data + b"tail")
    assert store(tmp_path / "src", tmp_path / "cold").new_bytes == 4
    ((file,),) = (s.newest() for s in open_sources(tmp_path / "cold"))
    assert [c.size_bytes for c in file.chunks] == [1000, 1000, 500, 4]
    restore(tmp_path / "cold", tmp_path / "back")
    assert tree(next((tmp_path / "back").iterdir())) == {"x": data + b"tail"}


def test_what_vanished_or_was_rewritten_at_the_source_stays(tmp_path: Path, source: Path) -> None:
    old = (source / "p" / "one.jsonl").read_bytes()
    store(source, tmp_path / "cold")
    (source / "p" / "copy.jsonl").unlink()
    (source / "p" / "one.jsonl").write_bytes(b"short")
    assert store(source, tmp_path / "cold").rewritten == 1
    restore(tmp_path / "cold", tmp_path / "back", all_versions=True)
    found = tree(next((tmp_path / "back").iterdir()))
    assert (found["p/copy.jsonl"], found["p/one.jsonl"], found["p/one.jsonl~1"]) == (old, b"short", old)


def test_only_the_owner_can_read_it(tmp_path: Path, source: Path) -> None:
    old = os.umask(0)
    try:
        store(source, tmp_path / "cold")
    finally:
        os.umask(old)
    for path in (tmp_path / "cold", *(tmp_path / "cold").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_crash_before_the_generation_leaves_blobs_that_the_next_run_finds(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "cold"
    real = archive._publish

    def crash(path: Path, data: bytes) -> bool:
        if path.suffix == ".json" and path.name != cold.MARKER:
            raise KeyboardInterrupt
        return real(path, data)

    monkeypatch.setattr(archive, "_publish", crash)
    with pytest.raises(KeyboardInterrupt):
        store(source, to)
    left = blobs(to)
    assert len(left) == 2
    assert open_sources(to) == []
    monkeypatch.setattr(archive, "_publish", real)
    summary = store(source, to)
    assert (summary.added, summary.new_bytes) == (4, 0)
    assert blobs(to) == left
    restore(to, tmp_path / "back")
    assert tree(next((tmp_path / "back").iterdir())) == tree(source)


def test_a_run_that_was_overtaken_comes_after_the_other(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "cold"
    real = archive._publish
    raced = []

    def overtaken(path: Path, data: bytes) -> bool:
        if path.parent.parent.name == cold.SOURCES and not raced:
            raced.append(path)
            store(source, to)
        return real(path, data)

    monkeypatch.setattr(archive, "_publish", overtaken)
    store(source, to)
    (found,) = open_sources(to)
    assert found.last_number == 2
    restore(to, tmp_path / "back")
    assert tree(next((tmp_path / "back").iterdir())) == tree(source)


@pytest.mark.parametrize("harm", ["missing", "swapped", "truncated"])
def test_a_damaged_blob_is_found(tmp_path: Path, source: Path, harm: str) -> None:
    to = tmp_path / "cold"
    store(source, to)
    one, other = sorted(p for p in (to / "blobs").rglob("*") if p.is_file())
    if harm == "missing":
        one.unlink()
    else:
        one.write_bytes(other.read_bytes() if harm == "swapped" else one.read_bytes()[:-9])
    with pytest.raises(ShardError):
        restore(to, tmp_path / "back")
    record = scanned(tmp_path / "run", to)
    assert record["balanced"]
    assert record["states"].get("quarantined") == 0  # type: ignore[attr-defined]
    assert any("quarantined:damaged" in counts for counts in record["formats"].values())  # type: ignore[attr-defined]


def test_a_missing_generation_and_a_hostile_path_are_refused(tmp_path: Path, source: Path) -> None:
    to = tmp_path / "cold"
    store(source, to)
    (source / "late").write_bytes(b"late")
    store(source, to)
    first, second = sorted((to / "sources").rglob("*.json"))
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(ShardError, match="does not follow"):
        open_sources(to)
    second.unlink()
    tree_of = json.loads(kept)
    tree_of["files"][0]["path"] = "../../up"
    first.write_bytes(json.dumps(tree_of).encode())
    with pytest.raises(ShardError, match="leads out"):
        restore(to, tmp_path / "back")
    assert not (tmp_path / "up").exists()


def test_a_scan_of_it_reads_what_a_scan_of_the_sources_reads(tmp_path: Path, source: Path) -> None:
    store(source, tmp_path / "cold")
    wanted = scanned(tmp_path / "run1", source)
    found = scanned(tmp_path / "run2", tmp_path / "cold")
    assert wanted["exchanges"] == 1
    for run in (wanted, found):
        run.pop("seconds")
    assert found == wanted
    listed = list_units([str(tmp_path / "cold")])
    assert [u.source for u in listed.units] == [u.source for u in list_units([str(source)]).units]


def test_a_scan_reads_rewritten_versions_too(tmp_path: Path, source: Path) -> None:
    store(source, tmp_path / "cold")
    (source / "p" / "copy.jsonl").unlink()
    (source / "p" / "one.jsonl").write_bytes(transcript("Something else?"))
    store(source, tmp_path / "cold")
    assert scanned(tmp_path / "run1", source)["exchanges"] == 1
    assert scanned(tmp_path / "run2", tmp_path / "cold")["exchanges"] == 2


def test_a_storage_inside_a_source_is_not_read_as_one(tmp_path: Path, source: Path) -> None:
    to = source / "cold"
    store(source, to)
    assert not [u for u in list_units([str(source)]).units if u.source.startswith("cold/")]
    assert store(source, to).unchanged == 4


def test_names_that_are_not_utf8(tmp_path: Path, source: Path) -> None:
    name = os.fsencode(source) + b"/bad\xff.jsonl"
    try:
        Path(os.fsdecode(name)).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    store(source, tmp_path / "cold")
    restore(tmp_path / "cold", tmp_path / "back")
    (folder,) = (tmp_path / "back").iterdir()
    assert b"bad\xff.jsonl" in {os.fsencode(p.name) for p in folder.iterdir()}


def test_places_that_are_taken_are_refused(tmp_path: Path, source: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        store(source, source)
    with pytest.raises(UsageError, match="does not exist"):
        store(tmp_path / "nowhere", tmp_path / "cold")
    store(source, tmp_path / "cold")
    with pytest.raises(UsageError, match="itself"):
        store(tmp_path / "cold", tmp_path / "other")
    assert not is_cold(source)


def test_the_command(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to, back = str(tmp_path / "cold"), str(tmp_path / "back")
    assert main(["archive", str(source), "--to", to, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 4
    assert main(["archive", "--list", to, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["sources"]
    assert (row["files"], row["versions"], row["generations"], row["root"]) == (4, 4, 1, str(source))
    assert storage_rows(Path(to))[0]["bytes"] == row["bytes"]
    assert main(["archive", "--restore", to, "--to", back]) == 0
    assert "4 files restored" in capsys.readouterr().out
    for wrong in (["archive"], ["archive", str(source)], ["archive", "--list", to, "--to", back]):
        assert main(wrong) == 2


def test_nothing_raw_of_it_is_in_what_is_exported(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    to = tmp_path / "cold"
    store(source, to)
    config = Config(sources=(str(to),), engine=EngineConfig(kind="extractive"))
    run = tmp_path / "run"
    run_all(config, run, tmp_path, Reporter(quiet=True), lambda: False, ungated=False)
    export_bundle(run / "bundle", tmp_path / "bundle.tar.zst")
    with (tmp_path / "bundle.tar.zst").open("rb") as packed, ZstdDecompressor().stream_reader(packed) as stream:
        unpacked = stream.read()
    assert b"manifest.json" in unpacked
    for raw in (b"parentUuid", b"blobs/", str(to).encode(), *(name.encode() for name in blobs(to))):
        assert raw not in unpacked
