"""One worker: does the shards that it is given, stage by stage, and publishes each as it completes.

Launchers only decide who calls `work`. A worker loads an engine or encoder once for all its shards and asks for the
next shard when it has room, so that its window stays full until the last one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill import tables
from backfill.durable import told_when_full
from backfill.joining import check_may_join
from backfill.manifest import publish
from backfill.rundir import CLAIMS, OBJECT, Plan, RunDir
from backfill.worker_log import ANSWERS_EVERY_S, WorkerLog

if TYPE_CHECKING:
    from backfill.distill_shard import DistilledShard
    from backfill.types import Exchange
    from backfill.windows import Windows

OnDone = Callable[[int, dict[str, Any]], None]
ShouldStop = Callable[[], bool]


def work(
    path: Path, stage: str, shards: Iterable[int], *, worker: str, should_stop: ShouldStop, on_done: OnDone
) -> None:
    """Does shards of a stage (scan, distill, embed) of the run in `path`.

    `shards` is drawn from lazily; one that has been published meanwhile is not done again. `on_done(shard, stats)` is
    called once a shard's manifest is published. Raises Interrupted when asked to stop; whatever is published stays.
    Raises JoinRefused where this process would make something else than the plan wants, DiskFull where no room is left.
    """
    run = RunDir(path)
    plan = run.plan()
    check_may_join(plan, stage)
    # Whoever looks for stuck workers must see several signs of a healthy one in the time it waits.
    often_s = min(ANSWERS_EVERY_S, plan.bound_config().launcher.stuck_after_s / 4 or ANSWERS_EVERY_S)
    log = WorkerLog(run.logs, worker, stage, answers_every_s=often_s)
    do = {"scan": _scan, "distill": _distill, "embed": _embed}[stage]
    with log.ends(), told_when_full(run.path):
        do(run, plan, log.taken(_missing(run, plan, stage, shards, on_done)), log, should_stop, log.noting(on_done))


def _missing(run: RunDir, plan: Plan, stage: str, shards: Iterable[int], on_done: OnDone) -> Iterator[int]:
    """Those that are not done when their turn comes; of the others it is said that they are."""
    for shard in shards:
        manifest = run.manifest_of(plan, stage, shard)
        if manifest is None:
            yield shard
        else:
            on_done(shard, manifest.stats)


def _scan(
    run: RunDir, plan: Plan, shards: Iterable[int], log: WorkerLog, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.scan import scan_shard

    for shard in shards:
        on_done(shard, scan_shard(run, plan, shard, should_stop).stats)


def _distill(
    run: RunDir, plan: Plan, shards: Iterable[int], log: WorkerLog, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.answer_cache import cache_places, open_log
    from backfill.distill import distill
    from backfill.durable import replace_file
    from backfill.engines import make_engine
    from backfill.engines.telling import TellingEngine
    from backfill.ids import canonical_json
    from backfill.made_before import MadeBefore
    from backfill.model_memory import check_engine_fits

    config = plan.bound_config()
    prints = {OBJECT: plan.distill_fingerprint, CLAIMS: plan.claims_fingerprint}
    parts = _inputs(run, plan, shards)
    if config.engine.kind == "extractive":
        done = distill(parts, config.distill, fingerprint=prints[OBJECT], claims_fingerprint=prints[CLAIMS],
                       should_stop=should_stop)  # fmt: skip
        _publish(run, plan, done, on_done)
        return
    check_engine_fits(config.engine)
    engine = TellingEngine(make_engine(config.engine, log_path=run.logs / f"engine-{log.worker}.log"), log.answered)
    cached = config.distill.cache and not engine.deterministic
    runs, bundles = cache_places(config.distill.cache_from)
    before = MadeBefore(bundles, prints[OBJECT], prints[CLAIMS]) if bundles else None
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        logs = {
            product: stack.enter_context(open_log(run.logs, log.worker, print_, cached=cached, others=runs))
            for product, print_ in prints.items()
        }
        done = distill(
            parts,
            config.distill,
            fingerprint=prints[OBJECT],
            claims_fingerprint=prints[CLAIMS],
            engine=engine,
            max_new_tokens=config.engine.max_new_tokens,
            log=logs[OBJECT],
            claims_log=logs[CLAIMS],
            privacy=config.scan.privacy,
            before=before,
            should_stop=should_stop,
        )
        _publish(run, plan, done, on_done)
        replace_file(run.logs / f"engine-{log.worker}.json", canonical_json(engine.record()))


def _inputs(run: RunDir, plan: Plan, shards: Iterable[int]) -> Iterator[tuple[str, Sequence[Exchange] | Windows]]:
    from backfill.claim_rounds import shard_windows
    from backfill.rounds import shard_rows
    from backfill.windows import Windows

    for shard in shards:
        if plan.product_of(shard) == CLAIMS:
            yield str(shard), Windows(shard_windows(run, plan, shard))
        else:
            yield str(shard), shard_rows(run, plan, shard)


def _publish(run: RunDir, plan: Plan, done: Iterable[DistilledShard], on_done: OnDone) -> None:
    for result in done:
        shard, stats = int(result.name), asdict(result.stats)
        product = plan.product_of(shard)
        rows: list[Any] = result.claims if product == CLAIMS else result.objects
        write: dict[tuple[str, str], Callable[[Path], int]] = {
            (product, ".parquet"): partial(tables.write_table, tables.TABLES[product], rows)
        }
        on_done(shard, publish(run.objects, "distill", shard, plan.fingerprint_of(shard), write, stats=stats).stats)


def _embed(
    run: RunDir, plan: Plan, shards: Iterable[int], log: WorkerLog, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.embed_shard import embed_shards

    embed_shards(run, plan, shards, should_stop, on_done)
