"""Running a measurement so that a sceptic can rerun it: setup, N runs in turn with its peers, median and spread.

Every benchmark's `run(quick)` returns a `Result`; the last line it prints is that result as JSON, `{name, value, unit,
peers, limit, ratio, goal, met}`. Peers and limit are measured in the same run, turn by turn, because machines are
shared and drift.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of a measurement's runs."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Result:
    """One line of bench/results.csv. `ratio` is value against the peer that the goal names (`against`)."""

    name: str
    value: float
    unit: str
    peers: dict[str, float]
    limit: str
    ratio: float
    goal: str
    met: bool | None
    spread: dict[str, Spread] = field(default_factory=dict)
    notes: str = ""

    def line(self) -> str:
        """The last line of a benchmark."""
        record = {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "peers": {name: round(value, 3) for name, value in self.peers.items()},
            "limit": self.limit,
            "ratio": round(self.ratio, 3),
            "goal": self.goal,
            "met": self.met,
        }
        return json.dumps(record)


def take_turns(
    subjects: Mapping[str, Callable[[], float]], runs: int, *, warmup: int = 1, say: Callable[[str], None] = print
) -> dict[str, Spread]:
    """Runs every subject in turn `runs` times (after `warmup` rounds that do not count); a subject returns its rate."""
    values: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(warmup + runs):
        for name, subject in subjects.items():
            rate = subject()
            if turn >= warmup:
                values[name].append(rate)
    spreads = {name: Spread.of(found) for name, found in values.items()}
    for name, spread in spreads.items():
        say(f"  {name:<34} {spread.median:12.2f}  ({spread.low:.2f} to {spread.high:.2f}, {spread.runs} runs)")
    return spreads


def timed(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_timed(work: Callable[[], Any]) -> float:
    """CPU seconds of one call, all threads of the process together."""
    started = time.process_time()
    work()
    return time.process_time() - started


def machine() -> str:
    """The machine in a few words: cores, load, system, Python."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{os.cpu_count()} cores, load {load:.1f}, {platform.machine()}, Python {platform.python_version()}"
