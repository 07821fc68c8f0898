"""What a run will take, before anything is spent: exchanges, tokens, hours with an interval, memory, disk, price.

Of a run folder, what its scan read is counted; of a config, a sample of the sources is read and scaled up. Hours come
from a measured profile in `profiles/` beside the config, or with `--calibrate` from a few hundred exchanges that the
engine is asked about here. Nothing that is made is kept.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill.config import Config
    from backfill.model_memory import ModelMemory

DEFAULT_SAMPLE = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("target", type=Path, metavar="RUN|CONFIG", help="a scanned run folder, or a YAML file")
    parser.add_argument("--calibrate", action="store_true", help="ask the engine about a sample, and time it")
    parser.add_argument("--sample", type=int, default=0, metavar="N",
                        help="how many items to ask about (default: 300, or three windows of the engine)")  # fmt: skip
    parser.add_argument("--price", type=float, metavar="PER_HOUR", help="price of a GPU-hour, in any currency")
    parser.add_argument("--source", action="append", default=[], metavar="PATH", help="replaces `sources`; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.errors import UsageError
    from backfill.ids import canonical_json

    if args.sample < 0 or (args.price is not None and not 0 <= args.price < float("inf")):
        raise UsageError("--sample and --price cannot be negative")
    record = plan_of(args.target, args)
    if args.json:
        print(canonical_json(record).decode())
    else:
        _print(record)
    return 0


def plan_of(target: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The `plan --json` record of a run folder or a config."""
    from backfill.config import load_config
    from backfill.errors import UsageError
    from backfill.rundir import RunDir
    from backfill.workload import of_config, of_run

    if target.is_dir():
        if args.source or args.set:
            raise UsageError("--source and --set go with a CONFIG, not with a run folder")
        run_dir = RunDir(target.absolute())
        plan = run_dir.plan()
        config = _sized(plan.bound_config())
        known = _known(config, run_dir)
        work = of_run(run_dir, plan, config, known=known, n_rows=_sample_size(config, args.sample))
        return _estimate(config, work, args, profile_folders=[Path("configs/profiles")])
    config = _sized(load_config(target, overrides=tuple(args.set), sources=tuple(args.source)))
    if not config.sources:
        raise UsageError("no sources", hint="name some in the config, or pass --source PATH")
    work = of_config(config, known=_known(config, None), n_rows=_sample_size(config, args.sample))
    return _estimate(config, work, args, profile_folders=[target.absolute().parent / "profiles"])


def _sized(config: Config) -> Config:
    """The configuration with the batch that its engine would choose."""
    from backfill.engines.sizing import sized

    return replace(config, engine=sized(config.engine)[0])


def _estimate(config: Config, work: Any, args: argparse.Namespace, *, profile_folders: list[Path]) -> dict[str, Any]:
    from backfill.calibrate import calibrate, speeds_of
    from backfill.errors import BackfillError
    from backfill.estimate import estimate
    from backfill.interrupts import StopFlag
    from backfill.profiles import around, load_profiles, profile_for

    if not work.exchanges:
        raise BackfillError(f"no exchange was found in {work.files} files", hint="check `sources`")
    profiles = [p for folder in profile_folders for p in load_profiles(folder)]
    profile = profile_for(profiles, config.engine) or around(profiles)
    if args.calibrate and (work.rows or work.sample_windows):
        speeds = calibrate(config, work.rows, work.sample_windows, StopFlag().install())
    else:
        speeds = speeds_of(config, profile_for(profiles, config.engine))
    return estimate(work, config, speeds, profile, _memory(config), price_per_hour=args.price)


def _known(config: Config, run_dir: Any) -> frozenset[bytes]:
    """Contents that an earlier run paid for: published objects of the run, logged answers, the user's cache."""
    from backfill.answers import answered_contents
    from backfill.distill import distill_fingerprint
    from backfill.errors import ModelError
    from backfill.gate import LLM_KINDS
    from backfill.joining import generation_fingerprint
    from backfill.weights import cache_dir
    from backfill.workload import done_contents

    try:
        print_ = generation_fingerprint(config, distill_fingerprint(config.distill, config.engine))
    except ModelError:
        return frozenset()  # an engine whose model is elsewhere has answered nothing here
    logs: list[Path] = []
    done: frozenset[bytes] = frozenset()
    if run_dir is not None:
        logs += run_dir.logs.glob(f"answers-*.{print_[:8]}.jsonl")
        plan = run_dir.plan()
        done = done_contents(run_dir, plan) if plan.distill_fingerprint == print_ else done
    if config.engine.kind in LLM_KINDS and config.distill.cache:
        logs += (cache_dir() / "answers").glob(f"*.{print_[:8]}.jsonl")
    return done | answered_contents(logs, print_)


def _sample_size(config: Config, asked: int) -> int:
    """Three windows at the least: a rate is of a full window."""
    engine = config.engine
    window = engine.window or math.ceil(1.25 * engine.max_num_seqs)
    return asked or max(DEFAULT_SAMPLE, 3 * window if engine.kind != "extractive" else 0)


def _memory(config: Config) -> ModelMemory | None:
    """What the model takes, where its files are here; raises ModelError, with what would fit, where it does not fit."""
    from backfill.engines.model_files import local_model
    from backfill.errors import ModelError
    from backfill.model_memory import check_engine_fits, devices, model_memory

    if config.engine.kind != "vllm":
        return None
    try:
        directory = local_model(config.engine.model)
    except ModelError:
        return None
    check_engine_fits(config.engine)
    return model_memory(directory, config.engine, on_gpu=bool(devices()))


def _print(record: dict[str, Any]) -> None:
    hours = record["hours"]
    print(
        f"{record['exchanges']:,} exchanges: {record['to_distill']:,} to distill, {record['cached']:,} cached, "
        f"{record['repeats']:,} repeats, {record['short']:,} short; {record['windows']:,} windows for claims"
    )
    print(f"tokens: {record['tokens_in']:,} in, {record['tokens_out']:,} out, {record['requests']:,} requests")
    if hours["mid"] is None:
        print("hours: not known, for no profile was measured for this engine; --calibrate measures it")
    else:
        stages = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in record["stage_seconds"].items())
        print(f"hours: {hours['mid']:.3f} ({hours['low']:.3f} to {hours['high']:.3f}): {stages}")
    memory = f"memory {record['memory_bytes'] / 1e9:.1f} GB, " if record["memory_bytes"] else ""
    print(
        f"GPU {record['gpu_bytes'] / 1e9:.1f} GB, {memory}disk {record['disk_bytes'] / 1e9:.2f} GB in "
        f"{record['inodes']:,} files" + (f", price {record['price']:,}" if record["price"] is not None else "")
    )
    for setting in record["settings"]:
        print(f"  {setting['name']} = {setting['value']}  ({setting['reason']})")
