"""What people see: workers by state on a terminal, quiet lines elsewhere, nothing when quiet."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from backfill import progress
from backfill.progress import Reporter, Stage
from backfill.worker_log import WorkerLog


def reporter(*, terminal: bool, quiet: bool = False) -> tuple[Reporter, io.StringIO]:
    made, out = Reporter(quiet=quiet), io.StringIO()
    made.console = Console(file=out, force_terminal=terminal, width=160, highlight=False)
    return made, out


def wait_for(out: io.StringIO, pattern: str) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if re.search(pattern, out.getvalue(), re.DOTALL):
            return out.getvalue()
        time.sleep(0.05)
    raise AssertionError(f"{pattern!r} never came: {out.getvalue()!r}")


def test_lines_come_while_no_shard_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.1)
    shown, out = reporter(terminal=False)
    list(WorkerLog(tmp_path, "of-yesterday", "distill").taken([1]))
    with shown.stage("distill", "items", 10, logs=tmp_path, stuck_after_s=0.2) as view:
        a, b = WorkerLog(tmp_path, "a", "distill"), WorkerLog(tmp_path, "b", "distill")
        take = iter(a.taken([1, 2]))
        next(take)
        list(b.taken([3]))
        b.noting(lambda shard, stats: None)(3, {"n": 4})
        view.advance(4, "12 tokens/s")
        text = wait_for(out, r"1 stuck, 1 idle \(a for \d+ s\)")
    assert "distill: 4/10 items" in text
    assert "12 tokens/s" in text
    assert "of-yesterday" not in text
    assert "\x1b" not in text
    assert out.getvalue().endswith("12 tokens/s\n")


def test_a_terminal_shows_each_worker(tmp_path: Path) -> None:
    shown, out = reporter(terminal=True)
    with shown.stage("distill", "items", 10, logs=tmp_path, stuck_after_s=60) as view:
        log = WorkerLog(tmp_path, "a", "distill")
        taken = iter(log.taken([7, 8]))
        next(taken)
        view.advance(4, "12 tokens/s")
        text = wait_for(out, "a on .*: working distill shard 7")
    assert "4/10" in text
    assert "items/s, 5 min" in text


def test_quiet_shows_nothing(tmp_path: Path) -> None:
    shown, out = reporter(terminal=False, quiet=True)
    with shown.stage("distill", "items", 10, logs=tmp_path) as view:
        view.advance(10)
    assert out.getvalue() == ""


def test_lines_get_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown, out = reporter(terminal=False)
    with shown.stage("distill", "items", 7200) as view:
        for now[0] in map(float, range(1, 3600)):
            view.advance(1)
    assert 25 <= out.getvalue().count("\n") <= 30 + 56


def test_the_rate_of_five_minutes_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stage = Stage("distill", "items", 2000)
    now[0] = 100
    stage.advance(300)
    assert stage.recent_rate == stage.rate == 3
    now[0] = 600
    stage.advance(30)
    assert stage.recent_rate == pytest.approx(0.1)
    assert stage.rate == pytest.approx(0.55)
    assert "0.6/s (5 min 0.1/s)" in stage.line() or "0.5/s (5 min 0.1/s)" in stage.line()
