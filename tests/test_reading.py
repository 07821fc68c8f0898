"""Progress goes on within a large file, in this process and in those of a pool."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from backfill import progress
from backfill.config import Config, ScanConfig
from backfill.launchers import make_launcher
from backfill.pipeline import scan_sources
from backfill.progress import Reporter
from backfill.reading import MeteredFile, advance, metered
from backfill.rundir import RunDir
from tests.claude_lines import ClaudeFile


def test_what_is_read_goes_to_the_meter_while_it_runs() -> None:
    counts: list[int] = []
    file = MeteredFile(io.BytesIO(b"0123456789"))
    with metered(counts.append):
        assert file.read(4) == b"0123"
        assert file.read() == b"456789"
    advance(5)
    assert counts == [4, 6]


def sessions(folder: Path, n_files: int, n_exchanges: int) -> Path:
    folder.mkdir()
    for n in range(n_files):
        session = ClaudeFile()
        for i in range(n_exchanges):
            session.user(f"Why does export {i} of {n} fail?")
            session.agent(f"Lock {i} was held by the migration. " * 100)
        (folder / f"{n}.jsonl").write_bytes(session.data())
    return folder


@pytest.mark.parametrize(("workers", "n_files"), [(1, 1), (2, 2)])
def test_progress_is_shown_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, n_files: int
) -> None:
    source = sessions(tmp_path / "source", n_files, 400 if workers == 1 else 20)
    size_mb = round(sum(path.stat().st_size for path in source.iterdir()) / 1e6, 1)
    reached: list[float] = []
    monkeypatch.setattr(progress.StageView, "reach", lambda view, done: reached.append(done))
    config = replace(Config(), sources=(str(source),), scan=ScanConfig(workers=workers, shard_bytes=1))
    scan_sources(RunDir(tmp_path / "run"), config, make_launcher(config), Reporter(quiet=True), lambda: False)
    assert reached == sorted(reached)
    assert reached[-1] == size_mb
    if workers == 1:
        assert len(set(reached)) > 3  # one file, one shard
