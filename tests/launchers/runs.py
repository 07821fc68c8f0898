"""Run folders that are read and planned, ready for workers; and what those workers must have made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill.config import Config, DistillConfig, EngineConfig, LauncherConfig, ScanConfig
from backfill.launchers.inline import InlineLauncher
from backfill.pipeline import fix_fingerprints, plan_products, scan_sources
from backfill.progress import Reporter
from backfill.rundir import Plan, RunDir
from tests.conftest import ROOT

SAMPLES = ROOT / "samples" / "transcripts"


def config(*, engine: dict[str, Any] | None = None, **launcher: Any) -> Config:
    return Config(
        sources=(str(SAMPLES),),
        engine=EngineConfig(**{"kind": "scripted", **(engine or {})}),
        distill=DistillConfig(shard_exchanges=8),
        scan=ScanConfig(shard_bytes=100_000),
        launcher=LauncherConfig(**launcher),
    )


def prepared(folder: Path, settings: Config) -> tuple[RunDir, Plan]:
    """A run folder whose transcripts are read and whose distillation is planned."""
    run = RunDir(folder)
    scan_sources(run, replace(settings), InlineLauncher(settings), Reporter(quiet=True), lambda: False)
    fix_fingerprints(run, settings)
    return run, plan_products(run)


def made(run: RunDir, plan: Plan) -> dict[int, list[tuple[str, str, int]]]:
    """Of every distillation shard the roles, digests and rows of its files."""
    found = {}
    for shard in plan.distill_shards():
        manifest = run.object_manifest(plan, shard)
        assert manifest is not None, f"shard {shard} is not done"
        found[shard] = [(file.role, file.sha256, file.rows) for file in manifest.files]
    return found
