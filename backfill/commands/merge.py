"""Merge run folders and bundles into one bundle. The order of the inputs does not matter."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("inputs", nargs="+", type=Path, metavar="RUN|BUNDLE")
    parser.add_argument("--out", required=True, type=Path, metavar="BUNDLE", help="the bundle to write")
    parser.add_argument("--reembed", action="store_true", help="give all inputs vectors of the first one's encoder")
    parser.add_argument("--trust-encoder", action="store_true", help="load that encoder whoever made it")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.ids import canonical_json
    from backfill.merge import merge
    from backfill.pipeline import input_of_run

    record = merge(args.inputs, args.out, input_of_run, reembed=args.reembed, trust=args.trust_encoder)
    if args.json:
        print(canonical_json(record).decode())
    else:
        print(
            f"{record['out']}: {record['exchanges']:,} exchanges ({record['added']:,} added to the first input), "
            f"logical digest {record['logical_digest'][:16]}, {record['seconds']:.1f} s"
        )
        if record["truncated"]:
            print(f"{record['truncated']:,} texts were longer than the encoder reads, and were cut for their vectors")
    return 0
