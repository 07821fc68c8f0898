"""All stages over a folder of transcripts: scan, distill, embed, merge. Resumes by itself; Ctrl-C loses nothing."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file, such as configs/cpu.yaml")
    parser.add_argument("--source", action="append", default=[], metavar="PATH", help="replaces `sources`; repeatable")
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run folder (default: `run` of the config)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")
    parser.add_argument(
        "--cache",
        action="append",
        default=[],
        metavar="BUNDLE|RUN",
        help="takes over what an LLM made there; repeatable",
    )
    parser.add_argument("--ungated", action="store_true", help="let an LLM engine run without a recorded PASS")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from dataclasses import replace

    from backfill.answer_cache import cache_places
    from backfill.config import load_config
    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.interrupts import StopFlag
    from backfill.metrics import metrics_served
    from backfill.pipeline import run_all
    from backfill.progress import Reporter

    config = load_config(args.config, overrides=tuple(args.set), sources=tuple(args.source))
    if args.cache:
        places = (*config.distill.cache_from, *(str(Path(place).absolute()) for place in args.cache))
        config = replace(config, distill=replace(config.distill, cache_from=places))
        cache_places(places)
    if not config.sources:
        raise UsageError("no sources", hint="name some in the config, or pass --source PATH")
    stop = StopFlag().install()
    reporter = Reporter(quiet=args.json)
    out = args.out or Path(config.run)
    with contextlib.ExitStack() as stack:
        if config.launcher.metrics_port:
            stack.enter_context(metrics_served(out.absolute(), config.launcher.metrics_port))
        record = run_all(config, out, args.config.absolute().parent, reporter, stop, ungated=args.ungated)
    if args.json:
        print(canonical_json(record).decode())
    else:
        counts = record["counts"]
        print(
            f"{record['bundle']}: {counts['visible_exchanges']:,} exchanges, {counts['visible_objects']:,} objects, "
            f"{counts['rooms']:,} rooms, logical digest {record['logical_digest'][:16]}, {record['seconds']:.1f} s"
        )
    return 0
