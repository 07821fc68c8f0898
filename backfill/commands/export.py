"""Pack a bundle into one file, the same bytes for the same bundle; home directories become ~."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("file", type=Path, metavar="FILE.tar.zst")
    parser.add_argument("--keep-paths", action="store_true", help="leave home directories as they are")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json
    from backfill.errors import UsageError
    from backfill.transport import export_bundle

    if not (args.bundle / "manifest.json").is_file():
        raise UsageError(f"{args.bundle} is not a bundle", hint="a run writes its bundle into RUN/bundle")
    record = export_bundle(args.bundle, args.file, keep_paths=args.keep_paths)
    if args.json:
        print_json(record)
        return 0
    masked = "" if args.keep_paths else f", home directories masked in {record['masked_rows']:,} rows"
    print(f"{args.file}: {record['exchanges']:,} exchanges, {record['bytes'] / 1e6:,.1f} MB{masked}")
    return 0
