"""How far a run is, read from its files alone: from any shell or node that sees the folder."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("run", type=Path, metavar="RUN")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.ids import canonical_json
    from backfill.status import status_of
    from backfill.worker_states import worker_line

    record = status_of(args.run)
    if args.json:
        print(canonical_json(record).decode())
        return 0
    print(f"{args.run}: {record['state']}")
    for name, stage in record["stages"].items():
        print(f"  {name:<8} {stage['done']:,}/{stage['total']:,} shards")
    rate, tokens = record["rate"], record["token_rate"]
    print(f"  rate     {rate['m5']:,.1f}/s over 5 minutes, {rate['overall']:,.1f}/s overall; {tokens['m5']:,.0f} and "
          f"{tokens['overall']:,.0f} tokens/s")  # fmt: skip
    if record["eta_s"] is not None:
        print(f"  left     {record['eta_s'] / 60:,.0f} min")
    for worker in record["workers"]:
        print(f"  worker   {worker_line(worker)}")
    for reason, count in record["failures"].items():
        print(f"  failures: {reason} {count:,}")
    return 0
