"""The inline launcher: this process does the work; scanning may spread over a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from backfill.errors import Interrupted
from backfill.reading import advance, set_meter
from backfill.stages import OnDone, ShouldStop, work

POLL_S = 0.5


class InlineLauncher:
    """Runs shards in order; `scan_workers` > 1 reads transcripts in as many processes."""

    def __init__(self, scan_workers: int = 1) -> None:
        self._scan_workers = scan_workers

    def run(self, path: Path, stage: str, shards: Sequence[int], *, should_stop: ShouldStop, on_done: OnDone) -> None:
        """See `Launcher.run`."""
        if stage == "scan" and self._scan_workers > 1 and len(shards) > 1:
            self._pool(path, shards, should_stop, on_done)
        else:
            work(path, stage, shards, worker="inline", should_stop=should_stop, on_done=on_done)

    def _pool(self, path: Path, shards: Sequence[int], should_stop: ShouldStop, on_done: OnDone) -> None:
        context = multiprocessing.get_context("spawn")
        read, shown = context.Value("q", 0), 0
        count = min(self._scan_workers, len(shards))
        with ProcessPoolExecutor(count, context, _begin, (read,)) as pool:
            pending: set[Future[tuple[int, dict[str, Any]]]] = {pool.submit(scan_one, path, s) for s in shards}
            while pending:
                done, pending = wait(pending, POLL_S, FIRST_COMPLETED)
                more = read.value - shown
                shown += more
                advance(more)
                for future in done:
                    on_done(*future.result())
                if should_stop():
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise Interrupted("stopped while reading transcripts", hint="the same command resumes")


def scan_one(path: Path, shard: int) -> tuple[int, dict[str, Any]]:
    """Reads one shard in a process of the pool; returns it with its stats."""
    results: list[tuple[int, dict[str, Any]]] = []
    work(
        path,
        "scan",
        [shard],
        worker=f"pool-{os.getpid()}",
        should_stop=lambda: False,
        on_done=lambda number, stats: results.append((number, stats)),
    )
    return results[0]


def _begin(read: Any) -> None:
    """In each process of the pool: interrupts reach the parent alone, which shows what all have `read`."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def count(n_bytes: int) -> None:
        with read.get_lock():
            read.value += n_bytes

    set_meter(count)
