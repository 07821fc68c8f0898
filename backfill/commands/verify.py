"""Check a bundle or a run folder: checksums first, then ids, contexts, visibility and the ledger."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("path", type=Path, metavar="RUN|BUNDLE")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder whoever made it")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 0 when everything holds, 1 otherwise."""
    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.verify import verify_bundle

    if (args.path / "plan.json").is_file():
        from backfill.verify_run import verify_run

        verdict = verify_run(args.path, trust_encoder=args.trust_encoder)
    elif (args.path / "manifest.json").is_file():
        verdict = verify_bundle(args.path, trust_encoder=args.trust_encoder)
    else:
        raise UsageError(f"{args.path} is neither a run folder nor a bundle")
    if args.json:
        print(canonical_json(verdict.record()).decode())
        return 0 if not verdict.errors else 1
    for problem in verdict.errors:
        print(f"{problem.file}: {problem.kind}: {problem.detail}")
    for warning in verdict.warnings:
        print(f"note: {warning}")
    balance = {True: "balanced", False: "NOT balanced", None: "not recorded"}[verdict.ledger_balanced]
    probe = "" if verdict.probe_cosine is None else f", probe cosine {verdict.probe_cosine:.5f}"
    state = f"{len(verdict.errors)} problems" if verdict.errors else "sound"
    print(f"{args.path}: {state}; ledger {balance}{probe}")
    return 0 if not verdict.errors else 1
