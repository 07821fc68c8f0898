"""How large shards are, and the order in which they are handed out: the largest first.

A run ends when its slowest worker does. Small shards at the end keep that tail short, for whoever is free takes the
next one (longest processing time first: Graham 1969, at most 4/3 of the best end with equal workers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from backfill.rundir import Plan, RunDir


@dataclass(frozen=True, slots=True)
class ShardSize:
    """Rows (exchanges or windows) of a distillation shard and their estimated tokens; 0 where they were not noted."""

    rows: int = 0
    tokens: int = 0


def distill_sizes(run: RunDir, plan: Plan) -> dict[int, ShardSize]:
    """Of every distillation shard, from the tables of the plan's rounds."""
    rows: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    for round_ in plan.rounds:
        path = run.objects / round_.table
        noted = "tokens" in pq.read_schema(path).names
        data = pq.read_table(path, columns=["shard", "tokens"] if noted else ["shard"], partitioning=None)
        shards: list[Any] = data.column("shard").to_pylist()
        rows.update(shards)
        for shard, n_tokens in zip(shards, data.column("tokens").to_pylist(), strict=True) if noted else ():
            tokens[shard] += n_tokens or 0
    return {shard: ShardSize(n, tokens[shard]) for shard, n in rows.items()}


def largest_first(run: RunDir, plan: Plan, stage: str, shards: Iterable[int]) -> list[int]:
    """Shards of a stage (scan, distill, embed) by falling size: bytes to read, or tokens, then rows."""
    if stage == "scan":
        weights = {shard: (_bytes(plan, shard), 0) for shard in shards}
    else:
        sizes = distill_sizes(run, plan)
        found = {shard: sizes.get(shard, ShardSize()) for shard in shards}
        weights = {shard: (size.tokens, size.rows) for shard, size in found.items()}
    return sorted(weights, key=lambda shard: (*(-weight for weight in weights[shard]), shard))


def _bytes(plan: Plan, shard: int) -> int:
    return sum(unit.total_bytes for unit in plan.scan_shards[shard].units)
