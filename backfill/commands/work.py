"""Distill and embed the shards of one worker of a run: what array jobs call. Scan first; merge afterwards.

When its own are done, a worker does what stuck ones left (launcher.stuck_after_s), and waits for that only while every
missing shard is in somebody's hands.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--shard", required=True, metavar="K/N", help="zero-based worker K of N")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from functools import partial

    from backfill.errors import UsageError
    from backfill.ids import canonical_json
    from backfill.interrupts import StopFlag
    from backfill.joining import settings_here
    from backfill.pipeline import prepare_work
    from backfill.presence import present
    from backfill.rundir import RunDir
    from backfill.shard_sizes import largest_first
    from backfill.stages import work
    from backfill.takeover import abandoned_shards

    match = re.fullmatch(r"(\d+)/(\d+)", args.shard)
    if not match or int(match[2]) < 1 or int(match[1]) >= int(match[2]):
        raise UsageError(f"--shard {args.shard!r} is not K/N with 0 <= K < N")
    rank, world_size = int(match[1]), int(match[2])
    run_dir = RunDir(args.run.absolute())
    config = run_dir.plan().bound_config()
    stop = StopFlag().install()
    done = {"distill": 0, "embed": 0}

    def count(stage: str, shard: int, stats: dict[str, object]) -> None:
        done[stage] += 1

    name = f"w{rank}of{world_size}"
    with present(run_dir.logs, name, settings_here(config)) as tag:
        plan, worker = prepare_work(run_dir), name + tag
        for stage in done:
            own = [s for s in run_dir.missing(plan, stage) if s % world_size == rank]
            shards = largest_first(run_dir, plan, stage, own)
            if shards:
                work(run_dir.path, stage, shards, worker=worker, should_stop=stop, on_done=partial(count, stage))
        for left in abandoned_shards(run_dir, plan, worker, stop):
            print(
                f"worker {left.owner} is stuck: nothing was committed for {left.silent_s / 60:,.1f} minutes; its "
                f"{left.stage} shards {', '.join(map(str, left.shards))} are done here",
                file=sys.stderr,
            )
            on_done = partial(count, left.stage)
            work(run_dir.path, left.stage, left.shards, worker=worker, should_stop=stop, on_done=on_done)
    if args.json:
        print(canonical_json({"run": str(run_dir.path), "shard": args.shard, "done": done}).decode())
    else:
        print(f"{run_dir.path}: worker {args.shard} did {done['distill']} distill and {done['embed']} embed shards")
    return 0
