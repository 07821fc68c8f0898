"""The threads of the server: searches one after the other, their encoding beside them, pages by themselves.

A search holds the interpreter's lock for most of its time and lets go of it at each of a thousand small reads. Two at
once would take it from each other at every read and both be late, so there is one; encoding a query holds no lock, so
the next query is encoded meanwhile; pages, exchanges and what is known do not wait behind searches. Deliberately
absent: priorities.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pools:
    """Executors by what they do; tests give one for all."""

    pages: Executor
    encoding: Executor
    searches: Executor


@contextmanager
def thread_pools() -> Iterator[Pools]:
    """A thread for each, which end with the block; what waits in them is dropped."""
    made = [ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("pages", "encoding", "searches")]
    try:
        yield Pools(*made)
    finally:
        for pool in made:
            pool.shutdown(wait=False, cancel_futures=True)
