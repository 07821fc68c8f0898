"""Who has which shard: hands them out one at a time, and takes them back from workers that died or are stuck.

A plain state machine, without clocks, processes or files. Several workers ask it through whatever carries a call: a
pipe, or a Ray actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

News: TypeAlias = tuple[str, int, dict[str, Any]]
"""Worker, shard and stats of a shard that was published."""


class ShardSource(Protocol):
    """What a worker sees of a dispenser."""

    def take(self, worker: str) -> int | None:
        """The next shard, None when there is none."""
        ...

    def finish(self, worker: str, shard: int, stats: dict[str, Any]) -> None:
        """The shard is published."""
        ...

    def stopped(self) -> bool:
        """Whether to stop."""
        ...


class Dispenser:
    """Hands out shards in their order and remembers who holds which."""

    def __init__(self, shards: Sequence[int]) -> None:
        self._left = deque(shards)
        self._held: dict[str, set[int]] = {}
        self._retired: set[str] = set()
        self._finished: set[int] = set()
        self._news: deque[News] = deque()
        self._stopped = False

    def take(self, worker: str) -> int | None:
        """The next shard for a worker, None when there is none for it."""
        if self._stopped or worker in self._retired or not self._left:
            return None
        shard = self._left.popleft()
        self._held.setdefault(worker, set()).add(shard)
        return shard

    def finish(self, worker: str, shard: int, stats: dict[str, Any]) -> None:
        """A shard is published; what a late worker says of one that is known to be is passed over."""
        for held in self._held.values():
            held.discard(shard)
        if shard in self._left:
            self._left.remove(shard)
        if shard not in self._finished:
            self._finished.add(shard)
            self._news.append((worker, shard, stats))

    def held(self, worker: str) -> list[int]:
        """What a worker has in hand."""
        return sorted(self._held.get(worker, ()))

    def release(self, worker: str) -> list[int]:
        """Takes back what a dead worker held, to be handed out first; returns it."""
        back = sorted(self._held.pop(worker, set()))
        self._left.extendleft(reversed(back))
        return back

    def retire(self, worker: str) -> list[int]:
        """As `release`, and hands out nothing more to it."""
        self._retired.add(worker)
        return self.release(worker)

    def left(self) -> int:
        """How many shards wait to be handed out."""
        return len(self._left)

    def news(self) -> list[News]:
        """What was published since the last call."""
        found = list(self._news)
        self._news.clear()
        return found

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True

    def stopped(self) -> bool:
        """Whether workers should stop."""
        return self._stopped
