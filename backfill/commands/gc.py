"""Free what a bundle no longer needs: files of earlier states, and rows that nothing shows any more.

What it costs: `rollback` cannot go back beyond what is kept, and hidden rows (superseded readings, weaker objects,
everything forgotten) are gone from disk. Tombstones stay, so what was forgotten stays hidden in every later merge.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--keep", type=int, default=0, metavar="N", help="earlier states to keep for rollback (0)")
    parser.add_argument("--keep-rows", action="store_true", help="free earlier states alone, leave hidden rows")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and change nothing")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.commands.printing import print_json
    from backfill.errors import UsageError
    from backfill.lifecycle import collect, earlier_states
    from backfill.prune import prune

    if args.keep < 0:
        raise UsageError("--keep wants 0 or more")
    kept = earlier_states(args.bundle)[: args.keep]  # before pruning makes a further one, which nobody needs
    rows = {} if args.keep_rows else prune(args.bundle, dry_run=args.dry_run)["rows"]
    record = {**collect(args.bundle, kept, dry_run=args.dry_run), "rows_pruned": rows}
    if args.json:
        print_json(record)
        return 0
    hidden = ", ".join(f"{n:,} {name}" for name, n in rows.items() if n)
    verb = "would free" if args.dry_run else "freed"
    print(
        f"{args.bundle}: {verb} {record['freed_bytes'] / 1e6:,.1f} MB in {record['files']:,} files"
        + (f"; hidden rows: {hidden}" if hidden else "")
    )
    if record["states_dropped"]:
        verb = "would be" if args.dry_run else "is"
        print(f"  rollback to {record['states_dropped']} earlier states {verb} no longer possible")
    return 0
