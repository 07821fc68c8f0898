"""An engine that is replaced when it dies, and the search for the request that kills it.

After a death, everything that was in flight is suspect. Suspects fly again in cohorts of about the square root of
their number, nothing else beside them; of a cohort that dies too, each flies alone. A request that has seen two
deaths and dies alone is answered with the error `engine_death`; no innocent one is lost, and a killer among 80 costs
three restarts. Deaths are a budget that answers earn back, so a broken engine ends the run instead of looping.
Deliberately absent: waiting between restarts; loading a model is wait enough.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from backfill.engines.base import Answer, Engine, Request
from backfill.errors import EngineError

ENGINE_DEATH = "engine_death"
MAX_DEATHS = 8
_ANSWERS_PER_DEATH = 100


class SupervisedEngine:
    """Wraps engines of one kind as one that survives. `make` must be cheap: engines load with their first request."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine = make()
        self.deterministic = self._engine.deterministic
        self.deaths = 0
        self._budget = float(MAX_DEATHS)
        self._deaths_of: Counter[int] = Counter()
        self._flying: dict[int, Request] = {}
        self._cohorts: deque[list[Request]] = deque()
        self._waiting: list[Request] = []
        self._failed: list[Answer] = []
        self._searching = False

    @property
    def current(self) -> Engine:
        """The engine that runs at present."""
        return self._engine

    @property
    def window(self) -> int:
        """That of the engine."""
        return self._engine.window

    def record(self) -> dict[str, Any]:
        """That of the engine, and how many were replaced."""
        return {**self._engine.record(), "deaths": self.deaths}

    def identity(self) -> dict[str, Any]:
        """That of the engine."""
        return self._engine.identity()

    def submit(self, request: Request) -> None:
        """Hands over a request, or keeps it until the suspects have flown. Raises EngineError past the budget."""
        self._waiting.append(request)
        self._advance()

    def poll(self, timeout_s: float) -> list[Answer]:
        """Answers, also `engine_death` ones. Raises EngineError when engines die faster than they answer."""
        self._advance()
        failed, self._failed = self._failed, []
        if failed:
            return failed
        try:
            answers = self._engine.poll(timeout_s)
        except EngineError as error:
            self._bury(error)
            return []
        for answer in answers:
            self._flying.pop(answer.key, None)
            self._deaths_of.pop(answer.key, None)
            self._budget = min(MAX_DEATHS, self._budget + 1 / _ANSWERS_PER_DEATH)
        return answers

    def close(self) -> None:
        """Closes the engine that runs; safe to call twice."""
        self._engine.close()

    def _advance(self) -> None:
        """Launches what may fly now: everything, or during a search the next cohort once the last has landed."""
        if self._searching:
            if self._flying:
                return
            if self._cohorts:
                self._launch(self._cohorts.popleft())
                return
            self._searching = False
        waiting, self._waiting = self._waiting, []
        self._launch(waiting)

    def _launch(self, requests: list[Request]) -> None:
        for request in requests:
            self._flying[request.key] = request
        try:
            for request in requests:
                self._engine.submit(request)
        except EngineError as error:
            self._bury(error)

    def _bury(self, error: EngineError) -> None:
        self._engine.close()
        if not error.retryable:
            raise error
        self.deaths += 1
        self._budget -= 1
        if self._budget < 0:
            text = f"engines keep dying ({self.deaths} so far), the last one thus: {error}"
            raise EngineError(text, hint=error.hint) from error
        suspects = list(self._flying.values())
        self._flying.clear()
        self._deaths_of.update(request.key for request in suspects)
        if len(suspects) == 1 and self._deaths_of[suspects[0].key] > 1:
            self._failed.append(Answer(suspects[0].key, "", "error", error=ENGINE_DEATH))
            suspects = []
        size = math.isqrt(len(suspects)) if not self._searching else 1
        cohorts = [suspects[i : i + size] for i in range(0, len(suspects), max(1, size))]
        self._cohorts.extendleft(reversed(cohorts))
        self._searching = True
        self._engine = self._make()
