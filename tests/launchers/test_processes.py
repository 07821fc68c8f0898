"""Worker processes of one machine: killed, stopped, out of disk; the rows are those of one undisturbed worker."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill.launchers.inline import InlineLauncher
from backfill.launchers.processes import descendants
from backfill.rundir import Plan, RunDir
from backfill.stages import work
from backfill.turns import is_alive
from backfill.worker_log import Event, read_events
from backfill.worker_states import workers_of
from tests import fake_encoder
from tests.launchers.runs import config, made, prepared

SLOW = {"delay_ms": 300.0, "window": 4}


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def undisturbed(folder: Path) -> dict[int, list[tuple[str, str, int]]]:
    run, plan = prepared(folder, config())
    work(run.path, "distill", plan.distill_shards(), worker="a", should_stop=lambda: False, on_done=lambda s, t: None)
    return made(run, plan)


def distilled(
    run: RunDir, plan: Plan, meanwhile: Callable[[], None] = lambda: None, **launcher: Any
) -> tuple[list[int], list[str]]:
    """Has two processes distill everything, while a thread does what a test wants; returns what came and was said."""
    done: list[int] = []
    said: list[str] = []
    inline = InlineLauncher(config(engine=SLOW, workers=2, **launcher), say=said.append)
    thread = threading.Thread(target=meanwhile)
    thread.start()
    shards = plan.distill_shards()
    inline.run(run.path, "distill", shards, should_stop=lambda: False, on_done=lambda shard, stats: done.append(shard))
    thread.join()
    return done, said


def first_take(run: RunDir, worker: str) -> Event:
    """Waits until a worker has a shard in hand."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for event in read_events(run.logs):
            if (event.worker, event.event, event.stage) == (worker, "take", "distill"):
                return event
        time.sleep(0.02)
    raise AssertionError(f"{worker} took nothing")


def test_two_processes_make_what_one_worker_makes(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config())
    done, said = distilled(run, plan)
    assert (sorted(done), said) == (plan.distill_shards(), [])
    assert made(run, plan) == undisturbed(tmp_path / "one")
    assert {row["id"] for row in workers_of(read_events(run.logs)) if row["stage"] == "distill"} == {
        "inline-0",
        "inline-1",
    }


@pytest.mark.slow
def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW))
    done, said = distilled(run, plan, lambda: os.kill(first_take(run, "inline-0").pid, signal.SIGKILL))
    assert (sorted(done), said) == (plan.distill_shards(), ["worker inline-0 died"])
    assert made(run, plan) == undisturbed(tmp_path / "one")


@pytest.mark.slow
def test_a_stopped_process_is_stuck_and_ended_and_its_shards_are_done(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW))
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(first_take(run, "inline-1").pid)
        os.kill(stopped[0], signal.SIGSTOP)

    done, said = distilled(run, plan, stop, stuck_after_s=3.0)
    assert sorted(done) == plan.distill_shards()
    assert "worker inline-1 is stuck" in said[0]
    assert not is_alive(stopped[0])
    assert made(run, plan) == undisturbed(tmp_path / "one")
    [row] = [row for row in workers_of(read_events(run.logs)) if row["id"] == "inline-1"]
    assert row["state"] == "stuck"
    assert row["given_away"]


@pytest.mark.slow
def test_a_process_whose_disk_is_full_is_left_out(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW))

    def fill() -> None:
        resource.prlimit(first_take(run, "inline-0").pid, resource.RLIMIT_FSIZE, (200, 200))

    done, said = distilled(run, plan, fill)
    assert sorted(done) == plan.distill_shards()
    assert "File too large; it gets no further shard" in said[0]
    assert made(run, plan) == undisturbed(tmp_path / "one")


def test_processes_below_one_are_found() -> None:
    ready = threading.Event()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 30 & wait"], {})
    try:
        deadline = time.monotonic() + 10
        while not (found := descendants(pid)) and time.monotonic() < deadline:
            ready.wait(0.05)
        assert len(found) == 1
    finally:
        for each in [*descendants(pid), pid]:
            os.kill(each, signal.SIGKILL)
        os.waitpid(pid, 0)
