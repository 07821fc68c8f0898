"""Lines in processes of their own, each with a budget of seconds: one that hangs is cut, and the others go on.

A line that is cut says so and counts as not measured; what it had begun is ended with its process. Deliberately absent:
budgets of the full sizes, which take hours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

# Seconds of each line with --quick, from the CPU seconds that it takes, or should by its parts (bench/README.md says
# which), with a quarter on top. With the set-up, which builds bundles where they are not, they stay below `ENOUGH_S`.
ENOUGH_S = 720
SETUP_S = 45
QUICK_S = {
    "scan": 28, "distill": 140, "mask": 110, "tokens": 4, "overhead": 28, "extractive": 10, "merge": 95, "embed": 35,
    "bm25": 30, "vectors": 12, "query": 8, "open": 14, "size": 3, "faults": 8, "quality": 12, "neardup": 10,
    "growth": 120,
}  # fmt: skip
TESTS_S = 120
_END_S = 5.0


def planned(slack: float = 1.0) -> dict[str, float]:
    """Seconds of each line that a quick run has, longer by `slack` for a machine that is slow or shared."""
    return {name: slack * budget_s for name, budget_s in QUICK_S.items()}


def run_line(
    command: Sequence[str], budget_s: float | None, say: Callable[[str], None] = print
) -> tuple[dict[str, Any] | None, str]:
    """Runs one line and says its output as it comes; returns its record, or None and why there is none."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    assert process.stdout is not None
    lines: list[str] = []
    reading = threading.Thread(target=_read, args=(process.stdout, lines, say), daemon=True)
    reading.start()
    with _ended(process):
        try:
            process.wait(budget_s)
        except subprocess.TimeoutExpired:
            return None, f"cut after its budget of {budget_s:g} s"
    # A child of its own that outlives it may hold the pipe: its words are not waited for.
    reading.join(_END_S)
    record = _record(lines)
    if process.returncode or record is None:
        return None, f"ended with exit code {process.returncode} and without a result"
    return record, ""


def _read(stream: IO[str], lines: list[str], say: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            lines.append(line.rstrip("\n"))
            say(lines[-1])


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever ends the block, the process and its group are gone afterwards."""
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
                break


def _record(lines: Sequence[str]) -> dict[str, Any] | None:
    """The result: the last line that is one, for libraries may have a word after it."""
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and {"name", "ratio", "met"} <= set(record):
                return record
    return None
