"""A run that is followed, as people and programs see it: a live picture, a line now and then, or lines of JSON.

Takes `status` records (`following.looks`). The words and figures are those of the display that `run` shows
(`progress`). Deliberately absent: reading a run.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from backfill.clean import clean_line
from backfill.ids import canonical_json
from backfill.pace import RECENT_S
from backfill.progress import LATER_EVERY_S, LINE_EVERY_S, amount, rates_text, summary_of, worker_texts, worst_first

JOBS_SHOWN = 8
REFUSALS_SHOWN = 3


class View(Protocol):
    """Shows how a run stands, look by look."""

    def show(self, record: dict[str, Any]) -> None: ...


@contextmanager
def view_of(*, as_json: bool) -> Iterator[View]:
    """What stdout takes: a live picture on a terminal, lines elsewhere, lines of JSON where they are asked for."""
    console = Console(highlight=False, soft_wrap=True)
    if as_json or not console.is_terminal:
        yield Lines(as_json=as_json)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Picture(live)


class Lines:
    """A line when it is due: every ten seconds, after five minutes every minute, at once where something changes that a
    person waits for (a stage that ends, a worker that gets stuck), and one at the end."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._began = time.monotonic()
        self._due_at = 0.0
        self._news: tuple[Any, ...] = ()

    def show(self, record: dict[str, Any]) -> None:
        now = time.monotonic()
        stage = _stage_at_work(record)
        news = (stage, record["stuck"], record.get("ended"))
        if now < self._due_at and news == self._news:
            return
        self._due_at = now + (LINE_EVERY_S if now - self._began < RECENT_S else LATER_EVERY_S)
        self._news = news
        at = datetime.now(UTC).isoformat(timespec="seconds")
        if self._as_json:
            print(canonical_json({**record, "at": at}).decode(), flush=True)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            print(f"{at[11:19]} {line_of(record)}".encode(encoding, "replace").decode(encoding), flush=True)


class Picture:
    """A bar for each stage, rates, jobs, refused answers and the workers, on a terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bars = Progress(TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(),
                              TextColumn("{task.fields[unit]}"))  # fmt: skip
        self._tasks = {name: self._bars.add_task(name, unit="") for name in ("scan", "distill", "embed", "merge")}

    def show(self, record: dict[str, Any]) -> None:
        for name, task in self._tasks.items():
            done, total, unit = _share(record, name)
            # A bar of nothing would count as full.
            self._bars.update(task, completed=done, total=total or None, unit=unit)
        rates = _rates(record) if _stage_at_work(record) == "distill" else ""
        lines = [Text(f"  {text}") for text in (rates, _queue(record), _refused(record)) if text]
        lines += [Text(f"  {_job_line(job)}", style="dim", no_wrap=True) for job in record.get("jobs", [])[:JOBS_SHOWN]]
        self._live.update(Group(self._bars, *lines, *worker_texts(worst_first(record["workers"]))), refresh=True)


def line_of(record: dict[str, Any]) -> str:
    """A record on one line: the stage at work, its rates and time left, workers, jobs, refused answers."""
    stage = _stage_at_work(record)
    done, total, unit = _share(record, stage)
    parts = [f"{stage}: {amount(done)}/{amount(total)} {unit}" if record["state"] != "done" else "done"]
    parts += [_rates(record)] if stage == "distill" else []
    workers = summary_of(worst_first(row for row in record["workers"] if row["stage"] == stage))
    parts += [f"workers: {workers}"] if workers else []
    return clean_line("  ".join(part for part in (*parts, _queue(record), _refused(record)) if part))


def _stage_at_work(record: dict[str, Any]) -> str:
    """The first stage that is not done; nothing is planned of later ones before."""
    return next((name for name, stage in record["stages"].items() if stage["done"] < stage["total"]), "merge")


def _share(record: dict[str, Any], name: str) -> tuple[int, int, str]:
    of, unit = (record["items"], "items") if name == "distill" else (record["stages"][name], "shards")
    return of["done"], of["total"], "" if name == "merge" else unit


def _rates(record: dict[str, Any]) -> str:
    rate, tokens = record["rate"], record["token_rate"]
    if not rate["overall"]:
        return ""
    told = rates_text(rate["overall"], rate["m5"], record["eta_s"])
    return f"{told}, {tokens['m5']:,.0f} tokens/s (overall {tokens['overall']:,.0f})" if tokens["overall"] else told


def _refused(record: dict[str, Any]) -> str:
    kinds = list(record["failures"].items())[:REFUSALS_SHOWN]
    return "refused: " + ", ".join(f"{clean_line(kind)} {n:,}" for kind, n in kinds) if kinds else ""


def _queue(record: dict[str, Any]) -> str:
    """Jobs by state; a controller that did not answer is said beside what it said last."""
    if "jobs" not in record:
        return ""
    counts = Counter(job["state"] for job in record["jobs"])
    said = ", ".join(f"{n} {clean_line(state)}" for state, n in counts.most_common()) or "empty"
    failed = f" ({clean_line(record['queue_error'])})" if record.get("queue_error") else ""
    return f"queue: {said}{failed}"


def _job_line(job: dict[str, Any]) -> str:
    return clean_line(f"{job['id']} {job['name']} {job['state']} {job['ran']} {job['reason']}")
