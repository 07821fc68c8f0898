"""`python -m bench NAME|all [--quick]`: runs benchmarks and appends their results to bench/results.csv."""

from __future__ import annotations

import argparse
import csv
import importlib
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from backfill.errors import BackfillError
from bench.harness import Result, machine

BENCHMARKS = (
    "scan", "distill", "mask", "tokens", "overhead", "extractive", "merge", "embed", "bm25",
    "vectors", "query", "open", "size", "faults", "quality",
)  # fmt: skip
RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ("at", "git", "machine", "name", "value", "unit", "peers", "limit", "ratio", "goal", "met", "notes")


def main() -> int:
    """Runs what is asked for; exit code 1 when a benchmark could not be run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=(*BENCHMARKS, "all"))
    parser.add_argument("--quick", action="store_true", help="smaller inputs and fewer runs")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.csv")
    args = parser.parse_args()
    failed = 0
    for name in BENCHMARKS if args.name == "all" else (args.name,):
        print(f"== {name}  ({machine()})", flush=True)
        try:
            result: Result = importlib.import_module(f"bench.{name}").run(args.quick)
        except (ModuleNotFoundError, BackfillError) as error:
            print(f"skipped: {error}", file=sys.stderr)
            failed += 1
            continue
        if result.notes:
            print(f"  {result.notes}")
        if not args.no_record:
            record(result)
        print(result.line(), flush=True)
    return 1 if failed else 0


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
