"""What goes wrong on real machines: folders that cannot be read, disks that are full, impatience."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from backfill.config import to_tree
from backfill.errors import DiskFull, UsageError
from backfill.report import report_of
from backfill.rundir import RunDir
from backfill.scan import list_units
from backfill.turns import is_alive
from backfill.worker_log import read_events
from tests import fake_encoder
from tests.conftest import ROOT
from tests.launchers.runs import SAMPLES, config, made, prepared
from tests.test_merge import canonical_files
from tests.test_pipeline import go


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the samples with a folder that cannot be opened, whoever runs the tests."""
    source = tmp_path / "src"
    shutil.copytree(SAMPLES, source)
    folder = source / "locked"
    folder.mkdir()
    (folder / "a.jsonl").write_text("{}\n")
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(os.fspath(path)) == folder:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return source


def test_a_folder_that_cannot_be_read_is_named_and_the_rest_is_read(
    locked: Path, tmp_path: Path, encoder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    record = go(replace(config(), sources=(str(locked),)), tmp_path / "run")
    text = f"{locked}/locked: Permission denied"
    assert record["scan"]["exchanges"] == 38
    assert record["scan"]["warnings"] == [text]
    assert f"warning: {text}" in capsys.readouterr().err
    assert f"Not read: {text}" in report_of(tmp_path / "run")["warnings"]


def test_a_source_below_a_folder_that_cannot_be_entered_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(UsageError, match="/home/other/transcripts cannot be looked at: Permission denied"):
        list_units(["/home/other/transcripts"])


def test_a_full_disk_is_said_and_the_same_command_goes_on(tmp_path: Path, encoder: None) -> None:
    settings = config()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    go(settings, tmp_path / "undisturbed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, before[1]))
    try:
        with pytest.raises(DiskFull, match=r"cannot write to .*: File too large") as full:
            go(settings, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "the same command goes on" in full.value.hint
    go(settings, tmp_path / "run")
    assert canonical_files(tmp_path / "run" / "bundle") == canonical_files(tmp_path / "undisturbed" / "bundle")


def impatient(tmp_path: Path, workers: int) -> tuple[int, RunDir, list[int]]:
    """Interrupts a run twice; returns its exit code, its folder and the processes that had worked."""
    settings = config(engine={"delay_ms": 20_000.0, "window": 4}, workers=workers)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_tree(settings)))
    run = RunDir(tmp_path / "run")
    command = [sys.executable, "-m", "backfill.cli", "run", str(path), "--out", str(run.path)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        takes = {e.worker: e for e in read_events(run.logs) if (e.event, e.stage) == ("take", "distill")}
        if len(takes) == workers:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any("again to stop at once" in line for line in process.stderr)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - asked < 15, "a drain would take 20 s"
    return process.returncode, run, [event.pid for event in takes.values()]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_interrupt_ends_at_once_and_nothing_stays_behind(tmp_path: Path, encoder: None, workers: int) -> None:
    code, run, pids = impatient(tmp_path, workers)
    assert code == 75
    assert not any(is_alive(pid) for pid in pids)
    assert not list(run.logs.glob("present-*"))
    go(config(), run.path)
    plain, plan = prepared(tmp_path / "plain", config())
    go(config(), plain.path)
    assert made(run, run.plan()) == made(plain, plan)
