"""How far a run is, read from its files alone: from any shell or node that sees the folder.

`--follow` goes on until the run ends: a live picture on a terminal, a line now and then elsewhere, a record a line with
`--json`. Exit code 0 where it is done, 1 where it ended before. Ctrl-C ends the following, never the run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill.following import Queue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--follow", action="store_true", help="show the run until it ends; Ctrl-C leaves it alone")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.ids import canonical_json
    from backfill.launchers.slurm import last_round
    from backfill.rundir import RunDir
    from backfill.status import status_of

    if args.follow:
        return follow(args.run, as_json=args.json, elsewhere=last_round(RunDir(args.run)) is not None)
    record = status_of(args.run)
    print(canonical_json(record).decode() if args.json else "\n".join(status_lines(args.run, record)))
    return 0


def status_lines(path: Path, record: dict[str, Any]) -> list[str]:
    """A status record for people."""
    from backfill.progress import duration
    from backfill.worker_states import worker_line

    rate, tokens = record["rate"], record["token_rate"]
    return [
        f"{path}: {record['state']}",
        *(f"  {name:<8} {stage['done']:,}/{stage['total']:,} shards" for name, stage in record["stages"].items()),
        f"  rate     {rate['m5']:,.1f}/s over 5 minutes, {rate['overall']:,.1f}/s overall",
        f"  tokens   {tokens['m5']:,.0f}/s over 5 minutes, {tokens['overall']:,.0f}/s overall",
        *([f"  left     {duration(record['eta_s'])}"] if record["eta_s"] is not None else []),
        *(f"  worker   {worker_line(worker)}" for worker in record["workers"]),
        *(f"  failures: {reason} {count:,}" for reason, count in record["failures"].items()),
    ]


def follow(path: Path, *, as_json: bool, queue: Queue | None = None, elsewhere: bool = False) -> int:
    """Shows a run until it ends; returns the exit code. See `following.looks`."""
    from backfill.cli import EXIT_INTERRUPTED
    from backfill.following import DONE, looks
    from backfill.run_view import view_of
    from backfill.status import Status

    record: dict[str, Any] = {}
    try:
        with view_of(as_json=as_json) as view:
            for record in looks(Status(path), queue, elsewhere=elsewhere):
                view.show(record)
    except KeyboardInterrupt:
        print("not followed any more; the run was left alone", file=sys.stderr)
        return EXIT_INTERRUPTED
    if not as_json:
        print("\n".join(status_lines(path, record)))
    if record["ended"] == DONE:
        return 0
    print(f"backfill: {path} is not done, and nobody is at work on it\n  the command that began it goes on",
          file=sys.stderr)  # fmt: skip
    return 1
