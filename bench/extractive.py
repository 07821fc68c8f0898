"""The extractive distiller: exchange rows of the sample transcripts to objects, one process and two.

Nothing is remembered from one row to the next. Value: rows a second of two processes by the clock; a CPU second of one
process beside it, for the clock of a shared machine says little. Goal: 3,000.
"""

from __future__ import annotations

import multiprocessing
import time

from backfill.extractive import extract
from bench.harness import Result, take_turns, timed
from bench.overhead import distinct_rows

GOAL = 3000.0


def run(quick: bool) -> Result:
    """Measures rows/s; see the module."""
    n, runs = (1000, 2) if quick else (4000, 5)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_prepare, [n, n], chunksize=1)
        subjects = {
            "two processes": lambda: 2 * n / timed(lambda: pool.map(_once, [n, n], chunksize=1)),
            "one process": lambda: n / timed(lambda: pool.map(_once, [n], chunksize=1)),
            "one process, a CPU second": lambda: n / pool.map(_once, [n], chunksize=1)[0],
        }
        spread = take_turns(subjects, runs)
    value, cpu = spread["two processes"].median, spread["one process, a CPU second"].median
    return Result(
        name="extractive",
        value=value,
        unit="rows/s",
        peers={name: s.median for name, s in spread.items() if name != "two processes"},
        limit="two cores to itself: twice the rows of a CPU second",
        ratio=value / GOAL,
        goal=f">= {GOAL:g} rows/s on two cores",
        met=value >= GOAL,
        spread=spread,
        notes=f"twice a CPU second: {2 * cpu:.0f} rows",
    )


_rows: dict[int, list[object]] = {}


def _prepare(n: int) -> None:
    _rows[n] = list(distinct_rows(0, n))


def _once(n: int) -> float:
    """CPU seconds of one process over `n` rows."""
    if n not in _rows:
        _prepare(n)
    began = time.process_time()
    for row in _rows[n]:
        extract(row, generation=0, fingerprint="f", min_tokens=12)  # type: ignore[arg-type]
    return time.process_time() - began
