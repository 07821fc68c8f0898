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
from backfill.rundir import Plan, PlannedUnit, RunDir
from backfill.sources.result import UnitResult


def scan_summary(run: RunDir, plan: Plan, seconds: float) -> dict[str, Any]:
    """Totals of all finished scan shards: the `scan --json` record, with a table per format."""
    states: Counter[str] = Counter()
    secrets: Counter[str] = Counter()
    formats: dict[str, Counter[str]] = {}
    records = decode_errors = 0
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
        occurrences.append(run.exchanges / manifest.file("occurrences").name)
        problems += stats["problems"]
    return {
        "files": sum(1 + len(u.members) for s in plan.scan_shards for u in s.units),
        "records": records,
        "states": dict(sorted(states.items())),
        **distinct(occurrences),
        "duplicates": states["duplicate"],
        "skipped": states["skipped"],
        "quarantined": states["quarantined"],
        "pending": states["pending"],
        "secrets": dict(sorted(secrets.items())),
        "decode_errors": decode_errors,
        "formats": {agent: dict(sorted(c.items())) for agent, c in sorted(formats.items())},
        "bytes": sum(u.total_bytes for s in plan.scan_shards for u in s.units),
        "seconds": round(seconds, 3),
        "balanced": not problems,
        "problems": problems[:20],
        "warnings": list(plan.warnings),
    }


def distinct(paths: Sequence[Path]) -> dict[str, int]:
    """Exchanges, occurrences (by key) and sessions that occurrence tables name; copies in several tables count once.

    Raises ShardError when a table cannot be read.
    """
    kinds = {
        "exchanges": ["exchange_id"],
        "occurrences": ["agent", "session_id", "anchor", "part"],
        "sessions": ["agent", "session_id"],
    }
    columns = sorted({name for names in kinds.values() for name in names})
    try:
        data = [pq.read_table(path, columns=columns, partitioning=None) for path in paths]
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"the occurrences of a finished shard cannot be read: {error}") from error
    if not data:
        return dict.fromkeys(kinds, 0)
    rows = pa.concat_tables(data)
    return {kind: rows.group_by(names).aggregate([]).num_rows for kind, names in kinds.items()}


def shard_stats(results: Sequence[UnitResult], units: Sequence[PlannedUnit], seconds: float) -> dict[str, Any]:
    """What the units of one shard yielded, by state, secret type and format, and where their ledger does not hold."""
    states: Counter[str] = Counter()
    secrets: Counter[str] = Counter()
    formats: dict[str, Counter[str]] = {}
    problems: list[str] = []
    for result, unit in zip(results, units, strict=True):
        counts = formats.setdefault(result.agent or "none", Counter())
        counts.update(files=len(unit.sizes), bytes=unit.total_bytes)
        counts.update(exchanges=len(result.exchanges), occurrences=len(result.occurrences))
        for row in result.ledger:
            states[row.state] += row.n_records
            counts[row.state] += row.n_records
            if row.reason:
                counts[f"{row.state}:{row.reason}"] += row.n_records
        secrets.update(result.secrets)
        ids = {e.exchange_id for e in result.exchanges}
        problems += check_ledger(result.ledger, unit.sizes, ids)
    return {
        "records": sum(states.values()),
        "states": dict(states),
        "secrets": dict(secrets),
        "decode_errors": sum(r.decode_errors for r in results),
        "formats": {agent: dict(c) for agent, c in formats.items()},
        "problems": problems[:100],
        "bytes": sum(u.total_bytes for u in units),
        "seconds": round(seconds, 3),
    }
