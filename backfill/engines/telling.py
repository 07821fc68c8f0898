"""An engine that tells how many answers came, for signs of life while a shard of hours is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backfill.engines.base import Answer, Engine, Request


class TellingEngine:
    """Implements `Engine` over another one."""

    def __init__(self, engine: Engine, tell: Callable[[int], None]) -> None:
        """`tell` takes the number of answers that just came."""
        self._engine = engine
        self._tell = tell

    @property
    def window(self) -> int:
        """That of the engine."""
        return self._engine.window

    @property
    def deterministic(self) -> bool:
        """That of the engine."""
        return self._engine.deterministic

    def identity(self) -> dict[str, Any]:
        """That of the engine."""
        return self._engine.identity()

    def record(self) -> dict[str, Any]:
        """That of the engine."""
        return self._engine.record()

    def submit(self, request: Request) -> None:
        """Hands over."""
        self._engine.submit(request)

    def poll(self, timeout_s: float) -> list[Answer]:
        """Takes answers, and tells how many."""
        answers = self._engine.poll(timeout_s)
        if answers:
            self._tell(len(answers))
        return answers

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()
