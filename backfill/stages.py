"""One worker: does the shards that it is given, stage by stage, and publishes each as it completes.

Launchers only decide who calls `work`. A worker loads an engine or encoder once for all its shards and asks for the
next shard when it has room, so that its window stays full until the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill import tables
from backfill.errors import Interrupted, ShardError
from backfill.manifest import publish
from backfill.rundir import Plan, RunDir, vector_fingerprint

if TYPE_CHECKING:
    from backfill.types import Exchange, PalaceObject

OnDone = Callable[[int, dict[str, Any]], None]
ShouldStop = Callable[[], bool]


def work(
    path: Path, stage: str, shards: Iterable[int], *, worker: str, should_stop: ShouldStop, on_done: OnDone
) -> None:
    """Does shards of a stage (scan, distill, embed) of the run in `path`.

    `shards` is drawn from lazily. `on_done(shard, stats)` is called after each shard's manifest is published. Raises
    Interrupted when asked to stop; whatever is published stays.
    """
    run = RunDir(path)
    plan = run.plan()
    {"scan": _scan, "distill": _distill, "embed": _embed}[stage](run, plan, shards, worker, should_stop, on_done)


def _scan(
    run: RunDir, plan: Plan, shards: Iterable[int], worker: str, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.scan import scan_shard

    for shard in shards:
        on_done(shard, scan_shard(run, plan, shard, should_stop).stats)


def _distill(
    run: RunDir, plan: Plan, shards: Iterable[int], worker: str, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.answers import AnswerLog
    from backfill.distill import distill
    from backfill.engines import make_engine

    config = plan.bound_config()
    print_ = plan.distill_fingerprint
    if config.engine.kind == "extractive":
        _publish_objects(
            run,
            plan,
            distill(_inputs(run, plan, shards), config.distill, fingerprint=print_, should_stop=should_stop),
            on_done,
        )
        return
    known = sorted(run.logs.glob(f"answers-*.{print_[:8]}.jsonl"))
    log = AnswerLog(run.logs / f"answers-{worker}.{print_[:8]}.jsonl", print_, replay=known)
    engine = make_engine(config.engine, log_path=run.logs / f"engine-{worker}.log")
    try:
        done = distill(
            _inputs(run, plan, shards),
            config.distill,
            fingerprint=print_,
            engine=engine,
            max_new_tokens=config.engine.max_new_tokens,
            log=log,
            should_stop=should_stop,
        )
        _publish_objects(run, plan, done, on_done)
    finally:
        engine.close()
        log.close()


def _inputs(run: RunDir, plan: Plan, shards: Iterable[int]) -> Iterator[tuple[str, list[Exchange]]]:
    from backfill.rounds import shard_rows

    for shard in shards:
        yield str(shard), shard_rows(run, plan, shard)


def _publish_objects(run: RunDir, plan: Plan, done: Iterable[Any], on_done: OnDone) -> None:
    for result in done:
        write = partial(tables.write_table, tables.OBJECTS, result.objects)
        shard, stats = int(result.name), asdict(result.stats)
        on_done(
            shard,
            publish(
                run.objects, "distill", shard, plan.distill_fingerprint, {("objects", ".parquet"): write}, stats=stats
            ).stats,
        )


def _embed(
    run: RunDir, plan: Plan, shards: Iterable[int], worker: str, should_stop: ShouldStop, on_done: OnDone
) -> None:
    from backfill.embed import embed_texts, object_texts
    from backfill.encoders import make_embedder
    from backfill.indexes.vectors import write_vectors

    config = plan.bound_config().embedder
    embedder = make_embedder(config)
    for shard in shards:
        if should_stop():
            raise Interrupted("stopped while embedding", hint="the same command resumes")
        manifest = run.object_manifest(plan, shard)
        if manifest is None:
            raise ShardError(f"distillation shard {shard} is not done", hint="distill it first")
        file = manifest.file("objects")
        objects: list[PalaceObject] = tables.read_table(tables.OBJECTS, run.objects / file.name)
        before = embedder.truncated()
        writers: dict[tuple[str, str], Callable[[Path], int]] = {}
        for part in config.parts:
            texts = [object_texts(row, (part,))[part] for row in objects]
            writers[f"vectors:{part}", ".f16"] = partial(write_vectors, embed_texts(embedder, texts))
        stats = {
            "n": len(objects),
            "texts": len(objects) * len(config.parts),
            "truncated": embedder.truncated() - before,
        }
        print_ = vector_fingerprint(plan)
        publish(run.vectors, "embed", shard, print_, writers, inputs=(file.sha256,), stats=stats)
        on_done(shard, stats)
