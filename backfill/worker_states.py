"""How workers stand, from their event lines: for `status`, metrics and the progress line of every launcher."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from backfill.worker_log import Event

RECENT_S = 300.0


def workers_of(events: Iterable[Event], now: float | None = None) -> list[dict[str, Any]]:
    """One record a worker, by name: host, the shard it holds, its last commit, what it did, and its state.

    `events` are in the order of time. A worker is `working` with a shard in hand, `stopped` or `failed` where its last
    line says so, else `idle`; `silent_s` is the time since its last line.
    """
    now = time.time() if now is None else now
    states: dict[str, dict[str, Any]] = {}
    held: dict[str, dict[tuple[str, int], None]] = {}
    for event in events:
        state = states.setdefault(event.worker, {"id": event.worker, "last_commit": None, "shards": 0, "items": 0})
        mine = held.setdefault(event.worker, {})
        if state.get("pid") != event.pid:
            mine.clear()  # another process took the name: what the one before held went with it
        state |= {"host": event.host, "pid": event.pid, "stage": event.stage, "at": event.at, "state": "idle"}
        if event.event == "take":
            mine[event.stage, event.shard] = None
        elif event.event == "done":
            mine.pop((event.stage, event.shard), None)
            state["last_commit"] = event.at
            state["shards"] += 1
            state["items"] += int(event.stats.get("n", 0)) if event.stage == "distill" else 0
        else:
            mine.clear()
            state["state"] = event.event
    for name, state in states.items():
        if held[name]:
            state["state"] = "working"
        state["shard"] = next((shard for _, shard in held[name]), None)
        state["silent_s"] = round(max(0.0, now - state.pop("at")), 1)
    return [states[name] for name in sorted(states)]


def token_rates(events: Iterable[Event], now: float | None = None) -> dict[str, float]:
    """Tokens in and out together a second: over the last five minutes, and from the first event to the last."""
    now = time.time() if now is None else now
    own = [event for event in events if event.stage == "distill"]
    done = [(event.at, _tokens(event.stats)) for event in own if event.event == "done"]
    if not done:
        return {"m5": 0.0, "overall": 0.0}
    lasted_s = max(done[-1][0] - own[0].at, 1e-3)
    recent = sum(tokens for at, tokens in done if at >= now - RECENT_S)
    return {"m5": round(recent / RECENT_S, 1), "overall": round(sum(tokens for _, tokens in done) / lasted_s, 1)}


class Tally:
    """What a stage's shards reported so far, as the end of its progress line: tokens a second and refusals by kind."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque()
        self._tokens = 0
        self._failures: Counter[str] = Counter()

    def note(self, stats: dict[str, Any]) -> str:
        """Adds the stats of a finished shard; returns the text."""
        now = time.monotonic()
        self._recent.append((now, _tokens(stats)))
        self._tokens += _tokens(stats)
        self._failures.update(stats.get("failures", {}))
        while self._recent[0][0] < now - RECENT_S:
            self._recent.popleft()
        if not self._tokens:
            return ""
        span_s = max(now - self._started, 1e-3)
        recent = sum(tokens for _, tokens in self._recent) / min(span_s, RECENT_S)
        text = f"{recent:,.0f} tokens/s (overall {self._tokens / span_s:,.0f})"
        if self._failures:
            text += "; refused: " + ", ".join(f"{kind} {n:,}" for kind, n in self._failures.most_common(3))
        return text


def _tokens(stats: dict[str, Any]) -> int:
    return int(stats.get("tokens_in", 0)) + int(stats.get("tokens_out", 0))
