"""What people see while long work runs: a bar with rate and ETA on a terminal, a line every few seconds elsewhere.

Always on stderr, so that stdout stays for results and `--json`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0


@dataclass(slots=True)
class Stage:
    """Counts of one stage; `done` and `total` are in `unit`s."""

    name: str
    unit: str
    total: float
    done: float = 0
    started: float = field(default_factory=time.monotonic)
    note: str = ""

    def advance(self, amount: float, note: str = "") -> None:
        """Adds finished work."""
        self.done += amount
        self.note = note or self.note

    @property
    def rate(self) -> float:
        """Units a second since the stage began."""
        return self.done / max(time.monotonic() - self.started, 1e-9)

    def line(self) -> str:
        """One line of text: share, rate, time left."""
        left = (self.total - self.done) / self.rate if self.done else float("nan")
        eta = "" if left != left or self.done >= self.total else f", {_duration(left)} left"
        note = f"  {self.note}" if self.note else ""
        return f"{self.name}: {_amount(self.done)}/{_amount(self.total)} {self.unit}, {self.rate:,.1f}/s{eta}{note}"


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
    def stage(self, name: str, unit: str, total: float) -> Iterator[StageView]:
        """Shows a stage while the block runs and its summary line when it ends."""
        view = StageView(Stage(name, unit, total), self)
        try:
            with view:
                yield view
        finally:
            if total:
                self.say(view.stage.line())


class StageView:
    """The display of one stage."""

    def __init__(self, stage: Stage, reporter: Reporter) -> None:
        self.stage = stage
        self._reporter = reporter
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._task = None
        if not reporter.quiet and reporter.console.is_terminal and stage.total:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=reporter.console,
                transient=True,
            )
            self._task = self._bar.add_task(stage.name, total=stage.total, rate="")

    def __enter__(self) -> StageView:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, amount: float, note: str = "") -> None:
        """Adds finished work and redraws."""
        self.stage.advance(amount, note)
        self._redraw()

    def reach(self, done: float) -> None:
        """So much is finished in all, if no more was before; redraws."""
        self.stage.done = max(self.stage.done, done)
        self._redraw()

    def _redraw(self) -> None:
        if self._bar is not None and self._task is not None:
            rate = f"{self.stage.rate:,.1f} {self.stage.unit}/s"
            self._bar.update(self._task, completed=self.stage.done, rate=rate)
        elif (
            not self._reporter.quiet
            and self.stage.done < self.stage.total
            and time.monotonic() - self._last_line > LINE_EVERY_S
        ):
            self._last_line = time.monotonic()
            self._reporter.say(self.stage.line())


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
