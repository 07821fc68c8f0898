"""Finished answers, kept by their bytes up to a limit, the least recently used dropped first.

A bundle never changes under its digest, so an answer is a function of (digest, address) and needs no expiry. Used
from the event loop alone, hence without a lock. Deliberately absent: time limits and anything on disk.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

# What an entry costs beyond its body and key: two objects and a slot of the dictionary.
ENTRY_BYTES = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """An encoded answer: HTTP status and JSON body."""

    status: int
    body: bytes


class AnswerCache:
    """At most `limit_bytes` of answers; one that would take more than an eighth of the room is not kept."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.n_bytes = 0
        self._kept: OrderedDict[str, Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Answer | None:
        """The answer for the key, now the most recently used, or None."""
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
        return answer

    def put(self, key: str, answer: Answer) -> None:
        """Keeps the answer and drops the least recently used ones beyond the limit."""
        size = _size(key, answer)
        if size > self.limit_bytes // 8:
            return
        old = self._kept.pop(key, None)
        if old is not None:
            self.n_bytes -= _size(key, old)
        self._kept[key] = answer
        self.n_bytes += size
        while self.n_bytes > self.limit_bytes:
            dropped, gone = self._kept.popitem(last=False)
            self.n_bytes -= _size(dropped, gone)


def _size(key: str, answer: Answer) -> int:
    return len(answer.body) + len(key) + ENTRY_BYTES
