"""Keep raw transcripts in a private cold storage: compressed, each chunk once, restorable to the byte."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="a file or a folder to store")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="the storage, or where to restore to")
    parser.add_argument("--restore", type=Path, metavar="COLD", help="write the files of a storage back")
    parser.add_argument("--all-versions", action="store_true", help="restore rewritten versions too, as NAME~NUMBER")
    parser.add_argument("--list", type=Path, metavar="COLD", help="what a storage holds")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 0, or 1 when a file could not be read."""
    from backfill.errors import UsageError
    from backfill.ids import canonical_json

    chosen = [bool(args.sources), args.restore is not None, args.list is not None]
    if sum(chosen) != 1 or (args.to is None) != (args.list is not None):
        raise UsageError(
            "say one of: SOURCE... --to COLD, --restore COLD --to FOLDER, --list COLD",
            hint="`backfill archive --help` tells more",
        )
    record = _list(args) if args.list else _restore(args) if args.restore else _store(args)
    if args.json:
        print(canonical_json(record).decode())
    else:
        _print(record)
    return 1 if record.get("problems") else 0


def _store(args: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from backfill.archive import archive_sources

    started = time.monotonic()
    summary = archive_sources(args.sources, args.to.expanduser().absolute())
    return {"cold": str(args.to), **asdict(summary), "seconds": round(time.monotonic() - started, 3)}


def _restore(args: argparse.Namespace) -> dict[str, Any]:
    from backfill.cold import restore

    n_files = restore(args.restore.expanduser().absolute(), args.to, all_versions=args.all_versions)
    return {"cold": str(args.restore), "to": str(args.to), "restored": n_files}


def _list(args: argparse.Namespace) -> dict[str, Any]:
    from backfill.archive import storage_rows

    return {"cold": str(args.list), "sources": storage_rows(args.list.expanduser().absolute())}


def _print(record: dict[str, Any]) -> None:
    if "sources" in record:
        for row in record["sources"]:
            print(
                f"{row['id']}  {row['files']:,} files, {row['versions']:,} versions, {row['bytes'] / 1e6:,.1f} MB in "
                f"{row['stored_bytes'] / 1e6:,.1f} MB, {row['generations']} generations, last {row['last_at']}\n"
                f"  from {row['root']}"
            )
    elif "restored" in record:
        print(f"{record['restored']:,} files restored to {record['to']}")
    else:
        print(
            f"{record['files']:,} files, {record['bytes'] / 1e6:,.1f} MB: {record['added']:,} new, "
            f"{record['grown']:,} grown, {record['rewritten']:,} rewritten, {record['unchanged']:,} unchanged; "
            f"{record['new_bytes'] / 1e6:,.1f} MB added as {record['stored_bytes'] / 1e6:,.1f} MB"
        )
        for problem in record["problems"][:20]:
            print(f"not stored: {problem}")
