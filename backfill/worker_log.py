"""The log of a worker: RUN/logs/events-<worker>.jsonl, a JSON object a line, appended to while it works.

    {"at": 1764500000.123, "event": "done", "host": "node-3", "pid": 4711, "shard": 12, "stage": "distill",
     "stats": {...}, "worker": "w0of4"}

Events are `take` (a shard was begun), `answers` (so many came since the last such line; at most one line in
`ANSWERS_EVERY_S`), `done` (its manifest is published), `stopped` and `failed`; `stuck` is written by whoever gave the
shards of the worker `about` to others. Manifests decide what is done; these lines say who did it when, for `status`,
`report`, the search for stuck workers, and people. Each is one write to a file opened for appending; a torn line is
passed over. Nothing of a transcript stands in them. Deliberately absent: clocks that agree between hosts.
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
ANSWERS_EVERY_S = 10.0
# How often others look at the lines.
LOOK_EVERY_S = 1.0
# Looking takes at most this share of the time: on a shared file system a thousand logs take a second to open.
LOOK_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `at` is seconds since 1970; `stats` are those of the shard's manifest for `done`, `n` for `answers` and
    `silent_s` for `stuck`, which is `about` another worker."""

    at: float
    event: str
    worker: str
    host: str
    pid: int
    stage: str
    shard: int = -1
    error: str = ""
    stats: dict[str, Any] = field(default_factory=dict)
    about: str = ""


class WorkerLog:
    """Appends events of one worker and stage. A log that cannot be written is done without."""

    def __init__(self, folder: Path, worker: str, stage: str, *, answers_every_s: float = ANSWERS_EVERY_S) -> None:
        self._path = folder / f"{PREFIX}{worker}.jsonl"
        self.worker, self._stage = worker, stage
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._answers = 0
        self._told = time.monotonic()
        self._every_s = answers_every_s

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

    def answered(self, n_answers: int) -> None:
        """Counts answers of an engine: the sign that a long shard is under way."""
        self._answers += n_answers
        if time.monotonic() - self._told >= self._every_s and self._answers:
            self._write("answers", stats={"n": self._answers})
            self._answers, self._told = 0, time.monotonic()

    def gave_away(self, about: str, shards: Iterable[int], silent_s: float) -> None:
        """Notes that the shards of a stuck worker were given to others."""
        for shard in shards:
            self._write("stuck", shard=shard, about=about, stats={"silent_s": round(silent_s, 1)})

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

    def _write(
        self, event: str, *, shard: int = -1, error: str = "", stats: dict[str, Any] | None = None, about: str = ""
    ) -> None:
        at = round(time.time(), 6)
        line = Event(at, event, self.worker, self._host, self._pid, self._stage, shard, error, stats or {}, about)
        data = canonical_json(line) + b"\n"
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)


class EventTail:
    """The events of a run's log folder as they are written: each call of `read` gives those since the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._decoder = msgspec.json.Decoder(Event)

    def read(self) -> list[Event]:
        """New events, by time; lines that are torn or of another shape are passed over, a last one without its end
        waits for it."""
        events: list[Event] = []
        for path in sorted(self._folder.glob(f"{PREFIX}*.jsonl")):
            with suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    with suppress(msgspec.DecodeError):
                        events.append(self._decoder.decode(line))
        return sorted(events, key=lambda event: event.at)


def read_events(folder: Path) -> list[Event]:
    """All events of a run's log folder so far; see `EventTail`."""
    return EventTail(folder).read()


def _counts(stats: dict[str, Any]) -> dict[str, Any]:
    """Numbers, and failures by reason; a scan's tables by format and its problems stay in the manifest."""
    return {k: v for k, v in stats.items() if isinstance(v, int | float) or k == "failures"}
