"""Run a config on a Slurm cluster: a scan job, an array of workers, and a merge job that submits again what is missing.

`submit` is for people, on a login node; `status` tells how it stands, `cancel` stops it; `scan` and `merge` are what
the jobs call. With `--follow`, `submit` and `status` show the run and its jobs until it ends; Ctrl-C leaves both alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill.config import Config
    from backfill.launchers.slurm import Round


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="submit|status|cancel|scan|merge")
    submit = verbs.add_parser("submit", help="write the jobs of a config into RUN/slurm and submit them")
    submit.add_argument("config", type=Path, metavar="CONFIG")
    submit.add_argument("--source", action="append", default=[], metavar="PATH", help="replaces `sources`; repeatable")
    submit.add_argument("--out", type=Path, metavar="RUN", help="the run folder (default: `run` of the config)")
    submit.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")
    submit.add_argument("--ungated", action="store_true", help="let an LLM engine run without a recorded PASS")
    submit.add_argument("--ray-nodes", type=int, default=0, metavar="N", help="one job over N whole nodes, by Ray")
    shown = submit.add_mutually_exclusive_group()
    shown.add_argument("--dry-run", action="store_true", help="print the jobs; write and submit nothing")
    shown.add_argument("--follow", action="store_true", help="then show the run and its jobs until it ends")
    status = verbs.add_parser("status", help="what the queue and the manifests say of a run")
    cancel = verbs.add_parser("cancel", help="take a run's jobs out of the queue; what is done stays")
    scan = verbs.add_parser("scan", help="read a planned run's transcripts (the scan job)")
    merge = verbs.add_parser("merge", help="write the bundle, or submit what is missing (the merge job)")
    status.add_argument("run", type=Path, metavar="RUN|CONFIG", help="a run folder, or the config that names it")
    status.add_argument("--follow", action="store_true", help="show the run and its jobs until it ends")
    for verb in (cancel, scan, merge):
        verb.add_argument("run", type=Path, metavar="RUN")
    merge.add_argument("--round", type=int, required=True, metavar="N", help="the round that has ended")
    for verb in (submit, status, cancel, scan, merge):
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one line of JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.ids import canonical_json

    do = {"submit": _submit, "status": _status, "cancel": _cancel, "scan": _scan, "merge": _merge}[args.verb]
    follows = getattr(args, "follow", False)
    if not (follows and args.verb == "status"):
        record, text = do(args)
        print(canonical_json(record).decode() if args.json else text, flush=True)
    return _follow(_run_path(args), as_json=args.json) if follows else 0


def _follow(path: Path, *, as_json: bool) -> int:
    from backfill.commands.status import follow
    from backfill.launchers.slurm_queue import SlurmQueue
    from backfill.rundir import RunDir

    return follow(path, as_json=as_json, queue=SlurmQueue(RunDir(path)))


def _run_path(args: argparse.Namespace) -> Path:
    """The run folder that is meant: named itself, or by a config."""
    from backfill.config import load_config

    named: Path | None = args.out if args.verb == "submit" else args.run
    if args.verb == "submit":
        named = named or Path(load_config(args.config, overrides=tuple(args.set), sources=tuple(args.source)).run)
    elif named is not None and named.is_file():
        named = Path(load_config(named).run)
    return (named or Path()).absolute()


def _submit(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from backfill.config import load_config
    from backfill.errors import ConfigError, UsageError
    from backfill.launchers import sbatch, slurm
    from backfill.pipeline import admitted
    from backfill.progress import Reporter
    from backfill.rundir import RunDir
    from backfill.scan import plan_scan

    config = load_config(args.config, overrides=tuple(args.set), sources=tuple(args.source))
    if not config.sources:
        raise UsageError("no sources", hint="name some in the config, or pass --source PATH")
    if config.launcher.slurm.rounds < 1 or config.launcher.slurm.drain_s < 0:
        raise ConfigError("launcher.slurm: rounds is at least 1, drain_s at least 0")
    run_dir = RunDir((args.out or Path(config.run)).absolute())
    names, extra = [slurm.SCAN, slurm.WORK, slurm.MERGE], []
    if args.ray_nodes:
        names = [slurm.RAY]
        extra = slurm.ray_settings(args.config, args.set, args.source, ungated=args.ungated)
    texts = slurm.written_scripts(run_dir, config, names, extra)
    if args.dry_run:
        return _shown(run_dir.path, config, texts, args.ray_nodes)
    before = slurm.last_round(run_dir)
    waiting = sbatch.queued(list(before.jobs.values())) if before else []
    if waiting:
        raise UsageError(
            f"jobs of {run_dir.path} are in the queue: {', '.join(job.id for job in waiting)}",
            hint="wait for them, or scancel them first; `backfill slurm status RUN` shows them",
        )
    size = sbatch.max_array_size()
    reporter = Reporter(quiet=args.json)
    verdict = admitted(config, args.config.absolute().parent, reporter, ungated=args.ungated)
    if slurm.asks_no_gpu(config):
        reporter.warn("tasks ask for no GPU: launcher.gpus_per_worker: 1 gives each one")
    run_dir.make()
    plan_scan(run_dir, config, config.sources)
    slurm.write_scripts(run_dir, texts)
    first = slurm.Round(before.number if before else -1, config.launcher.slurm.rounds, verdict, size, {})
    if args.ray_nodes:
        made = slurm.submit_ray(run_dir, first, args.ray_nodes)
    else:
        made = slurm.submit_round(run_dir, config, first, ([0], []))
    record = _record(run_dir.path, made) | {"scripts": sorted(str(run_dir.path / slurm.FOLDER / n) for n in texts)}
    jobs = ", ".join(f"{name} {number}" for name, number in made.jobs.items())
    return record, f"{run_dir.path}: submitted {jobs}\n  backfill slurm status {run_dir.path}"


def _record(path: Path, made: Round) -> dict[str, Any]:
    return {"run": str(path), "round": made.number, "jobs": made.jobs, "array": made.array, "modulus": made.modulus}


def _shown(path: Path, config: Config, texts: dict[str, str], ray_nodes: int) -> tuple[dict[str, Any], str]:
    """What would be written and called; the cluster is not asked, so the array is that of the default limit."""
    import shlex

    from backfill.launchers import sbatch, slurm

    if ray_nodes:
        calls = [["sbatch", f"--nodes={ray_nodes}", str(path / slurm.FOLDER / f"{slurm.RAY}.sbatch")]]
    else:
        jobs, _, _ = slurm.jobs_of_round(config, 0, sbatch.DEFAULT_MAX_ARRAY_SIZE, ([0], []))
        calls = [
            ["sbatch", *slurm.sbatch_options(job, {}), str(path / slurm.FOLDER / f"{job.name}.sbatch"), *job.arguments]
            for job in jobs
        ]
    lines = [shlex.join(call) for call in calls]
    text = "\n".join(f"==> {path / slurm.FOLDER / name} <==\n{body}" for name, body in texts.items())
    return {"run": str(path), "scripts": texts, "calls": calls}, "\n".join((text, *lines))


def _status(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from backfill.commands.status import status_lines
    from backfill.launchers import sbatch
    from backfill.launchers.slurm_queue import SlurmQueue
    from backfill.rundir import RunDir
    from backfill.status import status_of

    path = _run_path(args)
    record = {**status_of(path), **SlurmQueue(RunDir(path)).record()}
    if "queue_error" in record:
        raise sbatch.SlurmError(record["queue_error"], hint="`backfill status RUN` tells what the run's files say")
    first, *lines = status_lines(path, record)
    told = [f"  round    {record['round']}, {record['rounds_left']} may follow"] if "round" in record else []
    jobs = [
        f"  {job['id']:<12} {job['name']:<15} {job['state']} {job['ran']} {job['reason']}" for job in record["jobs"]
    ]
    if not jobs:
        jobs = ["  no job is in the queue" + ("" if record["state"] == "done" else ": submit again to go on")]
    return record, "\n".join((first, *told, *lines, *jobs))


def _cancel(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from backfill.launchers import sbatch, slurm
    from backfill.rundir import RunDir

    path = args.run.absolute()
    made = slurm.last_round(RunDir(path))
    # The merge job first: it would submit what the others leave behind.
    names = sorted(made.jobs, key=lambda name: name != slurm.MERGE) if made else []
    numbers = [made.jobs[name] for name in names] if made else []
    waiting = [job.id for job in sbatch.queued(numbers)]
    sbatch.cancel(numbers if waiting else [])
    text = f"cancelled {', '.join(waiting)}; `backfill slurm submit` goes on" if waiting else "no job is in the queue"
    return {"run": str(path), "cancelled": waiting}, f"{path}: {text}"


def _scan(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from dataclasses import replace

    from backfill.interrupts import StopFlag
    from backfill.launchers import make_launcher
    from backfill.pipeline import check_found, fix_fingerprints, plan_products, scan_sources
    from backfill.progress import Reporter
    from backfill.rundir import RunDir

    stop = StopFlag().install()
    run_dir = RunDir(args.run.absolute())
    config = run_dir.plan().bound_config()
    here = replace(config, launcher=replace(config.launcher, kind="inline"))
    _, scanned = scan_sources(run_dir, config, make_launcher(here), Reporter(quiet=args.json), stop)
    check_found(config, scanned)
    fix_fingerprints(run_dir, config)
    shards = len(plan_products(run_dir).distill_shards())
    return {**scanned, "shards": shards}, f"{scanned['exchanges']:,} exchanges in {shards:,} shards"


def _merge(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from backfill.errors import ShardError
    from backfill.launchers import slurm
    from backfill.pipeline import check_found, finished
    from backfill.progress import Reporter
    from backfill.rundir import RunDir
    from backfill.scan import scan_summary

    run_dir = RunDir(args.run.absolute())
    made = slurm.last_round(run_dir)
    if made is None or made.number != args.round:
        raise ShardError(f"round {args.round} is not the last one of {run_dir.path}", hint="another one was submitted")
    plan = run_dir.plan()
    config = plan.bound_config()
    scan, work = slurm.missing_shards(run_dir)
    if not run_dir.missing(plan, "scan"):
        check_found(config, scan_summary(run_dir, plan, 0.0))
    if scan or work:
        lacking = (
            "reading is not done" if scan else f"{len(work):,} shards are missing: {slurm.array_of(work, 0)[:200]}"
        )
        if made.left < 1:
            raise ShardError(
                f"after the last round {lacking}", hint=f"{run_dir.logs}/slurm-*.out say why; submit again"
            )
        following = slurm.submit_patiently(run_dir, config, made, (scan, work))
        record = {**_record(run_dir.path, following), "missing": work}
        return record, f"{lacking}; submitted round {following.number}: {following.jobs}"
    damaged = slurm.damaged_files(run_dir)
    if damaged:
        raise ShardError(
            f"{len(damaged)} files of finished shards are damaged: {'; '.join(damaged[:5])}",
            hint="delete the manifests of these shards (shard-NNNNN.*.json beside them) and submit again",
        )
    scanned = scan_summary(run_dir, plan, 0.0)
    record = finished(run_dir, plan, made.verdict, scanned, Reporter(quiet=args.json))
    return record, f"{record['bundle']}: logical digest {record['logical_digest'][:16]}"
