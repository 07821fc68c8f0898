"""What a scan read, counted: the figures that a shard's manifest carries, and their totals over a run.

Reads manifests and the key columns of the occurrences. Deliberately absent: reading sources (`scan`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill.errors import ShardError
from backfill.ledger import check as check_ledger
from backfill.reach import reach
from backfill.rundir import Plan, PlannedUnit, RunDir
from backfill.sources.result import UnitResult, by_format


def scan_summary(run: RunDir, plan: Plan, seconds: float) -> dict[str, Any]:
    """Totals of all finished scan shards: the `scan --json` record, with a table per format."""
    states: Counter[str] = Counter()
    secrets: Counter[str] = Counter()
    formats: dict[str, Counter[str]] = {}
    records = decode_errors = 0
    silent: dict[str, set[str]] = {}
    occurrences: list[Path] = []
    problems: list[str] = []
    for shard in range(len(plan.scan_shards)):
        manifest = run.scan_manifest(plan, shard)
        if manifest is None:
            continue
        stats = manifest.stats
        records += stats["records"]
        decode_errors += stats["decode_errors"]
        states.update(stats["states"])
        secrets.update(stats["secrets"])
        for agent, counts in stats["formats"].items():
            formats.setdefault(agent, Counter()).update(counts)
        for agent, sessions in stats.get("silent", {}).items():
            silent.setdefault(agent, set()).update(sessions)
        occurrences.append(run.exchanges / manifest.file("occurrences").name)
        problems += stats["problems"]
    rows = places(occurrences)
    return {
        "files": sum(1 + len(u.members) for s in plan.scan_shards for u in s.units),
        "records": records,
        "states": dict(sorted(states.items())),
        **distinct(rows),
        "duplicates": states["duplicate"],
        "skipped": states["skipped"],
        "quarantined": states["quarantined"],
        "pending": states["pending"],
        "secrets": dict(sorted(secrets.items())),
        "decode_errors": decode_errors,
        "formats": {agent: dict(sorted(c.items())) for agent, c in sorted(formats.items())},
        "reach": reach(rows, silent, formats, [Path(root) for root in plan.roots]),
        "bytes": sum(u.total_bytes for s in plan.scan_shards for u in s.units),
        "seconds": round(seconds, 3),
        "balanced": not problems,
        "problems": problems[:20],
        "warnings": list(plan.warnings),
    }


def places(paths: Sequence[Path]) -> pa.Table:
    """Keys, exchanges and times of occurrence tables, one after the other.

    Raises ShardError when a table cannot be read.
    """
    columns = ["agent", "session_id", "anchor", "part", "exchange_id", "started_at"]
    try:
        data = [pq.read_table(path, columns=columns, partitioning=None) for path in paths]
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"the occurrences of a finished shard cannot be read: {error}") from error
    empty = pa.schema([(name, pa.timestamp("us", "UTC") if name == "started_at" else pa.string()) for name in columns])
    return pa.concat_tables(data) if data else empty.empty_table()


def distinct(rows: pa.Table) -> dict[str, int]:
    """Exchanges, occurrences (by key) and sessions that `places` name; copies in several tables count once."""
    kinds = {
        "exchanges": ["exchange_id"],
        "occurrences": ["agent", "session_id", "anchor", "part"],
        "sessions": ["agent", "session_id"],
    }
    return {kind: rows.group_by(names).aggregate([]).num_rows for kind, names in kinds.items()}


def shard_stats(results: Sequence[UnitResult], units: Sequence[PlannedUnit], seconds: float) -> dict[str, Any]:
    """What the units of one shard yielded, by state, secret type and format, and where their ledger does not hold."""
    states: Counter[str] = Counter()
    secrets: Counter[str] = Counter()
    formats: dict[str, Counter[str]] = {}
    problems: list[str] = []
    silent: dict[str, set[str]] = {}
    for result, unit in zip(results, units, strict=True):
        for agent, counts in by_format(result, unit.sizes).items():
            formats.setdefault(agent, Counter()).update(counts)
        for row in result.ledger:
            states[row.state] += row.n_records
        secrets.update(result.secrets)
        for agent, session in result.silent:
            silent.setdefault(agent, set()).add(session)
        ids = {e.exchange_id for e in result.exchanges} | result.earlier
        problems += check_ledger(result.ledger, unit.sizes, ids)
    return {
        "records": sum(states.values()),
        "states": dict(states),
        "secrets": dict(secrets),
        "decode_errors": sum(r.decode_errors for r in results),
        "formats": {agent: dict(c) for agent, c in formats.items()},
        "silent": {agent: sorted(sessions) for agent, sessions in sorted(silent.items())},
        "problems": problems[:100],
        "bytes": sum(u.total_bytes for u in units),
        "seconds": round(seconds, 3),
    }
