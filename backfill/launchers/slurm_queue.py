"""A run's jobs in Slurm's queue, for whoever looks on: asked seldom, whatever the number of looks.

A controller serves a whole cluster, so one follower asks it at most every `ASK_EVERY_S`. Deliberately absent: any wish
that the queue be right about what is done, which manifests decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from backfill.launchers import sbatch
from backfill.launchers.slurm import last_rounds
from backfill.rundir import RunDir

ASK_EVERY_S = 15.0


class SlurmQueue:
    """What squeue says of a run's jobs. While a merge job submits the next round it stands in the round before, so the
    jobs of the last two count."""

    def __init__(self, run: RunDir, *, now: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._now = now
        self._ask_at = 0.0
        self._without = 0
        self._jobs: list[sbatch.QueuedJob] = []
        self._error = ""

    def record(self) -> dict[str, Any]:
        """`jobs` as they were at the last asking, the `round` and how many may follow, `queue_error` where the
        controller did not answer. Raises UsageError where there is no Slurm, ShardError for a damaged record."""
        rounds = last_rounds(self._run, 2)
        if self._now() >= self._ask_at:
            self._ask([number for made in rounds for number in made.jobs.values()])
            self._ask_at = self._now() + ASK_EVERY_S
        told = {"round": rounds[0].number, "rounds_left": rounds[0].left} if rounds else {}
        failed = {"queue_error": self._error} if self._error else {}
        return {"jobs": [asdict(job) for job in self._jobs], **told, **failed}

    @property
    def is_empty(self) -> bool:
        """Whether no job was there at two askings in a row: a round may end in the moment before the next is known."""
        return self._without >= 2

    def _ask(self, numbers: list[str]) -> None:
        try:
            self._jobs = sbatch.queued(numbers)
        except sbatch.SlurmError as error:
            self._error = str(error)
            return
        self._error = ""
        self._without = 0 if self._jobs else self._without + 1
