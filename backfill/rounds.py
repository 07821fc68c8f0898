"""Which exchange rows a distillation shard holds, frozen in the plan by content.

After a scan, all rows that no earlier round had are dealt out: a content goes to the shard of its first appearance,
with every row of equal content, so that equal content is distilled once. Shards are cut by estimated tokens and count,
never by the number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from backfill import tables
from backfill.durable import attempt_name, fsync_dir, fsync_file, sha256_file
from backfill.errors import ShardError
from backfill.ids import ID_BYTES, fingerprint, row_hash
from backfill.rundir import OBJECT, DistillRound, Plan, RunDir
from backfill.types import Exchange

SHARD_TOKENS = 400_000
_COLUMNS: list[tuple[str, pa.DataType]] = [("shard", pa.int32()), ("scan_shard", pa.int32()), ("row", pa.int32())]
_SCHEMA = pa.schema([*_COLUMNS, ("tokens", pa.int32())])


def plan_round(run: RunDir) -> Plan:
    """Adds a round for the rows of scan shards that no round covers yet.

    Raises ShardError when scanning is not done.
    """
    return run.revise_plan(partial(_with_round, run))


def _with_round(run: RunDir, plan: Plan) -> Plan:
    covered = max((r.n_scan_shards for r in plan.rounds if r.product == OBJECT), default=0)
    if covered == len(plan.scan_shards):
        return plan
    seen = {row_hash(row) for shard in range(covered) for row in _rows(run, plan, shard)}
    by_content: dict[bytes, list[tuple[int, int, int]]] = {}
    content = hashlib.blake2b(digest_size=ID_BYTES)
    for shard in range(covered, len(plan.scan_shards)):
        for position, row in enumerate(_rows(run, plan, shard)):
            digest = row_hash(row)
            if digest not in seen:
                seen.add(digest)
                content.update(digest)
                by_content.setdefault(row.content_id, []).append((shard, position, row.tokens_est))
    first = plan.n_distill_shards
    limit = plan.bound_config().distill.shard_exchanges
    assignments = _cut(list(by_content.values()), first, limit)
    n_shards = assignments[-1][0] - first + 1 if assignments else 0
    name = f"plan-{len(plan.rounds):03d}-{attempt_name()}.parquet"
    path = run.objects / name
    columns = [pa.array([a[i] for a in assignments], type=pa.int32()) for i in range(4)]
    pq.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), path, compression="zstd")
    fsync_file(path)
    fsync_dir(run.objects)
    round_ = DistillRound(
        first,
        n_shards,
        len(plan.scan_shards),
        len(assignments),
        name,
        sha256_file(path),
        content=fingerprint({"rows": content.hexdigest(), "exchanges": limit, "tokens": SHARD_TOKENS}),
    )
    return replace(plan, rounds=(*plan.rounds, round_))


def shard_rows(run: RunDir, plan: Plan, shard: int) -> list[Exchange]:
    """The exchange rows of a distillation shard. Raises ShardError when the plan's table is missing or damaged."""
    round_ = next(r for r in plan.rounds if r.first_shard <= shard < r.first_shard + r.n_shards)
    path = run.objects / round_.table
    if not path.is_file() or sha256_file(path) != round_.sha256:
        raise ShardError(f"{path} is missing or differs from the plan", hint="start a new run in another folder")
    columns = [name for name, _ in _COLUMNS]
    listed = pq.read_table(path, columns=columns, filters=[("shard", "=", shard)]).to_pydict()
    wanted: dict[int, list[int]] = {}
    for scan_shard, row in zip(listed["scan_shard"], listed["row"], strict=True):
        wanted.setdefault(scan_shard, []).append(row)
    return [row for scan_shard, rows in wanted.items() for row in _rows_at(run, plan, scan_shard, rows)]


def _cut(contents: Sequence[list[tuple[int, int, int]]], first: int, limit: int) -> list[tuple[int, int, int, int]]:
    """(shard, scan shard, row, tokens); of rows of one content only the first has tokens: it is asked about once."""
    assignments: list[tuple[int, int, int, int]] = []
    shard, count, tokens = first, 0, 0
    for places in contents:
        weight = places[0][2]
        if count and (count + len(places) > limit or tokens + weight > SHARD_TOKENS):
            shard, count, tokens = shard + 1, 0, 0
        assignments += [(shard, at, row, 0 if i else weight) for i, (at, row, _) in enumerate(places)]
        count += len(places)
        tokens += weight
    return assignments


def _rows(run: RunDir, plan: Plan, shard: int) -> list[Exchange]:
    return tables.read_table(tables.EXCHANGES, run.scan_file(plan, shard, "exchanges"))


def _rows_at(run: RunDir, plan: Plan, shard: int, rows: Sequence[int]) -> list[Exchange]:
    return tables.read_rows_at(tables.EXCHANGES, run.scan_file(plan, shard, "exchanges"), rows)
