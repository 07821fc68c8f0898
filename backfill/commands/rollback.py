"""Go back to the state of a bundle before its last change. The current state is kept too, until `gc`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--to", default="", metavar="HEX", help="the state whose manifest's SHA-256 starts so")
    parser.add_argument("--list", action="store_true", help="show the states that are kept, and change nothing")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json
    from backfill.lifecycle import earlier_states, rollback

    if args.list:
        states = earlier_states(args.bundle)
        if args.json:
            rows = [
                {"manifest": s.manifest, "at": s.at, "by": s.kind, "exchanges": s.exchanges, "complete": s.complete}
                for s in states
            ]
            print_json({"bundle": str(args.bundle), "states": rows})
        for state in () if args.json else states:
            gone = "" if state.complete else "  (files of it are gone)"
            print(f"{state.manifest[:16]}  {state.exchanges:>9,} exchanges  {state.at}  {state.kind}{gone}")
        if not states and not args.json:
            print(f"{args.bundle} keeps no earlier state")
        return 0
    record = rollback(args.bundle, args.to)
    if args.json:
        print_json(record)
    else:
        print(
            f"{args.bundle}: back to {record['to'][:16]} with {record['exchanges']:,} exchanges; "
            f"`backfill rollback {args.bundle} --to {record['from'][:16]}` undoes it"
        )
    return 0
