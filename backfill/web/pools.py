"""The threads of the server, and the processes that search for them.

Pages, exchanges and what is known do not wait behind searches: they have a thread. Encoding a query holds no
interpreter's lock, so it has another one, and the next query is encoded while one is searched. Searches hold that lock
for most of their time, so each process has a thread that asks it; without processes there is one thread for all, for
two would take the lock from each other at each of a thousand small reads. Deliberately absent: priorities.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill.web.follow import State, warm_up, warm_up_pages

if TYPE_CHECKING:
    from backfill.web.processes import SearchProcesses


@dataclass(frozen=True, slots=True)
class Pools:
    """Executors by what they do; tests give one for all. Without `processes` searches run in their thread."""

    pages: Executor
    encoding: Executor
    searches: Executor
    processes: SearchProcesses | None = None


@contextmanager
def serving_pools(bundle: Path, n_processes: int = 0) -> Iterator[Pools]:
    """Threads and processes, which end with the block; what waits in them is dropped."""
    from backfill.web.processes import SearchProcesses

    sizes = {"pages": 1, "encoding": 1, "searches": max(1, n_processes)}
    made = {name: ThreadPoolExecutor(size, thread_name_prefix=name) for name, size in sizes.items()}
    with SearchProcesses(bundle, n_processes) if n_processes else nullcontext() as processes:
        try:
            yield Pools(**made, processes=processes)
        finally:
            for pool in made.values():
                pool.shutdown(wait=False, cancel_futures=True)


def warm_state(pools: Pools, state: State) -> None:
    """Makes a state ready in the server and in its processes."""
    if pools.processes is None:
        warm_up(state)
    else:
        warm_up_pages(state)
        pools.processes.open(state)
