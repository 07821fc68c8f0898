"""Distill and embed the shards of one worker of a run: what array jobs call. Scan first; merge afterwards."""

from __future__ import annotations

import argparse
import re
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--shard", required=True, metavar="K/N", help="zero-based worker K of N")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.interrupts import StopFlag
    from backfill.pipeline import prepare_work
    from backfill.rundir import RunDir
    from backfill.stages import work

    match = re.fullmatch(r"(\d+)/(\d+)", args.shard)
    if not match or int(match[2]) < 1 or int(match[1]) >= int(match[2]):
        raise UsageError(f"--shard {args.shard!r} is not K/N with 0 <= K < N")
    rank, world_size = int(match[1]), int(match[2])
    run_dir = RunDir(args.run.absolute())
    plan = prepare_work(run_dir)
    stop = StopFlag().install()
    done = {"distill": 0, "embed": 0}
    for stage in done:
        shards = [s for s in run_dir.missing(plan, stage) if s % world_size == rank]

        def count(shard: int, stats: dict[str, object], stage: str = stage) -> None:
            done[stage] += 1

        if shards:
            work(run_dir.path, stage, shards, worker=f"w{rank}of{world_size}", should_stop=stop, on_done=count)
    if args.json:
        print(canonical_json({"run": str(run_dir.path), "shard": args.shard, "done": done}).decode())
    else:
        print(f"{run_dir.path}: worker {args.shard} did {done['distill']} distill and {done['embed']} embed shards")
    return 0
