"""Following a run to its end: a look at its files now and then, whoever calls its workers and wherever they are.

Yields `status` records; showing them is `progress`'s. Looking takes a twentieth of the time at most, so that a thousand
logs on a shared file system are not read without pause. Deliberately absent: any influence on the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from backfill.errors import UsageError
from backfill.status import Status
from backfill.worker_log import LOOK_EVERY_S, LOOK_SHARE

# Between two commands of a script nobody is at work for a while; a run that just starts has no plan yet.
ALONE_S = 30.0
STARTING_S = 10.0
DONE, ABANDONED = "done", "abandoned"


class Queue(Protocol):
    """Where jobs of a run may wait while nobody works on it."""

    def record(self) -> dict[str, Any]: ...

    @property
    def is_empty(self) -> bool: ...


def looks(
    status: Status,
    queue: Queue | None = None,
    *,
    elsewhere: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Iterator[dict[str, Any]]:
    """Yields how the run stands, until it has ended; the last record's `ended` says how: done, or abandoned.

    It is done when nothing is missing and nobody is at work, for a bundle may stand from before; abandoned when nobody
    has been at work for `ALONE_S` and no job is in the `queue`. With jobs `elsewhere`, in a queue that is not asked,
    nobody can tell, so it is followed until it is done. Raises UsageError where there is no run, ShardError where its
    files cannot be trusted.
    """
    began, busy_at = clock(), 0.0
    while True:
        started = time.monotonic()
        record = _record(status, queue, waiting=clock() - began < STARTING_S)
        now = clock()
        if record is not None:
            at_work = bool(record["processes"] or record.get("jobs"))
            busy_at = now if at_work else max([busy_at, *(worker["last_sign"] or 0.0 for worker in record["workers"])])
            alone = now - busy_at >= ALONE_S and now - began >= STARTING_S
            over = not elsewhere and alone and (queue is None or queue.is_empty)
            done = record["state"] == "done" and not at_work
            record["ended"] = DONE if done else ABANDONED if over else ""
            yield record
            if record["ended"]:
                return
        sleep(max(LOOK_EVERY_S, (time.monotonic() - started) / LOOK_SHARE))


def _record(status: Status, queue: Queue | None, *, waiting: bool) -> dict[str, Any] | None:
    """A look, or nothing while a run that is `waiting` for its plan has none."""
    try:
        record = status.record()
    except UsageError:
        if waiting:
            return None
        raise
    return {**record, **(queue.record() if queue else {})}
