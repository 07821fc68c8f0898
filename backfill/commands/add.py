"""Add new transcripts to a bundle: read, distill, embed, merge. Also takes what `enqueue` left for this bundle.

Never blocks on an engine: what it cannot answer in time lands raw, and `sweep` distills it later.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE", help="files or folders; none: the spool")
    ingest_arguments(parser)


def ingest_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that `add`, `sweep` and `watch` share."""
    parser.add_argument("--config", type=Path, metavar="CONFIG", help="its engine and settings (default: extractive)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")
    parser.add_argument("--ungated", action="store_true", help="let an LLM engine run without a recorded PASS")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder whoever made it")
    parser.add_argument("--no-spool", action="store_true", help="leave what `enqueue` left where it is")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json, print_warnings
    from backfill.errors import UsageError
    from backfill.growth import add_with_spool
    from backfill.ingest_config import ingest_for
    from backfill.interrupts import StopFlag

    if not (args.bundle / "manifest.json").is_file():
        raise UsageError(f"{args.bundle} is not a bundle", hint="`backfill run` makes one, in RUN/bundle")
    ingest = ingest_for(
        args.bundle, args.config, tuple(args.set), ungated=args.ungated, trust_encoder=args.trust_encoder
    )
    stop = StopFlag().install()
    record = add_with_spool(args.bundle, args.sources, ingest, stop, spool=not args.no_spool)
    print_warnings(record["warnings"])
    if args.json:
        print_json(record)
        return 0
    tiers = ", ".join(f"{n:,} {tier}" for tier, n in sorted(record["tiers"].items())) or "nothing new"
    print(f"{args.bundle}: {record['added']:,} exchanges added ({tiers}) of {record['files']:,} files, "
          f"{record['seconds']:.1f} s")  # fmt: skip
    return 0
