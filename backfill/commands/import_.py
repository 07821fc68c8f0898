"""Unpack a bundle from one file. The file may be a stranger's: nothing of it is believed before it is checked."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("file", type=Path, metavar="FILE.tar.zst")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a new folder")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json
    from backfill.transport import import_bundle

    record = import_bundle(args.file, args.bundle)
    if args.json:
        print_json(record)
    else:
        print(f"{args.bundle}: {record['exchanges']:,} exchanges, {record['bytes'] / 1e6:,.1f} MB; "
              f"`backfill verify {args.bundle}` checks ids and contexts too")  # fmt: skip
    return 0
