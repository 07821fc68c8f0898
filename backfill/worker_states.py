"""How workers stand, from their event lines: for `status`, metrics, the display, and the search for stuck ones."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from backfill.pace import RECENT_S, tokens_of
from backfill.worker_log import Event


class Workers:
    """Who holds which shard, and who is silent: a fold over event lines, fed as they come."""

    def __init__(self, stuck_after_s: float = 0.0) -> None:
        """A worker with a shard in hand that has been silent for `stuck_after_s` counts as stuck (0: none does)."""
        self.stuck_after_s = stuck_after_s
        self._states: dict[str, dict[str, Any]] = {}
        self._held: dict[str, dict[tuple[str, int], None]] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Takes further events, in the order of time."""
        for event in events:
            if event.about:
                self._gave_away(event)
            else:
                self._note(event)

    def rows(self, now: float | None = None) -> list[dict[str, Any]]:
        """One record a worker, by name; see `workers_of`."""
        now = time.time() if now is None else now
        return [self._row(name, now) for name in sorted(self._states)]

    def _note(self, event: Event) -> None:
        state = self._state(event.worker)
        mine = self._held[event.worker]
        if state["pid"] not in (None, event.pid):
            mine.clear()  # another process took the name: what the one before held went with it
        state |= {"host": event.host, "pid": event.pid, "stage": event.stage, "at": event.at, "state": "idle"}
        key = (event.stage, event.shard)
        if event.event == "take":
            mine[key] = None
            state["answers"] = 0
        elif event.event == "answers":
            state["answers"] += int(event.stats.get("n", 0))
        elif event.event == "done":
            for held in self._held.values():
                held.pop(key, None)  # whoever else had it in hand has it no more
            state["last_commit"] = event.at
            state["shards"] += 1
            state["items"] += int(event.stats.get("n", 0)) if event.stage == "distill" else 0
        else:
            mine.clear()
            state["state"] = event.event

    def _gave_away(self, event: Event) -> None:
        """Somebody gave a worker's shard to others; should it come back, its next line says what it does."""
        state = self._state(event.about)
        self._held[event.about].pop((event.stage, event.shard), None)
        state |= {"stage": event.stage, "state": "stuck"}
        state["given_away"].append(event.shard)

    def _state(self, name: str) -> dict[str, Any]:
        if name not in self._states:
            self._held[name] = {}
            self._states[name] = {
                "id": name,
                "host": "",
                "pid": None,
                "stage": "",
                "state": "idle",
                "at": None,
                "last_commit": None,
                "shards": 0,
                "items": 0,
                "answers": 0,
                "given_away": [],
            }
        return self._states[name]

    def _row(self, name: str, now: float) -> dict[str, Any]:
        state, held = dict(self._states[name]), self._held[name]
        at = state.pop("at")
        silent_s = round(max(0.0, now - at), 1) if at is not None else 0.0
        if held:
            stuck = 0 < self.stuck_after_s <= silent_s
            state["state"] = "stuck" if stuck else "working"
        return {
            **state,
            "last_sign": at,
            "given_away": list(state["given_away"]),
            "shard": next((shard for _, shard in held), None),
            "held": [shard for stage, shard in held if stage == state["stage"]],
            "silent_s": silent_s,
        }


def workers_of(
    events: Iterable[Event], now: float | None = None, *, stuck_after_s: float = 0.0
) -> list[dict[str, Any]]:
    """One record a worker, by name: host, the shard it holds, its last commit, what it did, and its state.

    `events` are in the order of time. A worker is `working` with a shard in hand, `stuck` where it has been silent for
    `stuck_after_s` (0: never) or its shards were given to others (`given_away`), `stopped` or `failed` where its last
    line says so, else `idle`; `silent_s` is the time since its last line (`last_sign`), `answers` those of an engine
    since it took its last shard.
    """
    workers = Workers(stuck_after_s)
    workers.add(events)
    return workers.rows(now)


def worker_line(row: dict[str, Any]) -> str:
    """A worker's record as a line for people."""
    shard = "" if row["shard"] is None else f" {row['stage']} shard {row['shard']}"
    answers = f" ({row['answers']:,} answers)" if row["shard"] is not None and row["answers"] else ""
    given = f", shards {', '.join(map(str, row['given_away']))} given to others" if row["given_away"] else ""
    host = f" on {row['host']}" if row["host"] else ""
    seen = f"{row['shards']:,} shards done, last sign {row['silent_s']:,.0f} s ago"
    return f"{row['id']}{host}: {row['state']}{shard}{answers}, {seen}{given}"


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
        self._recent.append((now, tokens_of(stats)))
        self._tokens += tokens_of(stats)
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
