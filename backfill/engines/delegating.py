"""An engine over another one, to be derived from: it hands everything over."""

from __future__ import annotations

from typing import Any

from backfill.engines.base import Answer, Engine, Request


class DelegatingEngine:
    """Implements `Engine` by another one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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
        """See `Engine.submit`."""
        self._engine.submit(request)

    def poll(self, timeout_s: float) -> list[Answer]:
        """See `Engine.poll`."""
        return self._engine.poll(timeout_s)

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()
