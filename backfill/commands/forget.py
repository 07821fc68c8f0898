"""Hide exchanges, here and in every later merge. `gc` then takes their text off the disk."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("ids", nargs="*", metavar="ID", help="exchange ids: 6 to 32 hex digits")
    parser.add_argument("--session", action="append", default=[], metavar="ID", help="all exchanges of a session")
    parser.add_argument("--reason", default="asked", help="kept beside the tombstone")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json
    from backfill.growth import forget

    record = forget(args.bundle, args.ids, args.reason, args.session)
    if args.json:
        print_json(record)
        return 0
    print(
        f"{args.bundle}: {len(record['forgotten']):,} exchanges are hidden, {record['exchanges']:,} are left; "
        f"`backfill rollback` would still show them, `backfill gc` frees their text"
    )
    return 0
