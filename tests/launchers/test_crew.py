"""The loop over several workers, with workers of clay: deaths, disks that are full, silence, stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backfill.errors import BackfillError, Interrupted
from backfill.launchers import crew as crews
from backfill.launchers.crew import Foreman, StuckWatch
from backfill.launchers.dispenser import Dispenser
from backfill.launchers.outcome import Outcome
from backfill.worker_log import WorkerLog, read_events

Script = Callable[["Clay", str], Outcome | None]


class Clay:
    """A crew whose workers do what a script says, one step a poll; None goes on."""

    def __init__(self, shards: list[int], script: Script) -> None:
        self.dispenser = Dispenser(shards)
        self.running: list[str] = []
        self.started: list[str] = []
        self.killed: list[str] = []
        self._script = script

    def start(self, worker: str) -> None:
        self.started.append(worker)
        self.running.append(worker)

    def ended(self, timeout_s: float) -> list[Outcome]:
        outcomes = [outcome for name in list(self.running) if (outcome := self._script(self, name)) is not None]
        for outcome in outcomes:
            self.running.remove(outcome.worker)
        return outcomes

    def kill(self, worker: str) -> None:
        self.killed.append(worker)
        self.running.remove(worker)

    def close(self) -> None:
        self.running.clear()


def works(clay: Clay, name: str) -> Outcome | None:
    """One shard a poll."""
    shard = clay.dispenser.take(name)
    if shard is None:
        return Outcome(name)
    clay.dispenser.finish(name, shard, {"n": 1})
    return None


def together(
    tmp_path: Path, clay: Clay, shards: list[int], *, after_s: float = 0.0, stop: Callable[[], bool] = lambda: False
) -> tuple[list[int], list[str]]:
    (tmp_path / "logs").mkdir(exist_ok=True)
    done: list[int] = []
    said: list[str] = []
    ticks = iter(range(10_000))
    watch = StuckWatch(tmp_path / "logs", after_s, clock=lambda: float(next(ticks)))
    foreman = Foreman(clay, tmp_path, "distill", ["w-0", "w-1"], watch, said.append)
    foreman.run(shards, stop, lambda shard, stats: done.append(shard))
    return done, said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(crews, "LOOK_SHARE", 1e9)


def test_every_shard_is_done_once(tmp_path: Path) -> None:
    done, said = together(tmp_path, Clay([3, 1, 2], works), [3, 1, 2])
    assert (sorted(done), said) == ([1, 2, 3], [])


def test_a_dead_worker_is_replaced_and_its_shard_done_by_another(tmp_path: Path) -> None:
    deaths = iter([True])

    def script(clay: Clay, name: str) -> Outcome | None:
        if name == "w-0" and next(deaths, False):
            assert clay.dispenser.take(name) == 1
            return Outcome(name, died=True)
        return works(clay, name)

    clay = Clay([1, 2, 3], script)
    done, said = together(tmp_path, clay, [1, 2, 3])
    assert sorted(done) == [1, 2, 3]
    assert clay.started == ["w-0", "w-1", "w-0"]
    assert said == ["worker w-0 died"]


def test_a_shard_that_kills_every_worker_ends_the_run(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome | None:
        shard = clay.dispenser.take(name)
        if shard == 7:
            return Outcome(name, died=True)
        if shard is None:
            return Outcome(name)
        clay.dispenser.finish(name, shard, {})
        return None

    with pytest.raises(BackfillError, match="4th end with shard 7"):
        together(tmp_path, Clay([7, *range(20, 60)], script), [7, *range(20, 60)])


def test_workers_that_die_before_they_take_anything_end_the_run(tmp_path: Path) -> None:
    clay = Clay([1], lambda clay, name: Outcome(name, died=True))
    with pytest.raises(BackfillError, match="no shard was published between"):
        together(tmp_path, clay, [1])
    assert len(clay.started) <= 2 + crews.MAX_ENDS * 2


def test_a_node_with_a_full_disk_is_left_out(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome | None:
        if name == "w-0":
            clay.dispenser.take(name)
            return Outcome(name, "cannot write to /scratch: No space left on device", elsewhere=True)
        return works(clay, name)

    clay = Clay([1, 2, 3], script)
    done, said = together(tmp_path, clay, [1, 2, 3])
    assert sorted(done) == [1, 2, 3]
    assert clay.started == ["w-0", "w-1"]
    assert "No space left on device; it gets no further shard" in said[0]


def test_disks_that_are_full_everywhere_end_the_run(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome:
        clay.dispenser.take(name)
        return Outcome(name, "cannot write", "free space", elsewhere=True)

    with pytest.raises(BackfillError, match="cannot write") as failed:
        together(tmp_path, Clay([1, 2, 3], script), [1, 2, 3])
    assert failed.value.hint == "free space"


def test_an_error_of_a_worker_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(BackfillError, match="worker w-0: no such model"):
        together(tmp_path, Clay([1], lambda clay, name: Outcome(name, "no such model", "fetch it")), [1])


def test_a_stuck_worker_is_named_and_its_shards_go_to_another(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome | None:
        if name == "w-0":
            clay.dispenser.take(name)  # and no sign ever after
            return None
        return works(clay, name)

    clay = Clay([1, 2, 3], script)
    done, said = together(tmp_path, clay, [1, 2, 3], after_s=30.0)
    assert sorted(done) == [1, 2, 3]
    assert clay.killed == ["w-0"]
    assert "worker w-0 is stuck" in said[0]
    [event, *_] = read_events(tmp_path / "logs")
    assert (event.event, event.about, event.stage) == ("stuck", "w-0", "distill")
    assert event.stats["silent_s"] >= 30


def test_a_worker_that_gives_signs_is_not_stuck(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "logs", "w-0", "distill")
    polls = iter(range(1000))

    def script(clay: Clay, name: str) -> Outcome | None:
        if name == "w-1":
            return works(clay, name)
        if not clay.dispenser.held(name):
            assert clay.dispenser.take(name) == 1
        log._write("answers", stats={"n": 3})
        if next(polls) < 100:
            return None
        clay.dispenser.finish(name, 1, {})
        return Outcome(name)

    clay = Clay([1, 2], script)
    done, said = together(tmp_path, clay, [1, 2], after_s=30.0)
    assert (sorted(done), said, clay.killed) == ([1, 2], [], [])


def test_a_shard_that_every_worker_gets_stuck_on_ends_the_run(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome | None:
        clay.dispenser.take(name)
        return None

    with pytest.raises(BackfillError, match="with shard 1 of distill in hand"):
        together(tmp_path, Clay([1], script), [1], after_s=5.0)


def test_a_stop_waits_for_what_is_in_hand(tmp_path: Path) -> None:
    steps = iter(range(10_000))

    def script(clay: Clay, name: str) -> Outcome | None:
        return Outcome(name) if clay.dispenser.stopped() else works(clay, name)

    clay = Clay(list(range(50)), script)
    done: list[int] = []
    (tmp_path / "logs").mkdir()
    foreman = Foreman(clay, tmp_path, "distill", ["w-0"], StuckWatch(tmp_path / "logs", 0), lambda text: None)
    with pytest.raises(Interrupted):
        foreman.run(list(range(50)), lambda: next(steps) > 3, lambda shard, stats: done.append(shard))
    assert 0 < len(done) < 50


def test_nobody_is_replaced_after_a_stop(tmp_path: Path) -> None:
    def script(clay: Clay, name: str) -> Outcome | None:
        if clay.dispenser.stopped():
            return Outcome(name, died=True)
        clay.dispenser.take(name)
        return None

    clay = Clay([1, 2, 3], script)
    with pytest.raises(Interrupted):
        together(tmp_path, clay, [1, 2, 3], stop=lambda: True)
    assert clay.started == ["w-0", "w-1"]


def test_a_worker_that_hangs_does_not_hold_up_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "STOP_GRACE_S", 0.0)

    def script(clay: Clay, name: str) -> Outcome | None:
        clay.dispenser.take(name)
        return None

    with pytest.raises(Interrupted):
        together(tmp_path, Clay([1], script), [1], stop=lambda: True)
