"""`run`: all stages over one run folder, each resumed from what its manifests say is done.

scan -> plan a round -> distill -> embed -> merge. Reads a config, writes RUN; prints nothing but through the reporter.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill.ann_files import refresh
from backfill.config import Config, to_tree
from backfill.durable import make_dirs, told_when_full
from backfill.errors import BackfillError, ConfigError, JoinRefused, ShardError
from backfill.gate import LLM_KINDS, UNGATED, verdict_of
from backfill.inputs import Input, Settings, read_run
from backfill.joining import check_may_join, fingerprint_here, parts_here, settings_here
from backfill.launchers import Launcher, make_launcher
from backfill.lineage import host_record
from backfill.merge import write_run
from backfill.presence import present
from backfill.progress import Reporter
from backfill.reading import metered
from backfill.rundir import CLAIMS, OBJECT, Plan, RunDir
from backfill.shard_sizes import distill_sizes, largest_first
from backfill.stages import ShouldStop
from backfill.worker_states import Tally

UNITS = {"scan": "MB", "distill": "items", "embed": "items"}


def scan_sources(
    run: RunDir, config: Config, launcher: Launcher, reporter: Reporter, should_stop: ShouldStop
) -> tuple[Plan, dict[str, Any]]:
    """Plans and reads the sources; returns the plan and the `scan --json` record.

    What another process adds to the plan meanwhile is read too, so that later stages find everything. Raises ShardError
    where it reads the folder in another way: neither would be whole.
    """
    from backfill.scan import plan_scan, scan_summary

    started = time.monotonic()
    run.make()
    plan = plan_scan(run, config, config.sources)
    for warning in plan.warnings:
        reporter.warn(warning)
    print_of_scan = plan.scan_fingerprint
    while True:
        if plan.scan_fingerprint != print_of_scan:
            raise ShardError(
                f"another process began to scan into {run.path} with other settings",
                hint="give each its own --out folder, or run this command again when the other has ended",
            )
        missing = largest_first(run, plan, "scan", run.missing(plan, "scan"))
        _read_shards(run, plan, missing, launcher, reporter, should_stop)
        newest = run.plan()
        if newest == plan:
            break
        plan = newest
    return plan, {**scan_summary(run, plan, time.monotonic() - started), "warnings": list(plan.warnings)}


def _read_shards(
    run: RunDir, plan: Plan, missing: list[int], launcher: Launcher, reporter: Reporter, should_stop: ShouldStop
) -> None:
    sizes = [sum(u.total_bytes for u in shard.units) / 1e6 for shard in plan.scan_shards]
    total = round(sum(sizes[s] for s in missing), 1)
    done = read = 0.0

    def show(more_done: float, more_read: float) -> None:
        """What is read of shards that are not done counts too, but where it is a container inside of which is read."""
        nonlocal done, read
        done, read = done + more_done, read + more_read
        view.reach(round(min(total, max(done, read)), 1))

    after_s = plan.bound_config().launcher.stuck_after_s
    with (
        reporter.stage("scan", UNITS["scan"], total, logs=run.logs, stuck_after_s=after_s) as view,
        metered(lambda n_bytes: show(0.0, n_bytes / 1e6)),
    ):
        launcher.run(
            run.path,
            "scan",
            missing,
            should_stop=should_stop,
            on_done=lambda shard, stats: show(sizes[shard], 0.0),
        )


def fix_fingerprints(run: RunDir, config: Config) -> Plan:
    """Puts the fingerprints of engine and encoder into the plan and returns it; raises ModelError without a model."""
    made = {kind: fingerprint_here(config, kind) for kind in ("distill", "claims", "embed")}
    parts = {kind: parts_here(config, kind) for kind in made}

    def fixed(plan: Plan) -> Plan:
        return replace(
            plan,
            config=to_tree(config),
            distill_fingerprint=made["distill"],
            claims_fingerprint=made["claims"],
            embed_fingerprint=made["embed"],
            parts={**plan.parts, **parts},
        )

    return run.revise_plan(fixed)


def check_unchanged(run: RunDir, plan: Plan) -> None:
    """Raises JoinRefused where another process has given the run folder other settings than `plan` has."""

    def settings(of: Plan) -> tuple[Any, ...]:
        config = of.bound_config()
        fingerprints = (of.distill_fingerprint, of.claims_fingerprint, of.embed_fingerprint)
        return (*fingerprints, config.distill.products, config.index)

    if settings(run.plan()) != settings(plan):
        raise JoinRefused(
            f"another process gave {run.path} other settings while this one was at work",
            hint="what is published stays; give each a folder of its own with --out, or go on when the other has ended",
        )


def run_all(
    config: Config, out: Path, config_folder: Path, reporter: Reporter, should_stop: ShouldStop, *, ungated: bool
) -> dict[str, Any]:
    """Everything from sources to a bundle in RUN/bundle; returns the `run --json` record.

    Raises ConfigError before any work when a model, source or gate is missing; BackfillError when nothing was found
    or too few exchanges reached tier llm; Interrupted after a stop.
    """
    started = time.monotonic()
    verdict = admitted(config, config_folder, reporter, ungated=ungated)
    run = RunDir(out.absolute())
    run.make()
    with present(run.logs, "run", settings_here(config)) as tag, told_when_full(run.path):
        launcher = make_launcher(config, tag=tag, say=reporter.warn)
        plan, scanned = scan_sources(run, config, launcher, reporter, should_stop)
        check_found(config, scanned)
        fix_fingerprints(run, config)
        plan = plan_products(run)
        for stage in ("distill", "embed"):
            check_unchanged(run, plan)
            _stage(run, plan, stage, launcher, reporter, should_stop)
        check_unchanged(run, plan)
        record = finished(run, plan, verdict, scanned, reporter)
    return {**record, "seconds": round(time.monotonic() - started, 3)}


def check_found(config: Config, scanned: dict[str, Any]) -> None:
    """Raises BackfillError where a scan found no exchange at all: there is nothing to make a bundle of."""
    if not scanned["exchanges"]:
        raise BackfillError(
            f"no exchange was found in {scanned['files']} files below {', '.join(config.sources)}",
            hint="check `sources`; the ledger in 01-exchanges says what became of every byte",
        )


def admitted(config: Config, config_folder: Path, reporter: Reporter, *, ungated: bool) -> str:
    """The gate's verdict on the engine, as `verdict_of`; raises ConfigError before any work where it may not run."""
    from backfill.distill import distill_fingerprint

    if OBJECT not in config.distill.products:
        raise ConfigError(
            f"distill.products {list(config.distill.products)}: objects are always made, for every exchange has one",
            hint="set distill.products to [objects] or [objects, claims]",
        )
    print_ = distill_fingerprint(config.distill, config.engine)
    verdict = verdict_of(config, config_folder, print_, ungated=ungated)
    if verdict == UNGATED:
        reporter.say(
            f"engine {config.engine.kind} ({config.engine.model}) runs UNGATED: its fidelity is not vouched for"
        )
    return verdict


