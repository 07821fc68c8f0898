"""Read transcripts into exchanges, occurrences and a ledger that accounts for every byte."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a file or a folder")
    parser.add_argument("--out", required=True, type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("--agent", default="auto", metavar="auto|NAME", help="force a reader")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that read")
    parser.add_argument(
        "--near-dup", action="store_true", help="report near copies, as a search folds them; nothing is deleted"
    )
    parser.add_argument("--near-dup-device", choices=("cpu", "cuda"), default="cpu", help="where signatures are made")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 0, or 1 when the ledger does not balance."""
    from dataclasses import replace

    from backfill.config import Config, ScanConfig
    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.indexes import gpu_kmeans
    from backfill.interrupts import StopFlag
    from backfill.launchers import make_launcher
    from backfill.pipeline import scan_sources
    from backfill.progress import Reporter
    from backfill.rundir import RunDir

    if args.workers < 1:
        raise UsageError("--workers must be at least 1")
    if args.near_dup and args.near_dup_device == "cuda" and not gpu_kmeans.is_there():
        raise UsageError(
            "--near-dup-device is cuda, but torch sees no GPU", hint="leave it out: signatures are the same"
        )
    config = replace(Config(), sources=tuple(args.sources), scan=ScanConfig(agent=args.agent, workers=args.workers))
    stop = StopFlag().install()
    reporter = Reporter(quiet=args.json)
    out = RunDir(args.out.absolute())
    plan, record = scan_sources(out, config, make_launcher(config), reporter, stop)
    if args.near_dup:
        from backfill.near_copies import find

        record["near_dup"] = find(out, plan, stop, args.near_dup_device)
    if args.json:
        print(canonical_json(record).decode())
    else:
        _print(record)
    return 0 if record["balanced"] else 1


def _print(record: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    states = ("part_of", "duplicate", "skipped", "quarantined", "pending")
    table = Table("format", "files", "MB", *states, "exchanges", "occurrences", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for agent, counts in record["formats"].items():
        cells = [f"{counts.get(name, 0):,}" for name in (*states, "exchanges", "occurrences")]
        table.add_row(agent, f"{counts['files']:,}", f"{counts['bytes'] / 1e6:,.1f}", *cells)
    Console(highlight=False, width=max(Console().width, 110)).print(table)
    _print_reach(record["reach"])
    if "near_dup" in record:
        _print_near_copies(record["near_dup"])
    balance = "balanced" if record["balanced"] else "NOT balanced: " + "; ".join(record["problems"][:3])
    print(
        f"{record['files']:,} files, {record['records']:,} records, {record['exchanges']:,} exchanges in "
        f"{record['sessions']:,} sessions, {record['bytes'] / 1e6:,.1f} MB in {record['seconds']:.1f} s; "
        f"ledger {balance}"
    )
    if not record["exchanges"]:
        print("no exchange was found: is this the folder of your transcripts?")


def _print_near_copies(found: dict[str, Any]) -> None:
    """The largest groups of near copies, each under the one that a search would show first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from backfill.clean import clean_line

    table = Table("shown", "project", "of", "copies", "least shared", box=None)
    for group in found["largest"]:
        shown, copies = group["shown"], group["copies"]
        cells = (shown["exchange_id"], clean_line(shown["project"]), (shown["started_at"] or "unknown")[:10])
        table.add_row(*map(Text, cells), f"{len(copies):,}", f"{min(c['similarity'] for c in copies):.2f}")
    if found["groups"]:
        Console(highlight=False, width=max(Console().width, 110)).print(table)
    print(
        f"near copies: {found['copies']:,} of {found['exchanges']:,} exchanges ({found['equal']:,} equal) in "
        f"{found['groups']:,} groups, {found['tokens']:,} tokens; a search folds them, nothing is deleted; all of "
        f"them are in {found['file']}"
    )


def _print_reach(reach: dict[str, dict[str, Any]]) -> None:
    """Sessions on disk against sessions read, from when to when, and what will be deleted."""
    from rich.console import Console
    from rich.table import Table

    table = Table("agent", "sessions on disk", "read", "oldest", "newest", box=None)
    for agent, found in reach.items():
        days = [(found[name] or "unknown")[:10] for name in ("oldest", "newest")]
        table.add_row(agent, f"{found['sessions_on_disk']:,}", f"{found['sessions_read']:,}", *days)
    if reach:
        Console(highlight=False).print(table)
    for found in reach.values():
        for warning in found["warnings"]:
            print(f"warning: {warning}")
