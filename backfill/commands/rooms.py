"""The rooms of a bundle, the fullest first; with ROOM, the exchanges in it, the newest first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backfill.bundle import Bundle
from backfill.commands.printing import clean_line, print_json, print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill rooms`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("room", nargs="?", metavar="ROOM", help="key or type:key")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="entries a page (50)")
    parser.add_argument("--cursor", help="goes on where an earlier page ended")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Prints a page of rooms, or of one room's exchanges."""
    tree = Bundle.open(args.bundle).rooms(args.room or None, limit=args.limit, cursor=args.cursor).to_tree()
    if args.json:
        print_json(tree)
    else:
        print_lines(_lines(tree))
    return 0


def _lines(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for room in tree["rooms"]:
        last = (room["last_at"] or "undated")[:10]
        yield "", f"{room['exchanges']:>6}  {last:<10}  {clean_line(room['type'] + ':' + room['key'])}"
    for hit in tree.get("hits", ()):
        day = (hit["started_at"] or "undated")[:10]
        text = f"{clean_line(hit['project'])}  {clean_line(hit['exchange_core'])}"
        yield "", f"{day:<10}  {hit['exchange_id'][:12]}  {text}"
    if not tree["rooms"]:
        yield "", "No rooms."
    if tree["cursor"]:
        yield "dim", f"more: --cursor {tree['cursor']}"
