"""Build the indexes that a large bundle is searched by, and drop those that no longer fit it.

Up to 100,000 vectors every one is looked at, and nothing is built for them. Above, an index names candidates and the
stored vectors rank them; one that misses the recall wanted is not kept. From 2,000 exchanges the BM25 indexes of the
months are joined too, so that a search looks for a word once; it finds the same. A run does this by itself; after
`merge` and `add`, search goes without until this command has run. Needs room for one index in memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--kind", choices=("auto", "exact", "hnsw", "ivf"), default="auto", help="which index (auto)")
    parser.add_argument("--recall", type=float, default=0.95, metavar="R", help="recall@10 to reach (0.95)")
    parser.add_argument("--memory-gb", type=float, default=0.0, metavar="GB", help="what it may take (half the host's)")
    parser.add_argument("--gpu", action="store_true", help="train on all GPUs (needs faiss-gpu)")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.ann_files import refresh
    from backfill.commands.printing import print_json
    from backfill.config import IndexConfig
    from backfill.errors import UsageError

    if not 0 < args.recall <= 1 or args.memory_gb < 0:
        raise UsageError("--recall wants a number above 0 and up to 1, --memory-gb none below 0")
    device: Literal["cpu", "gpu"] = "gpu" if args.gpu else "cpu"
    config = IndexConfig(ann=args.kind, ann_recall=args.recall, ann_memory_gb=args.memory_gb, ann_device=device)
    made = refresh(args.bundle, config)
    if args.json:
        names = ("roles", "kind", "reason", "n_rows", "bytes", "recall10", "effort", "seconds")
        indexes = [{name: getattr(card, name) for name in names} for card in made]
        print_json({"bundle": str(args.bundle), "indexes": indexes})
        return 0
    for card in made:
        gated = f"; recall@10 {card.recall10:.3f}" if card.factory and card.file else ""
        print(f"{card.roles}: {card.reason}{gated}")
    return 0
