"""How fast a run distills, from its event lines: exchanges, windows and tokens a second, lately and overall.

Rates are a second at work: where nobody wrote a line for `RECENT_S`, as between two rounds on a cluster or before a run
was taken up again, that much of the silence counts and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from backfill.worker_log import Event

RECENT_S = 300.0


class Pace:
    """A fold over event lines, fed as they come, of which those of distillation count."""

    def __init__(self) -> None:
        self._at_work_s = 0.0
        self._items = self._tokens = 0
        self._since: float | None = None
        self._last: float | None = None
        self._recent: deque[tuple[float, int, int]] = deque()

    def add(self, events: Iterable[Event]) -> None:
        """Takes further events, in the order of time."""
        for event in events:
            if event.stage == "distill" and not event.about:
                self._pass_to(event.at)
                if event.event == "done":
                    items, tokens = int(event.stats.get("n", 0)), tokens_of(event.stats)
                    self._items, self._tokens = self._items + items, self._tokens + tokens
                    self._recent.append((event.at, items, tokens))

    def rates(self, now: float) -> tuple[dict[str, float], dict[str, float]]:
        """(exchanges and windows, tokens in and out) a second: over the last five minutes (`m5`), or since work began
        if that is later, and overall, from the first line to the last."""
        while self._recent and self._recent[0][0] < now - RECENT_S:
            self._recent.popleft()
        since = now if self._since is None else self._since
        lately_s = max(min(now - since, RECENT_S), 1e-3)
        items, tokens = sum(row[1] for row in self._recent), sum(row[2] for row in self._recent)
        overall_s = max(self._at_work_s, 1e-3)
        return (
            {"m5": round(items / lately_s, 2), "overall": round(self._items / overall_s, 2)},
            {"m5": round(tokens / lately_s, 1), "overall": round(self._tokens / overall_s, 1)},
        )

    def _pass_to(self, at: float) -> None:
        """Hosts' clocks differ a little, so a line may be older than the one before."""
        if self._last is None or self._since is None:
            self._since = self._last = at
            return
        passed_s = max(0.0, at - self._last)
        if passed_s > RECENT_S:
            self._since = at
        self._at_work_s += min(passed_s, RECENT_S)
        self._last = max(self._last, at)


def tokens_of(stats: dict[str, Any]) -> int:
    """Tokens in and out of a shard."""
    return int(stats.get("tokens_in", 0)) + int(stats.get("tokens_out", 0))
