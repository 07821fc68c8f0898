"""Check this machine before a run: GPU, driver, memory, models, disk, clock, versions; and say what to fix.

Exits 1 where something would stop a run. Nothing is loaded and nothing is changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

_SIGNS = {"ok": ("green", "ok     "), "warning": ("yellow", "warning"), "error": ("red", "ERROR  ")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="also check its models")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where runs will lie")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from dataclasses import asdict

    from backfill.commands.printing import clean_line, print_json, print_lines
    from backfill.config import load_config
    from backfill.doctor import examine

    found = examine(load_config(args.config) if args.config else None, args.folder)
    failed = any(finding.level == "error" for finding in found)
    if args.json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in found]})
        return int(failed)
    lines = []
    for finding in found:
        style, sign = _SIGNS[finding.level]
        lines.append((style, f"{sign} {finding.check:<9} {clean_line(finding.text)}"))
        if finding.fix:
            lines.append(("", f"{'':<18}{clean_line(finding.fix)}"))
    print_lines(lines)
    return int(failed)
