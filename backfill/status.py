"""The state of a run from its files alone: plan, manifests, event lines of workers, and who is at work.

Read once for `status`, look by look for whoever follows a run and for metrics. Deliberately absent: the queue of a
cluster (`launchers.slurm_queue`), and any writing.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from backfill.bundle_writer import MANIFEST
from backfill.pace import Pace
from backfill.presence import at_work
from backfill.rundir import Plan, RunDir
from backfill.worker_log import EventTail
from backfill.worker_states import Workers


def status_of(path: Path) -> dict[str, Any]:
    """The `status --json` record; see `Status.record`."""
    return Status(path).record()


class Status:
    """How a run stands. What one look saw done is not read again by the next."""

    def __init__(self, path: Path) -> None:
        self.run = RunDir(path)
        self._tail = EventTail(self.run.logs)
        self._workers = Workers()
        self._pace = Pace()
        self._revision: int | None = None
        self._done: dict[str, dict[int, dict[str, Any]]] = {}

    def record(self) -> dict[str, Any]:
        """How it stands now. `rate` is exchanges and windows a second, `token_rate` tokens; `items` are those of
        distillation, `processes` who is at work in the folder.

        Raises UsageError where there is no run, ShardError where its plan or a manifest cannot be trusted.
        """
        plan = self.run.plan()
        if plan.revision != self._revision:
            # Another plan may want other shards of the same numbers.
            self._revision, self._done = plan.revision, {"scan": {}, "distill": {}, "embed": {}}
            self._workers.stuck_after_s = plan.bound_config().launcher.stuck_after_s
        shards = plan.distill_shards()
        wanted = {"scan": list(range(len(plan.scan_shards))), "distill": shards, "embed": shards}
        stages = {name: {"done": self._look_at(plan, name, of), "total": len(of)} for name, of in wanted.items()}
        stages["merge"] = {"done": int((self.run.bundle / MANIFEST).is_file()), "total": 1}
        complete = all(stage["done"] >= stage["total"] for stage in stages.values())
        events = self._tail.read()
        self._workers.add(events)
        self._pace.add(events)
        workers = self._workers.rows()
        rate, token_rate = self._pace.rates(time.time())
        items = self._items(plan)
        left = items["total"] - items["done"]
        return {
            "state": "done" if complete else "unfinished",
            "stages": stages,
            "items": items,
            "rate": rate,
            "eta_s": round(left / rate["overall"], 1) if rate["overall"] and left > 0 else None,
            "token_rate": token_rate,
            "workers": workers,
            "stuck": [worker["id"] for worker in workers if worker["state"] == "stuck"],
            **self._sums(),
            "processes": [{"name": one.name, "host": one.host, "pid": one.pid} for one in at_work(self.run.logs)],
        }

    def _look_at(self, plan: Plan, stage: str, shards: list[int]) -> int:
        """How many shards of a stage are done; their figures are kept."""
        done = self._done[stage]
        for shard in shards:
            if shard not in done:
                manifest = self.run.manifest_of(plan, stage, shard)
                if manifest is not None:
                    done[shard] = manifest.stats if stage == "distill" else {}
        return len(done)

    def _items(self, plan: Plan) -> dict[str, int]:
        products = plan.bound_config().distill.products
        return {
            "done": sum(int(stats.get("n", 0)) for stats in self._done["distill"].values()),
            "total": sum(r.n_rows for r in plan.rounds if r.product in products),
        }

    def _sums(self) -> dict[str, Any]:
        """Refused answers by reason, and the share of prompt tokens that the engine's prefix cache had."""
        failures: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for stats in self._done["distill"].values():
            failures.update(stats.get("failures", {}))
            tokens.update({name: int(stats.get(name, 0)) for name in ("tokens_in", "tokens_cached")})
        hits = round(tokens["tokens_cached"] / tokens["tokens_in"], 4) if tokens["tokens_in"] else 0.0
        return {"failures": dict(failures.most_common()), "prefix_hit_rate": hits}
