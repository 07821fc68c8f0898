"""Everything about a run or a bundle on one page that stands alone, and the same as report.json.

Written beside what it is about: report.html and report.json in the run folder, or in the folder of `--out` (which a
bundle needs, for a bundle's own folder stays as it is).
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("target", type=Path, metavar="RUN|BUNDLE")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the two files go")
    parser.add_argument("--price", type=float, metavar="PER_HOUR", help="price of a GPU-hour, in any currency")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.durable import make_dirs, replace_file
    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.report import report_of

    if args.price is not None and not 0 <= args.price < float("inf"):
        raise UsageError("--price cannot be negative")
    record = report_of(args.target, price_per_hour=args.price)
    if args.out is None and record["kind"] == "bundle":
        raise UsageError("a bundle's folder stays as it is", hint="name another folder: --out FOLDER")
    try:
        from backfill.report_page import page
    except ImportError as error:
        raise UsageError(f"the page needs {error.name}", hint='pip install "backfill[web]"') from error
    folder: Path = args.out or args.target
    make_dirs(folder)
    replace_file(folder / "report.json", canonical_json(record) + b"\n")
    replace_file(folder / "report.html", page(record).encode("utf-8", "replace"))
    if args.json:
        print(canonical_json({**record, "html": str(folder / "report.html")}).decode())
        return 0
    print(f"{folder / 'report.html'}: {len(record['warnings'])} things need a person")
    for warning in record["warnings"]:
        print(f"  {warning}")
    return 0
