"""Asks an engine a list of questions and keeps its window full: for what needs no shards, logs or retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from backfill.engines.base import Answer, Engine, Request
from backfill.errors import Interrupted

POLL_S = 0.5


def ask_all(
    engine: Engine, requests: Sequence[Request], *, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[Answer]:
    """One answer for each request, in any order. Raises Interrupted when asked to stop, and what the engine raises."""
    waiting = list(reversed(requests))
    asked: set[int] = set()
    while waiting or asked:
        if should_stop():
            raise Interrupted("stopped while asking an engine", hint="the same command starts anew")
        while waiting and len(asked) < engine.window:
            request = waiting.pop()
            asked.add(request.key)
            engine.submit(request)
        for answer in engine.poll(POLL_S):
            if answer.key in asked:
                asked.remove(answer.key)
                yield answer
