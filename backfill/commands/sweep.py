"""Distill what landed raw, extractive or ungated, in one bundle or all bundles of a folder: the daily job.

Takes what `enqueue` left first, where one bundle is named. What the engine has tried already is not tried again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backfill.commands.add import ingest_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE", help="bundles, or folders of them")
    ingest_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what is due, and change nothing")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 0, or 1 where a bundle could not be swept."""
    from backfill.commands.printing import print_json, print_warnings
    from backfill.errors import BackfillError, Interrupted
    from backfill.growth import add_with_spool
    from backfill.ingest_config import ingest_for
    from backfill.interrupts import StopFlag
    from backfill.sweep import bundles_below, sweep

    bundles = [found for given in args.bundles for found in bundles_below(given)]
    options = {"ungated": args.ungated, "trust_encoder": args.trust_encoder}
    settings = {b: ingest_for(b, args.config, tuple(args.set), bulk=True, **options) for b in bundles}
    stop = StopFlag().install()
    records, problems = [], []
    for bundle, ingest in settings.items():
        try:
            spooled: dict[str, Any] = {"added": 0, "spooled": 0, "warnings": []}
            if not args.no_spool and not args.dry_run and len(bundles) == 1:
                spooled = add_with_spool(bundle, [], ingest, stop, spool=True)
                print_warnings(spooled["warnings"])
            record = sweep(bundle, ingest, stop, dry_run=args.dry_run)
            records.append({**record, "added": spooled["added"], "spooled": spooled["spooled"]})
        except Interrupted:
            raise
        except BackfillError as error:
            problems.append({"bundle": str(bundle), "message": str(error), "hint": error.hint})
            continue
        if not args.json:
            _say(records[-1], dry_run=args.dry_run)
    if args.json:
        print_json({"ok": not problems, "bundles": records, "problems": problems})
    print_warnings(f"{p['bundle']}: {p['message']}" + (f" ({p['hint']})" if p["hint"] else "") for p in problems)
    return 1 if problems else 0


def _say(record: dict[str, object], *, dry_run: bool) -> None:
    counts = record["due_tiers"] if dry_run else record["tiers"]
    tiers = ", ".join(f"{n:,} {tier}" for tier, n in sorted(counts.items())) if isinstance(counts, dict) else ""
    verb = "due" if dry_run else "distilled"
    windows = f", claims of {record['due_windows']:,} windows" if record["due_windows"] else ""
    print(f"{record['bundle']}: {record['due']:,} {verb}{f' ({tiers})' if tiers else ''}{windows}")
