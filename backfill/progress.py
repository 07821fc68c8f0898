"""What people see while long work runs: a bar and the workers on a terminal, a line now and then elsewhere.

Always on stderr, so that stdout stays for results and `--json`. What workers do is read from the run's event lines, so
it is the same for every launcher, and for workers that another process started.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from backfill.pace import RECENT_S
from backfill.worker_log import LOOK_EVERY_S, LOOK_SHARE, EventTail
from backfill.worker_states import Workers, worker_line

LINE_EVERY_S = 10.0
# A run of days is not to fill a log: after five minutes a line a minute is enough.
LATER_EVERY_S = 60.0
WORKERS_SHOWN = 12
_WORST_FIRST = ("stuck", "failed", "working", "stopped", "idle")


def _now() -> float:
    return time.monotonic()


@dataclass(slots=True)
class Stage:
    """Counts of one stage; `done` and `total` are in `unit`s."""

    name: str
    unit: str
    total: float
    done: float = 0
    started: float = field(default_factory=_now)
    note: str = ""
    recent: deque[tuple[float, float]] = field(default_factory=deque)

    def advance(self, amount: float, note: str = "") -> None:
        """Adds finished work."""
        self.reach(self.done + amount)
        self.note = note or self.note

    def reach(self, done: float) -> None:
        """So much is finished in all, if no more was before."""
        now = time.monotonic()
        self.recent.append((now, max(0.0, done - self.done)))
        self.done = max(self.done, done)
        while self.recent[0][0] < now - RECENT_S:
            self.recent.popleft()

    @property
    def rate(self) -> float:
        """Units a second since the stage began."""
        return self.done / max(time.monotonic() - self.started, 1e-9)

    @property
    def recent_rate(self) -> float:
        """Units a second over the last five minutes, or since the stage began."""
        now = time.monotonic()
        done = sum(amount for at, amount in self.recent if at >= now - RECENT_S)
        return done / max(min(now - self.started, RECENT_S), 1e-9)

    def line(self) -> str:
        """One line of text: share, rates, time left."""
        left_s = (self.total - self.done) / self.rate if self.done else None
        recent = self.recent_rate if time.monotonic() - self.started > RECENT_S else None
        share = f"{self.name}: {amount(self.done)}/{amount(self.total)} {self.unit}"
        return (
            f"{share}, {rates_text(self.rate, recent, left_s if self.done < self.total else None)}{_apart(self.note)}"
        )


class WorkersSeen:
    """What the workers of one stage do from now on, read from the event lines of a run."""

    def __init__(self, logs: Path, stage: str, stuck_after_s: float) -> None:
        self._tail = EventTail(logs)
        self._tail.read()  # lines of earlier runs: who of them was cut off is nobody's worker now
        self._workers = Workers(stuck_after_s)
        self._stage = stage
        self._look_at = 0.0

    def rows(self) -> list[dict[str, Any]]:
        """Records of the workers, those that need a look first."""
        began = time.monotonic()
        if began >= self._look_at:
            self._workers.add(self._tail.read())
            now = time.monotonic()
            self._look_at = now + max(LOOK_EVERY_S, (now - began) / LOOK_SHARE)
        return worst_first(row for row in self._workers.rows() if row["stage"] == self._stage)

    def summary(self) -> str:
        """How many are in which state, stuck ones by name."""
        return summary_of(self.rows())


class Reporter:
    """Shows one stage at a time; `quiet` shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line for people."""
        if not self.quiet:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """One line that people should not miss; shown even when quiet."""
        print(f"warning: {text}", file=sys.stderr)

    @contextmanager
    def stage(
        self, name: str, unit: str, total: float, *, logs: Path | None = None, stuck_after_s: float = 0.0
    ) -> Iterator[StageView]:
        """Shows a stage while the block runs and its summary line when it ends; with `logs` its workers too."""
        workers = WorkersSeen(logs, name, stuck_after_s) if logs is not None and total and not self.quiet else None
        view = StageView(Stage(name, unit, total), self, workers)
        try:
            with view:
                yield view
        finally:
            if total:
                self.say(view.stage.line())


class StageView:
    """The display of one stage."""

    def __init__(self, stage: Stage, reporter: Reporter, workers: WorkersSeen | None = None) -> None:
        self.stage = stage
        self._reporter = reporter
        self._workers = workers
        self._last_line = time.monotonic()
        self._over = threading.Event()
        self._live: Live | None = None
        shown = not reporter.quiet and bool(stage.total)
        if shown and reporter.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
            )
            self._task = self._bar.add_task(stage.name, total=stage.total, rate="")
            self._live = Live(
                get_renderable=self._picture, console=reporter.console, refresh_per_second=2, transient=True
            )
        elif shown and workers is not None:
            threading.Thread(target=self._lines, daemon=True).start()

    def __enter__(self) -> StageView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._live:
            self._live.stop()

    def advance(self, amount: float, note: str = "") -> None:
        """Adds finished work and redraws."""
        self.stage.advance(amount, note)
        self._redraw()

    def reach(self, done: float) -> None:
        """So much is finished in all, if no more was before; redraws."""
        self.stage.reach(done)
        self._redraw()

    def _redraw(self) -> None:
        if self._live is None and self._workers is None and not self._reporter.quiet:
            self._say_if_due()

    def _say_if_due(self) -> None:
        now = time.monotonic()
        every_s = LINE_EVERY_S if now - self.stage.started < RECENT_S else LATER_EVERY_S
        if self.stage.done < self.stage.total and now - self._last_line > every_s:
            self._last_line = now
            workers = self._workers.summary() if self._workers else ""
            self._reporter.say(self.stage.line() + _apart(f"workers: {workers}" if workers else ""))

    def _lines(self) -> None:
        """A line when it is due, also while no shard is done: silence is what people wonder about."""
        while not self._over.wait(0.5):
            self._say_if_due()

    def _picture(self) -> Group:
        """Bar, workers and note, drawn by the terminal's refresh."""
        stage = self.stage
        rate = f"{stage.rate:,.1f} {stage.unit}/s, 5 min {stage.recent_rate:,.1f}/s"
        self._bar.update(self._task, completed=stage.done, rate=rate)
        lines = worker_texts(self._workers.rows() if self._workers else [])
        note = [Text(f"  {stage.note}")] if stage.note else []
        return Group(self._bar, *note, *lines)


