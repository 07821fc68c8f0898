"""Add transcripts to a bundle as their sessions end: when a file has been idle, or a hook enqueued it. Until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path

from backfill.commands.add import ingest_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="SOURCE... BUNDLE", help="the bundle comes last")
    ingest_arguments(parser)
    parser.add_argument(
        "--idle", type=float, default=600.0, metavar="SECONDS", help="a session without change ends (600)"
    )
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help="time between two looks (30)")
    parser.add_argument("--once", action="store_true", help="look once and end")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from functools import partial

    from backfill.commands.printing import print_json
    from backfill.errors import UsageError
    from backfill.ingest_config import ingest_for
    from backfill.interrupts import StopFlag
    from backfill.watch import Watcher, watch

    *sources, bundle = args.paths
    if not sources:
        raise UsageError("watch wants SOURCE... BUNDLE")
    if not (bundle / "manifest.json").is_file():
        raise UsageError(f"{bundle} is not a bundle", hint="the bundle comes last")
    missing = [str(s) for s in sources if not s.exists()]
    if missing or args.idle < 0 or args.every <= 0:
        raise UsageError(f"{missing[0]} does not exist" if missing else "--idle and --every want positive seconds")
    ingest = ingest_for(bundle, args.config, tuple(args.set), ungated=args.ungated, trust_encoder=args.trust_encoder)
    stop = StopFlag().install()
    added = watch(
        bundle,
        Watcher(sources, args.idle),
        ingest,
        stop,
        partial(_report, quiet=args.json),
        every_s=args.every,
        spool=not args.no_spool,
        once=args.once,
    )
    if args.json:
        print_json({"bundle": str(bundle), "added": added})
    return 0


def _report(record: dict[str, object], *, quiet: bool) -> None:
    from backfill.commands.printing import clean_line, print_warnings

    if "problem" in record:
        print_warnings([str(record["problem"])])
    elif not quiet:
        print(
            clean_line(f"{record['bundle']}: {record['added']} exchanges added of {record['files']} files"), flush=True
        )
