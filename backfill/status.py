"""The state of a run from its plan and manifests."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from backfill.bundle_writer import MANIFEST
from backfill.manifest import manifest_path
from backfill.rundir import RunDir
from backfill.worker_log import read_events
from backfill.worker_states import RECENT_S, token_rates, workers_of


def status_of(path: Path) -> dict[str, Any]:
    """The `status --json` record. Rates are exchanges and windows a second by the times of distillation manifests."""
    run = RunDir(path)
    plan = run.plan()
    shards = plan.distill_shards()
    totals = {"scan": len(plan.scan_shards), "distill": len(shards), "embed": len(shards)}
    stages = {name: {"done": total - len(run.missing(plan, name)), "total": total} for name, total in totals.items()}
    stages["merge"] = {"done": int((run.bundle / MANIFEST).is_file()), "total": 1}
    failures: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    commits: list[tuple[float, int]] = []
    for shard in shards:
        manifest = run.object_manifest(plan, shard)
        if manifest is not None:
            failures.update(manifest.stats.get("failures", {}))
            tokens.update({name: int(manifest.stats.get(name, 0)) for name in ("tokens_in", "tokens_cached")})
            when = manifest_path(run.objects, shard, plan.fingerprint_of(shard)).stat().st_mtime
            commits.append((when, int(manifest.stats.get("n", 0))))
    complete = all(stage["done"] >= stage["total"] for stage in stages.values())
    rate = _rates(commits)
    events = read_events(run.logs)
    workers = workers_of(events, stuck_after_s=plan.bound_config().launcher.stuck_after_s)
    left = sum(r.n_rows for r in plan.rounds if r.product in plan.bound_config().distill.products) - sum(
        n for _, n in commits
    )
    return {
        "state": "done" if complete else "unfinished",
        "stages": stages,
        "rate": rate,
        "eta_s": round(left / rate["overall"], 1) if rate["overall"] and left > 0 else None,
        "token_rate": token_rates(events),
        "workers": workers,
        "stuck": [worker["id"] for worker in workers if worker["state"] == "stuck"],
        "failures": dict(failures.most_common()),
        "prefix_hit_rate": round(tokens["tokens_cached"] / tokens["tokens_in"], 4) if tokens["tokens_in"] else 0.0,
    }


def _rates(commits: list[tuple[float, int]]) -> dict[str, float]:
    """Exchanges a second over the last five minutes of commits and over all of them."""
    if len(commits) < 2:
        return {"m5": 0.0, "overall": 0.0}
    commits.sort()
    first, last = commits[0][0], commits[-1][0]
    recent = [(when, n) for when, n in commits if when >= time.time() - RECENT_S]
    overall = sum(n for _, n in commits[1:]) / max(last - first, 1e-9)
    m5 = sum(n for _, n in recent) / RECENT_S if recent else 0.0
    return {"m5": round(m5, 2), "overall": round(overall, 2)}
