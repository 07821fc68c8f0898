"""An engine that tells how many answers came, for signs of life while a shard of hours is under way."""

from __future__ import annotations

from collections.abc import Callable

from backfill.engines.base import Answer, Engine
from backfill.engines.delegating import DelegatingEngine


class TellingEngine(DelegatingEngine):
    """Tells how many answers each poll brought."""

    def __init__(self, engine: Engine, tell: Callable[[int], None]) -> None:
        """`tell` takes the number of answers that just came."""
        super().__init__(engine)
        self._tell = tell

    def poll(self, timeout_s: float) -> list[Answer]:
        """Takes answers, and tells how many."""
        answers = super().poll(timeout_s)
        if answers:
            self._tell(len(answers))
        return answers
