"""The log of a worker: RUN/logs/events-<worker>.jsonl, a JSON object a line, appended to while it works.

    {"at": 1764500000.123, "event": "done", "host": "node-3", "pid": 4711, "shard": 12, "stage": "distill",
     "stats": {...}, "worker": "w0of4"}

Events are `take` (a shard was begun), `done` (its manifest is published), `stopped` and `failed`. Manifests decide what
is done; these lines say who did it when, for `status`, `report` and people. Each is one write to a file opened for
appending; a torn line is passed over. Nothing of a transcript stands in them. Deliberately absent: clocks that agree
between hosts.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.errors import BackfillError, Interrupted
from backfill.ids import canonical_json

PREFIX = "events-"


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `at` is seconds since 1970; `stats` are those of the shard's manifest, of `done` alone."""

    at: float
    event: str
    worker: str
    host: str
    pid: int
    stage: str
    shard: int = -1
    error: str = ""
    stats: dict[str, Any] = field(default_factory=dict)


class WorkerLog:
    """Appends events of one worker and stage. A log that cannot be written is done without."""

    def __init__(self, folder: Path, worker: str, stage: str) -> None:
        self._path = folder / f"{PREFIX}{worker}.jsonl"
        self._worker, self._stage = worker, stage
        self._host, self._pid = socket.gethostname(), os.getpid()

    def taken(self, shards: Iterable[int]) -> Iterator[int]:
        """The shards, each noted as it is drawn."""
        for shard in shards:
            self._write("take", shard=shard)
            yield shard

    def noting(self, on_done: Callable[[int, dict[str, Any]], None]) -> Callable[[int, dict[str, Any]], None]:
        """`on_done`, with a line before it."""

        def noted(shard: int, stats: dict[str, Any]) -> None:
            self._write("done", shard=shard, stats=_counts(stats))
            on_done(shard, stats)

        return noted

    @contextmanager
    def ends(self) -> Iterator[None]:
        """Notes how the block ended, where it did not end well."""
        try:
            yield
        except Interrupted:
            self._write("stopped")
            raise
        except BackfillError as error:
            self._write("failed", error=type(error).__name__)
            raise

    def _write(self, event: str, *, shard: int = -1, error: str = "", stats: dict[str, Any] | None = None) -> None:
        at = round(time.time(), 6)
        line = Event(at, event, self._worker, self._host, self._pid, self._stage, shard, error, stats or {})
        data = canonical_json(line) + b"\n"
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)


def read_events(folder: Path) -> list[Event]:
    """All events of a run's log folder, by time; lines that are torn or of another shape are passed over."""
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    for path in sorted(folder.glob(f"{PREFIX}*.jsonl")):
        with suppress(OSError), path.open("rb") as file:
            for line in file:
                with suppress(msgspec.DecodeError):
                    events.append(decoder.decode(line))
    return sorted(events, key=lambda event: event.at)


def _counts(stats: dict[str, Any]) -> dict[str, Any]:
    """Numbers, and failures by reason; a scan's tables by format and its problems stay in the manifest."""
    return {k: v for k, v in stats.items() if isinstance(v, int | float) or k == "failures"}
