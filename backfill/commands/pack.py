"""Pack the memory into a token budget: Markdown for a prompt, CLAUDE.md or AGENTS.md, the newest or the best first.

Objects and claims go in whole or not at all, grouped by project and room.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backfill.bundle import Bundle
from backfill.commands.printing import print_json, print_lines
from backfill.commands.query import add_filters, filters_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill pack`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--budget", type=int, required=True, metavar="TOKENS", help="the most it may take")
    parser.add_argument("--query", metavar="TEXT", help="the best for these words, instead of the newest")
    parser.add_argument("--what", choices=("objects", "claims", "both"), default="objects", help="objects unless told")
    parser.add_argument("--ids", action="store_true", help="with the exchange ids, for backfill show")
    add_filters(parser)
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Prints the pack."""
    bundle = Bundle.open(args.bundle, trust_encoder=args.trust_encoder)
    pack = bundle.pack(args.budget, args.query, what=args.what, ids=args.ids, **filters_of(args))
    if args.json:
        print_json(pack.to_tree())
    else:
        print_lines(("", line) for line in pack.text.rstrip("\n").split("\n"))
    return 0
