"""Shards of stuck workers, found from a run's files alone: for workers that nobody stands over, as in job arrays.

A worker that is through with its own shards looks whether another one is silent. Of several that look at once each may
take the same shard; the first to publish it wins. Deliberately absent: claims that would have to be broken, and any
wait for work that another worker has not begun.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backfill.rundir import Plan, RunDir
from backfill.stages import ShouldStop
from backfill.turns import is_alive
from backfill.worker_log import EventTail, WorkerLog
from backfill.worker_states import Workers

LOOK_EVERY_S = 2.0
STAGES = ("distill", "embed")
_RANK = re.compile(r"w(\d+)of(\d+)")


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Shards of a stage that a stuck worker left."""

    stage: str
    owner: str
    silent_s: float
    shards: list[int]


def abandoned_shards(run: RunDir, plan: Plan, me: str, should_stop: ShouldStop) -> Iterator[Abandoned]:
    """Yields what stuck workers left, each time to be done before the next is asked for.

    As long as every shard that is missing is in the hands of a worker that may live, it is waited for; a shard that
    nobody has begun belongs to a worker that is still to come. Ends where there is nothing to wait for.
    """
    stuck_after_s = plan.bound_config().launcher.stuck_after_s
    tail, workers = EventTail(run.logs), Workers(stuck_after_s)
    while stuck_after_s and not should_stop():
        workers.add(tail.read())
        others = [row for row in workers.rows() if row["id"] != me and not _is_dead(row)]
        missing = {stage: run.missing(plan, stage) for stage in STAGES}
        # A shard that is not distilled cannot be embedded yet; its embedding is nobody's to wait for.
        missing["embed"] = [shard for shard in missing["embed"] if shard not in missing["distill"]]
        left = next(_left(others, missing), None)
        if left is not None:
            WorkerLog(run.logs, me, left.stage).gave_away(left.owner, left.shards, left.silent_s)
            yield left
            continue
        in_hand = {(row["stage"], shard) for row in others if row["state"] == "working" for shard in row["held"]}
        wanted = {(stage, shard) for stage, shards in missing.items() for shard in shards}
        if not wanted or not wanted <= in_hand:
            return
        time.sleep(LOOK_EVERY_S)


def _left(others: list[dict[str, Any]], missing: dict[str, list[int]]) -> Iterator[Abandoned]:
    for row in others:
        if row["state"] != "stuck":
            continue
        for stage in STAGES:
            shards = [shard for shard in missing[stage] if _is_its(row, stage, shard)]
            if shards:
                yield Abandoned(stage, row["id"], row["silent_s"], shards)


def _is_its(row: dict[str, Any], stage: str, shard: int) -> bool:
    """Whether a shard is in a worker's hands, or would come to it by its rank."""
    rank = _RANK.match(row["id"])
    by_rank = rank is not None and shard % int(rank[2]) == int(rank[1])
    return by_rank or (stage == row["stage"] and shard in row["held"])


def _is_dead(row: dict[str, Any]) -> bool:
    """Whether a worker's process is no more, as far as this host can see: whoever restarts it has its shards done."""
    return row["host"] == socket.gethostname() and row["pid"] is not None and not is_alive(row["pid"])
