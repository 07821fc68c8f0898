"""`python -m bench NAME|all [--quick]`: runs benchmarks and appends their results to bench/results.csv."""

from __future__ import annotations

import argparse
import csv
import importlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backfill.errors import BackfillError
from bench.budget import SETUP_S, TESTS_S, planned, run_line
from bench.harness import Result, machine
from bench.lines import LINES, green

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ("at", "git", "machine", "name", "value", "unit", "peers", "limit", "ratio", "goal", "met", "notes")


def main() -> int:
    """Runs what is asked for; exit code 1 when a benchmark could not be run or its tests are red."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=(*LINES, "all"))
    parser.add_argument("--quick", action="store_true", help="smaller inputs and fewer runs")
    parser.add_argument(
        "--tests", action="store_true", help="first run the tests of the same thing; red ones stop a line"
    )
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.csv")
    parser.add_argument("--slack", type=float, default=1.0, metavar="FACTOR", help="of `all --quick`: longer budgets")
    args = parser.parse_args()
    if args.name != "all":
        return 0 if _one(args.name, args) is not None else 1
    return _all(args)


def _all(args: argparse.Namespace) -> int:
    """Every line in a process of its own; with --quick each has a budget of time, and is cut at its end."""
    from bench.growth import QUICK_BUNDLES

    started = time.monotonic()
    budgets = planned(args.slack) if args.quick else {}
    names = [name for name in LINES if name in budgets or not args.quick]
    if args.quick:
        told = ", ".join(f"{name} {seconds:.0f}" for name, seconds in budgets.items())
        in_all = SETUP_S * args.slack + sum(budgets.values())
        print(f"== planned, at most {in_all:.0f} s: set-up {SETUP_S * args.slack:.0f}, {told}", flush=True)
        print(f"   by hand: {', '.join(name for name in LINES if name not in budgets)}", flush=True)
        command = [sys.executable, "-m", "bench.synthetic", *map(str, QUICK_BUNDLES)]
        _, why = run_line(command, SETUP_S * args.slack)
        if why.startswith("cut"):
            print(f"set-up: {why}; lines build what they lack", file=sys.stderr)
    options = [f"--{name.replace('_', '-')}" for name in ("quick", "tests", "no_record") if getattr(args, name)]
    found: list[dict[str, Any]] = []
    for name in names:
        budget_s = budgets[name] + (TESTS_S if args.tests else 0) if budgets else None
        record, why = run_line([sys.executable, "-m", "bench", name, *options], budget_s)
        if record is None:
            print(f"{name}: {why}", file=sys.stderr, flush=True)
        else:
            found.append(record)
    print(f"== all  ({len(names)} lines in {time.monotonic() - started:.0f} s)")
    print(_summary(found, len(names)).line(), flush=True)
    return 0 if len(found) == len(names) else 1


def _one(name: str, args: argparse.Namespace) -> Result | None:
    """One line, with what it took; None where it could not be run."""
    print(f"== {name}  ({machine()}; tested by {' '.join(LINES[name])})", flush=True)
    if args.tests and not green(name):
        print(f"skipped: the tests of {name} fail, so its figure would say nothing", file=sys.stderr)
        return None
    began, cpu = time.monotonic(), _cpu_s()
    try:
        result: Result = importlib.import_module(f"bench.{name}").run(args.quick)
    except (ModuleNotFoundError, BackfillError) as error:
        print(f"skipped: {error}", file=sys.stderr)
        return None
    if result.notes:
        print(f"  {result.notes}")
    print(f"  took {time.monotonic() - began:.0f} s, {_cpu_s() - cpu:.0f} CPU s")
    if not args.no_record:
        record(result)
    print(result.line(), flush=True)
    return result


def _cpu_s() -> float:
    """CPU seconds of this process and of the children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def _summary(found: Sequence[dict[str, Any]], wanted: int) -> Result:
    """How many lines reach their goals; a line without one counts as reaching it, one without a result does not."""
    reached = sum(record["met"] is not False for record in found)
    return Result(
        name="all",
        value=reached,
        unit="lines that reach their goals",
        peers={record["name"]: record["ratio"] for record in found},
        limit=f"{wanted} lines",
        ratio=reached / wanted,
        goal="every line",
        met=reached == wanted,
    )


def record(result: Result) -> None:
    """Appends a result with machine, time and git ref."""
    new = not RESULTS.exists()
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    peers = " ".join(f"{name}={value:.3f}" for name, value in result.peers.items())
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerow(
            (
                datetime.now(UTC).isoformat(timespec="seconds"),
                git.stdout.strip(),
                machine(),
                result.name,
                f"{result.value:.3f}",
                result.unit,
                peers,
                result.limit,
                f"{result.ratio:.3f}",
                result.goal,
                result.met,
                result.notes,
            )
        )


if __name__ == "__main__":
    sys.exit(main())