def worst_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of workers, those that need a look first."""
    return sorted(rows, key=lambda row: (_WORST_FIRST.index(row["state"]), row["id"]))


def summary_of(rows: Iterable[dict[str, Any]]) -> str:
    """How many workers are in which state, stuck ones by name."""
    rows = list(rows)
    counts = Counter(row["state"] for row in rows)
    text = ", ".join(f"{counts[state]} {state}" for state in _WORST_FIRST if counts[state])
    stuck = [f"{row['id']} for {duration(row['silent_s'])}" for row in rows if row["state"] == "stuck"]
    return f"{text} ({', '.join(stuck)})" if stuck else text


def worker_texts(rows: Sequence[dict[str, Any]]) -> list[Text]:
    """A line a worker for a terminal, and a sum where they are many; `rows` as `worst_first` gives them."""
    lines = [
        Text(f"  {worker_line(row)}", style="red" if row["state"] in ("stuck", "failed") else "dim", no_wrap=True)
        for row in rows[:WORKERS_SHOWN]
    ]
    if len(rows) > WORKERS_SHOWN:
        lines.append(Text(f"  and more: {summary_of(rows)}", style="dim"))
    return lines


def rates_text(overall: float, recent: float | None, left_s: float | None) -> str:
    """A rate a second overall and over five minutes, and the time left, as far as they are known."""
    lately = "" if recent is None else f" (5 min {recent:,.1f}/s)"
    return f"{overall:,.1f}/s{lately}" + ("" if left_s is None else f", {duration(left_s)} left")


def amount(value: float) -> str:
    """A count, or megabytes."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def duration(seconds: float) -> str:
    """Hours and minutes, minutes and seconds, or seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _apart(text: str) -> str:
    return f"  {text}" if text else ""