def finished(run: RunDir, plan: Plan, verdict: str, scanned: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Merges a run whose shards are all done; returns the `run --json` record but for its seconds.

    Raises BackfillError, after the bundle is written, where too few exchanges reached tier llm.
    """
    config = plan.bound_config()
    totals = distill_totals(run, plan)
    reporter.say(_tiers(totals))
    merged = merge_run(run, plan, verdict, scanned)
    for made in refresh(run.bundle, config.index):
        reporter.say(f"index over {made.roles}: {made.reason}")
    check_llm_share(config, totals)
    return {"run": str(run.path), "bundle": str(run.bundle), "scan": scanned, "distill": totals, **merged}


def prepare_work(run: RunDir) -> Plan:
    """The plan of a scanned run with its distillation shards fixed: what `work` starts from.

    Raises ShardError where scanning is not done, JoinRefused where this process would make something else than was
    planned. Workers that start together compute the same plan.
    """
    plan = run.plan()
    for stage in ("distill", "embed"):
        check_may_join(plan, stage)
    if not plan.distill_fingerprint:
        fix_fingerprints(run, plan.bound_config())
    return plan_products(run)


def plan_products(run: RunDir) -> Plan:
    """The plan with distillation shards for everything scanned, of every product that the configuration asks for."""
    from backfill.claim_rounds import plan_claims
    from backfill.rounds import plan_round

    plan = plan_round(run)
    return plan_claims(run) if CLAIMS in plan.bound_config().distill.products else plan


def _stage(
    run: RunDir, plan: Plan, stage: str, launcher: Launcher, reporter: Reporter, should_stop: ShouldStop
) -> None:
    missing = largest_first(run, plan, stage, run.missing(plan, stage))
    rows = {shard: size.rows for shard, size in distill_sizes(run, plan).items()}
    tally = Tally()
    after_s = plan.bound_config().launcher.stuck_after_s
    total = sum(rows.get(s, 0) for s in missing)
    with reporter.stage(stage, UNITS[stage], total, logs=run.logs, stuck_after_s=after_s) as view:
        if missing:
            launcher.run(
                run.path,
                stage,
                missing,
                should_stop=should_stop,
                on_done=lambda shard, stats: view.advance(rows.get(shard, 0), tally.note(stats)),
            )


def distill_totals(run: RunDir, plan: Plan) -> dict[str, Any]:
    """Sums over the distillation shards of objects: rows per tier, failures by reason, tokens; under `claims` the
    same of windows, and how many claims they gave."""
    totals = _sums(run, plan, OBJECT)
    return {**totals, CLAIMS: _sums(run, plan, CLAIMS)} if CLAIMS in plan.bound_config().distill.products else totals


def _sums(run: RunDir, plan: Plan, product: str) -> dict[str, Any]:
    totals: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for shard in plan.distill_shards(product):
        manifest = run.object_manifest(plan, shard)
        if manifest is not None:
            stats = dict(manifest.stats)
            failures.update(stats.pop("failures"))
            totals.update(stats)
    totals["engine_s"] = round(totals["engine_s"], 3)
    hits = round(totals["tokens_cached"] / totals["tokens_in"], 4) if totals["tokens_in"] else 0.0
    return {**totals, "prefix_hit_rate": hits, "failures": dict(failures.most_common())}


def check_llm_share(config: Config, totals: dict[str, Any]) -> None:
    """Raises BackfillError where too few exchanges reached tier llm: a dead engine never hides behind its fallback."""
    eligible = totals.get("eligible", 0)
    if config.engine.kind not in (*LLM_KINDS, "scripted") or not eligible:
        return
    share = totals.get("llm", 0) / eligible
    if share < config.distill.min_llm_share:
        commonest = ", ".join(f"{reason} {n}" for reason, n in list(totals["failures"].items())[:5])
        raise BackfillError(
            f"only {share:.1%} of {eligible} exchanges were distilled by the LLM; min_llm_share wants "
            f"{config.distill.min_llm_share:.1%}. Commonest failures: {commonest or 'none recorded'}",
            hint="the bundle is written, but most of it is extractive; mend the engine, or lower distill.min_llm_share",
        )


def merge_run(run: RunDir, plan: Plan, verdict: str, scanned: dict[str, Any]) -> dict[str, Any]:
    """Writes RUN/bundle from the finished shards."""
    from backfill.trust import record_encoder

    one = input_of_run(run.path, verdict)
    if one.settings.encoder:
        record_encoder(one.settings.encoder["sha256"])
    ledger = {key: scanned[key] for key in ("files", "records", "states", "bytes", "balanced")}
    lineage = {"kind": "run", **host_record(), "roots": list(plan.roots), "config": plan.config, "ledger": ledger,
               "distill": distill_totals(run, plan), "engines": _engines(run)}  # fmt: skip
    make_dirs(run.bundle)
    return write_run(one, run.bundle, lineage)


def _engines(run: RunDir) -> list[dict[str, Any]]:
    """What each worker's engine recorded of itself, in the order of their names."""
    return [json.loads(path.read_bytes()) for path in sorted(run.logs.glob("engine-*.json"))]


def input_of_run(path: Path, verdict: str | None = None) -> Input:
    """A finished run folder as an input of a merge."""
    from backfill.encoders import export_encoder
    from backfill.indexes.tokenizer import TOKENIZER_VERSION

    run = RunDir(path)
    plan = run.plan()
    config = plan.bound_config()
    encoder = export_encoder(config.embedder)
    index = config.index
    gate = verdict if verdict is not None else (UNGATED if config.engine.kind in LLM_KINDS else "")
    settings = Settings(
        encoder=encoder.info,
        bm25={"tokenizer_version": TOKENIZER_VERSION, "k1": index.k1, "b": index.b},
        index={**index.recorded(), **({"verbatim_vectors": True} if config.embedder.verbatim else {})},
        parts=config.embedder.parts,
        fingerprints={
            "scan": [plan.scan_fingerprint],
            "distill": [plan.distill_fingerprint],
            **({CLAIMS: [plan.claims_fingerprint]} if CLAIMS in config.distill.products else {}),
            "embed": [plan.embed_fingerprint],
        },
        gate={plan.distill_fingerprint: gate} if gate else {},
    )
    return read_run(run, plan, settings, encoder.files)


def _tiers(totals: dict[str, Any]) -> str:
    counts = ", ".join(f"{totals.get(tier, 0):,} {tier}" for tier in ("llm", "extractive", "raw"))
    line = f"objects: {totals.get('n', 0):,} ({counts})"
    made = totals.get(CLAIMS)
    return f"{line}; claims: {made.get('n_claims', 0):,} of {made.get('n', 0):,} windows" if made else line
