"""Several workers at one stage: starts them, replaces those that die, and gives away what stuck ones hold.

The same loop drives processes of this machine (`processes`) and Ray actors (`ray`); a `Crew` only knows how a worker is
started, heard of and ended. Whether a worker is stuck is read from the run's event lines by this process's own clock.
Deliberately absent: what a worker does, and any promise that a dead one is dead; its late work is discarded where it
publishes.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from backfill.errors import BackfillError, Interrupted
from backfill.launchers.dispenser import News
from backfill.launchers.outcome import Outcome
from backfill.stages import OnDone, ShouldStop
from backfill.worker_log import LOOK_EVERY_S, LOOK_SHARE, EventTail, WorkerLog

POLL_S = 0.2
# A drain of the engine's answers takes up to 30 s (`distill.DRAIN_S`); then a shard is written.
STOP_GRACE_S = 60.0
# A shard that was in hand at more ends than this ends the run: it would kill every worker that takes it.
MAX_ENDS = 3


class Drive(Protocol):
    """What the loop sees of a dispenser; see `dispenser.Dispenser`."""

    def held(self, worker: str) -> list[int]: ...
    def release(self, worker: str) -> list[int]: ...
    def retire(self, worker: str) -> list[int]: ...
    def left(self) -> int: ...
    def news(self) -> list[News]: ...
    def stop(self) -> None: ...


class Crew(Protocol):
    """Where workers run."""

    @property
    def dispenser(self) -> Drive:
        """What hands out their shards."""
        ...

    def start(self, worker: str) -> None:
        """Begins a worker; one of that name that ended before begins again."""
        ...

    def ended(self, timeout_s: float) -> list[Outcome]:
        """Who ended since the last call; waits at most `timeout_s` for the first."""
        ...

    def kill(self, worker: str) -> None:
        """Ends a worker at once, whatever it does."""
        ...

    def close(self) -> None:
        """Ends all of them."""
        ...


class StuckWatch:
    """Which workers have given no sign for `after_s` while they hold a shard; 0 finds none.

    Signs are event lines: a shard taken or published, answers of the engine. They count when they are seen here, so
    that clocks of other hosts do not matter.
    """

    def __init__(self, logs: Path, after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._tail = EventTail(logs)
        self._tail.read()
        self._after_s = after_s
        self._clock = clock
        self._seen: dict[str, float] = {}

    def started(self, worker: str) -> None:
        """A worker begins now."""
        self._seen[worker] = self._clock()

    def silent(self, workers: Sequence[str]) -> list[tuple[str, float]]:
        """(worker, seconds of silence) of those that are stuck."""
        now = self._clock()
        for event in self._tail.read():
            self._seen[event.worker] = now
        if not self._after_s:
            return []
        silences = [(worker, now - self._seen.get(worker, now)) for worker in workers]
        return [(worker, silent_s) for worker, silent_s in silences if silent_s >= self._after_s]


class Foreman:
    """One stage of one crew; see `work_together`."""

    def __init__(
        self, crew: Crew, path: Path, stage: str, names: Sequence[str], watch: StuckWatch, say: Callable[[str], None]
    ) -> None:
        self._crew = crew
        self._stage = stage
        self._names = list(names)
        self._watch = watch
        self._say = say
        self._log = WorkerLog(path / "logs", f"run-{socket.gethostname()}-{os.getpid()}", stage)
        self._running: set[str] = set()
        self._idle: list[str] = []
        self._ends_of: Counter[int] = Counter()
        self._ends_in_a_row = 0
        self._replaced = 0
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self._stop_by: float | None = None

    def run(self, shards: Sequence[int], should_stop: ShouldStop, on_done: OnDone) -> None:
        """Until every shard is published. Raises Interrupted after a stop, BackfillError where it cannot go on."""
        left = set(shards)
        for name in self._names:
            self._start(name)
        while left:
            for outcome in self._crew.ended(POLL_S):
                self._note(outcome)
            for _, shard, stats in self._crew.dispenser.news():
                left.discard(shard)
                self._ends_in_a_row = 0
                on_done(shard, stats)
            if self._stop_by is not None and (not self._running or time.monotonic() > self._stop_by):
                raise Interrupted(f"stopped during {self._stage}", hint="the same command resumes")
            if self._stop_by is None and should_stop():
                self._crew.dispenser.stop()
                self._stop_by = time.monotonic() + STOP_GRACE_S
            if self._stop_by is None:
                self._give_away()
                self._put_to_work()
                if left and not self._running:
                    raise BackfillError(f"{len(left)} shards of {self._stage} are left and no worker is")

    def _start(self, name: str) -> None:
        self._crew.start(name)
        self._watch.started(name)
        self._running.add(name)

    def _note(self, outcome: Outcome) -> None:
        name = outcome.worker
        self._running.discard(name)
        if outcome.died:
            self._replace(name, self._crew.dispenser.release(name), f"worker {name} died")
        elif outcome.elsewhere:
            self._crew.dispenser.retire(name)
            self._say(f"worker {name}: {outcome.message}; it gets no further shard of {self._stage}")
            if not self._running and not self._idle:
                raise BackfillError(f"worker {name}: {outcome.message}", hint=outcome.hint, retryable=True)
        elif outcome.message:
            raise BackfillError(f"worker {name}: {outcome.message}", hint=outcome.hint)
        else:
            self._idle.append(name)

    def _give_away(self) -> None:
        began = time.monotonic()
        if began < self._look_at:
            return
        stuck = self._watch.silent(sorted(self._running))
        now = time.monotonic()
        self._look_at = now + max(LOOK_EVERY_S, (now - began) / LOOK_SHARE)
        for name, silent_s in stuck:
            if not self._crew.dispenser.held(name):
                continue
            shards = self._crew.dispenser.retire(name)
            self._log.gave_away(name, shards, silent_s)
            self._crew.kill(name)
            self._running.discard(name)
            listed = ", ".join(map(str, shards))
            why = f"worker {name} is stuck: nothing was committed for {silent_s / 60:,.1f} minutes"
            self._replaced += 1
            self._replace(f"{name.partition('+')[0]}+{self._replaced}", shards, f"{why}; shards {listed} go to others")

    def _replace(self, name: str, shards: list[int], why: str) -> None:
        """Begins a worker in the place of one that ended, where there is anything for it to do."""
        self._say(why)
        self._ends_of.update(shards)
        self._ends_in_a_row += 1
        worst = max(shards, key=lambda shard: self._ends_of[shard], default=None)
        if worst is not None and self._ends_of[worst] > MAX_ENDS:
            raise BackfillError(
                f"{why}; it was the {self._ends_of[worst]}th end with shard {worst} of {self._stage} in hand",
                hint="the logs of the run say what the workers met; memory of the host is the commonest cause",
            )
        if self._ends_in_a_row > MAX_ENDS * len(self._names):
            raise BackfillError(
                f"{why}; {self._ends_in_a_row} workers ended like this and no shard was published between",
                hint="the logs of the run say what they met",
            )
        if self._crew.dispenser.left() and not self._idle and self._stop_by is None:
            self._start(name)

    def _put_to_work(self) -> None:
        """Workers that had found nothing begin again once something came back."""
        while self._idle and self._crew.dispenser.left():
            self._start(self._idle.pop())


def work_together(
    crew: Crew,
    path: Path,
    stage: str,
    shards: Sequence[int],
    *,
    names: Sequence[str],
    stuck_after_s: float,
    should_stop: ShouldStop,
    on_done: OnDone,
    say: Callable[[str], None],
) -> None:
    """Has workers of the given names do all shards, and ends them; see `Launcher.run` for what it raises."""
    watch = StuckWatch(path / "logs", stuck_after_s)
    try:
        Foreman(crew, path, stage, names, watch, say).run(shards, should_stop, on_done)
    finally:
        crew.close()
