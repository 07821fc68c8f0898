"""Which windows a claims shard holds, frozen in the plan by content.

After a scan, the windows of every session that the run has read are cut, and those that no earlier round had are dealt
out in the order of (source, session, window). A table names each window's exchanges by scan shard and row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from backfill import tables
from backfill.durable import attempt_name, fsync_dir, fsync_file, sha256_file
from backfill.errors import ShardError
from backfill.ids import fingerprint
from backfill.rundir import CLAIMS, DistillRound, Plan, RunDir
from backfill.types import Exchange, Occurrence
from backfill.windows import Span, Window, cut_session, sessions_of

SHARD_WINDOWS = 256
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("shard", pa.int32()),
    ("digest", pa.binary(16)),
    ("session_id", pa.string()),
    ("source", pa.string()),
    ("window", pa.int32()),
    ("reading", pa.int64()),
    ("n_lead", pa.int32()),
    ("scan_shards", pa.list_(pa.int32())),
    ("rows", pa.list_(pa.int32())),
    ("starts", pa.list_(pa.int64())),
    ("tokens", pa.int32()),
]
_SCHEMA = pa.schema(_COLUMNS)

_Place: TypeAlias = tuple[int, int]
"""Scan shard and row of an exchange."""


def plan_claims(run: RunDir) -> Plan:
    """Adds a claims round for the windows that no claims round has yet. Raises ShardError when scanning is not done."""
    return run.revise_plan(partial(_with_round, run))


def _with_round(run: RunDir, plan: Plan) -> Plan:
    rounds = [r for r in plan.rounds if r.product == CLAIMS]
    if rounds and rounds[-1].n_scan_shards == len(plan.scan_shards):
        return plan
    known = {digest for r in rounds for digest in _digests(run, r)}
    places, tokens = _exchanges(run, plan)
    fresh = [span for span in _spans(run, plan, tokens) if span.digest not in known]
    first = plan.n_distill_shards
    n_shards = -(-len(fresh) // SHARD_WINDOWS)
    path = run.objects / f"plan-{len(plan.rounds):03d}-{attempt_name()}.parquet"
    records = [_record(first + i // SHARD_WINDOWS, span, places, tokens) for i, span in enumerate(fresh)]
    pq.write_table(pa.Table.from_pylist(records, schema=_SCHEMA), path, compression="zstd")
    fsync_file(path)
    fsync_dir(run.objects)
    round_ = DistillRound(
        first,
        n_shards,
        len(plan.scan_shards),
        len(fresh),
        path.name,
        sha256_file(path),
        product=CLAIMS,
        content=fingerprint({"windows": [span.digest for span in fresh], "a shard": SHARD_WINDOWS}),
    )
    return replace(plan, rounds=(*plan.rounds, round_))


def shard_windows(run: RunDir, plan: Plan, shard: int) -> list[Window]:
    """The windows of a claims shard. Raises ShardError when the plan's table is missing or damaged."""
    round_ = next(r for r in plan.rounds if r.first_shard <= shard < r.first_shard + r.n_shards)
    records: list[dict[str, Any]] = pq.read_table(_table(run, round_), filters=[("shard", "=", shard)]).to_pylist()
    wanted: dict[int, set[int]] = {}
    for record in records:
        for scan_shard, row in zip(record["scan_shards"], record["rows"], strict=True):
            wanted.setdefault(scan_shard, set()).add(row)
    found: dict[_Place, Exchange] = {}
    for scan_shard, numbers in wanted.items():
        order = sorted(numbers)
        rows = tables.read_rows_at(tables.EXCHANGES, run.scan_file(plan, scan_shard, "exchanges"), order)
        found.update(zip(((scan_shard, row) for row in order), rows, strict=True))
    return [_window(record, found) for record in records]


def _window(record: dict[str, Any], found: dict[_Place, Exchange]) -> Window:
    rows = [found[place] for place in zip(record["scan_shards"], record["rows"], strict=True)]
    n_lead = record["n_lead"]
    return Window(
        record["session_id"],
        record["source"],
        record["window"],
        record["reading"],
        tuple(rows[n_lead:]),
        tuple(record["starts"]),
        tuple(rows[:n_lead]),
    )


def _record(shard: int, span: Span, places: dict[bytes, _Place], tokens: dict[bytes, int]) -> dict[str, Any]:
    refs = [places[place.exchange_id] for place in (*span.lead, *span.places)]
    return {
        "shard": shard,
        "digest": span.digest,
        "session_id": span.session_id,
        "source": span.source,
        "window": span.window,
        "reading": span.reading,
        "n_lead": len(span.lead),
        "scan_shards": [scan_shard for scan_shard, _ in refs],
        "rows": [row for _, row in refs],
        "starts": [place.started_at for place in span.places],
        "tokens": sum(tokens[place.exchange_id] for place in span.places),
    }


def _exchanges(run: RunDir, plan: Plan) -> tuple[dict[bytes, _Place], dict[bytes, int]]:
    """By exchange_id: its first row, and its tokens. Rows of one id have one text, and claims are made of texts."""
    places: dict[bytes, _Place] = {}
    tokens: dict[bytes, int] = {}
    for shard in range(len(plan.scan_shards)):
        path = run.scan_file(plan, shard, "exchanges")
        data = pq.read_table(path, columns=["exchange_id", "tokens_est"], memory_map=True, partitioning=None)
        columns = (data.column(name).to_pylist() for name in ("exchange_id", "tokens_est"))
        for row, (xid, size) in enumerate(zip(*columns, strict=True)):
            places.setdefault(xid, (shard, row))
            tokens[xid] = size
    return places, tokens


def _spans(run: RunDir, plan: Plan, tokens: dict[bytes, int]) -> Iterator[Span]:
    for (unit, session_id), rows in sorted(sessions_of(_occurrences(run, plan)).items()):
        yield from cut_session(session_id, unit, rows, tokens)


def _occurrences(run: RunDir, plan: Plan) -> Iterator[tuple[str, Occurrence]]:
    """(source of the unit, occurrence): where a session lies in several files, the unit's name is that of the first."""
    for shard, scanned in enumerate(plan.scan_shards):
        units = {source: unit.source for unit in scanned.units for source in unit.sizes}
        rows: Sequence[Occurrence] = tables.read_table(tables.OCCURRENCES, run.scan_file(plan, shard, "occurrences"))
        yield from _with_units(rows, units)


def _with_units(rows: Iterable[Occurrence], units: dict[str, str]) -> Iterator[tuple[str, Occurrence]]:
    for row in rows:
        outer = row.source.partition("!")[0]
        yield units.get(row.source) or units.get(outer, row.source), row


def _digests(run: RunDir, round_: DistillRound) -> list[Any]:
    return pq.read_table(_table(run, round_), columns=["digest"]).column("digest").to_pylist()


def _table(run: RunDir, round_: DistillRound) -> Path:
    path = run.objects / round_.table
    if not path.is_file() or sha256_file(path) != round_.sha256:
        raise ShardError(f"{path} is missing or differs from the plan", hint="start a new run in another folder")
    return path
