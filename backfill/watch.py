"""`watch`: adds transcripts as their sessions end, by asking the file system every so often.

A session has ended when its file has not changed for a while, or when a hook enqueued it. Idle time is measured by
this process's own monotonic clock once a change was seen, so a clock that goes backwards delays nothing and adds
nothing mid-session. Deliberately absent: inotify and its kin; agents write to network homes too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backfill.errors import BackfillError
from backfill.growth import add_with_spool
from backfill.ingest import Ingest
from backfill.rundir import PlannedUnit
from backfill.scan import list_units
from backfill.seen import Seen

_State = tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class Watcher:
    """What is known of the watched files: their last state and since when (monotonic seconds) it stands."""

    sources: Sequence[Path]
    idle_s: float
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _since: dict[tuple[str, str], tuple[_State, float]] = field(default_factory=dict)

    def ended(self, seen: Seen) -> list[Path]:
        """Files of sessions that are not in the bundle in their present state and have been idle long enough."""
        now = self.clock()
        found: list[Path] = []
        for source in self.sources:
            if not source.exists():
                continue
            root, below = seen.place(source)
            listing = list_units([root])
            for unit in listing.units:
                if below and not any(s == below or s.startswith(f"{below}/") for s in unit.sizes):
                    continue
                if not seen.has(listing.roots[unit.root], unit) and self._idle(listing.roots[unit.root], unit, now):
                    path = Path(listing.roots[unit.root])
                    found.append(path if path.is_file() else path / unit.source)
        return found

    def _idle(self, root: str, unit: PlannedUnit, now: float) -> bool:
        files: list[Any] = [unit, *unit.members]
        state = tuple((f.source, f.size_bytes, f.mtime_ns) for f in files)
        known, since = self._since.get((root, unit.source), (None, now))
        if known is None:
            # First sight: the file's own time says how long it has been idle, unless it lies in the future.
            age_s = self.wall() - max(f.mtime_ns for f in files) / 1e9
            since = now - max(0.0, age_s)
        elif known != state:
            since = now
        self._since[root, unit.source] = (state, since)
        return now - since >= self.idle_s


def watch(
    bundle: Path,
    watcher: Watcher,
    ingest: Ingest,
    should_stop: Callable[[], bool],
    report: Callable[[dict[str, Any]], None],
    *,
    every_s: float,
    spool: bool,
    once: bool = False,
) -> int:
    """Adds what has ended, again and again until asked to stop; returns how many exchanges were added.

    A round that fails is reported and tried again: the next round finds the same files.
    """
    added = 0
    while not should_stop():
        try:
            ended = watcher.ended(Seen.of(bundle))
            record = add_with_spool(bundle, ended, ingest, should_stop, spool=spool) if ended or spool else None
            if record is not None and (record["files"] or record["spooled"]):
                added += record["added"]
                report(record)
        except BackfillError as error:
            if once or should_stop():
                raise
            report({"problem": str(error), "hint": error.hint})
        if once:
            break
        _sleep(every_s, should_stop)
    return added


def _sleep(seconds: float, should_stop: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not should_stop() and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(0.5, left_s))
