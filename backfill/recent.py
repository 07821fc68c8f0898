"""What was used last, up to a bound: a small cache for several threads.

Deliberately absent: time. An entry stays until others need its room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Entries by key, the least recently used dropped first once their weights pass `limit`."""

    def __init__(self, limit: int) -> None:
        """`limit` is the greatest sum of weights (entries, or bytes, as `put` counts them)."""
        self.limit = limit
        self.weight = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """The entry, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: T, weight: int) -> None:
        """Adds or replaces an entry; one heavier than the limit is not kept."""
        with self._lock:
            old = self._entries.pop(key, None)
            self.weight -= old[1] if old else 0
            if weight > self.limit:
                return
            self._entries[key] = (value, weight)
            self.weight += weight
            while self.weight > self.limit:
                self.weight -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)
