"""What a run or a bundle is, for people and machines: the record of `backfill report`, written as report.json.

Reads manifests, the ledger, a few columns of tables and the event lines of workers; nothing of what people said goes in
but room labels. A bundle has no ledger and no workers; it says what its lineage recorded. Deliberately absent: the page
(`report_page`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backfill.bundle_manifest import BundleManifest, read_manifest
from backfill.errors import BackfillError, UsageError
from backfill.manifest import ShardManifest
from backfill.pipeline import distill_totals
from backfill.rundir import CLAIMS, OBJECT, Plan, RunDir
from backfill.worker_log import Event, read_events
from backfill.worker_states import workers_of

TOP_ROOMS = 24
SLOWEST = 10
BINS = 48


def report_of(path: Path, *, price_per_hour: float | None = None) -> dict[str, Any]:
    """The record of a run folder or a bundle. Raises UsageError where it is neither, ShardError or BundleError where it
    cannot be trusted."""
    if (path / "plan.json").is_file():
        return _of_run(RunDir(path.absolute()), price_per_hour)
    if (path / "manifest.json").is_file():
        return _of_bundle(path)
    raise UsageError(f"{path} is neither a run folder nor a bundle", hint="a run folder has plan.json")


def _of_run(run: RunDir, price_per_hour: float | None) -> dict[str, Any]:
    plan = run.plan()
    config = plan.bound_config()
    scans = [m for shard in range(len(plan.scan_shards)) if (m := run.scan_manifest(plan, shard)) is not None]
    flow = _flow(run, plan, scans)
    totals = distill_totals(run, plan)
    shards = [m for shard in plan.distill_shards() if (m := run.object_manifest(plan, shard)) is not None]
    events = read_events(run.logs)
    tokens, findings = _tokens(
        [run.exchanges / m.file("exchanges").name for m in scans],
        [run.objects / m.file(OBJECT).name for m in shards if plan.product_of(m.shard) == OBJECT],
    )
    embedded = [m for shard in plan.distill_shards() if (m := run.vector_manifest(plan, shard)) is not None]
    merged = read_manifest(run.bundle) if (run.bundle / "manifest.json").is_file() else None
    record = {
        "kind": "run",
        "path": str(run.path),
        "flow": flow,
        "totals": totals,
        "tiers": {tier: totals.get(tier, 0) for tier in ("llm", "extractive", "raw")},
        "tokens": tokens,
        "findings": findings,
        "failures": _failures(totals),
        "throughput": _throughput(events),
        "slowest": _slowest(shards, plan),
        "cost": _cost(totals, price_per_hour, config.engine.kind),
        "rooms": _rooms(run.bundle, merged) if merged else [],
        "counts": merged.counts if merged else {},
        "gate": merged.gate if merged else {},
        "config": plan.config,
        "fingerprints": {
            "scan": plan.scan_fingerprint,
            "distill": plan.distill_fingerprint,
            "claims": plan.claims_fingerprint,
            "embed": plan.embed_fingerprint,
            **({"logical digest": merged.logical_digest} if merged else {}),
        },
        "truncated": sum(int(m.stats.get("truncated", 0)) for m in embedded),
    }
    done = {"scan": not run.missing(plan, "scan"), "distill": not run.missing(plan, "distill"), "merge": bool(merged)}
    stuck = _stuck(events, config.launcher.stuck_after_s, complete=all(done.values()))
    return {**record, "warnings": stuck + _warnings(record, plan, scans, done)}


def _of_bundle(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path)
    files = {role: [path / f.path for f in manifest.files if f.role == role] for role in ("exchanges", "objects")}
    tokens, findings = _tokens(files["exchanges"], files["objects"])
    lineage = [_json(p) for p in sorted((path / "lineage").glob("*.json"))]
    runs = [line for line in lineage if isinstance(line.get("ledger"), dict)]
    states: Counter[str] = Counter()
    for line in runs:
        states.update(line["ledger"].get("states", {}))
    tiers = _values(files["objects"], "tier")
    return {
        "kind": "bundle",
        "path": str(path),
        "flow": {
            "unit": "records",
            "total": sum(states.values()),
            "sources": {f"run {i + 1}": sum(line["ledger"]["states"].values()) for i, line in enumerate(runs)},
            "states": {state: {"": n} for state, n in states.items()},
            "balanced": all(line["ledger"].get("balanced") for line in runs),
        },
        "tiers": {tier: tiers.get(tier, 0) for tier in ("llm", "extractive", "raw")},
        "tokens": tokens,
        "findings": findings,
        "failures": {},
        "throughput": {"bins": [], "bin_s": 0.0, "workers": {}},
        "slowest": [],
        "cost": None,
        "rooms": _rooms(path, manifest),
        "counts": manifest.counts,
        "gate": manifest.gate,
        "config": runs[-1].get("config", {}) if runs else {},
        "fingerprints": {**manifest.fingerprints, "logical digest": manifest.logical_digest},
        "truncated": 0,
        "warnings": _gate_warnings(manifest.gate),
    }


def _flow(run: RunDir, plan: Plan, scans: list[ShardManifest]) -> dict[str, Any]:
    """Bytes by format on one side, by ledger state and reason on the other. Members of containers tile their own units,
    which are no bytes of a file, so they are left out here."""
    sources: Counter[str] = Counter()
    states: dict[str, Counter[str]] = {}
    for manifest in scans:
        for agent, counts in manifest.stats["formats"].items():
            sources[agent or "unrecognised"] += counts.get("bytes", 0)
        names = ["source", "byte_start", "byte_end", "state", "reason"]
        rows = pq.read_table(run.exchanges / manifest.file("ledger").name, columns=names, partitioning=None)
        files = {source for unit in plan.scan_shards[manifest.shard].units for source in unit.sizes}
        own = rows.filter(pc.is_in(rows.column("source"), value_set=pa.array(sorted(files), pa.string())))
        sizes = pc.subtract(own.column("byte_end"), own.column("byte_start"))
        grouped = own.append_column("size", sizes).group_by(["state", "reason"]).aggregate([("size", "sum")])
        for row in grouped.to_pylist():
            reason = row["reason"].partition(":")[0]
            states.setdefault(row["state"], Counter())[reason] += row["size_sum"]
    done = {manifest.shard for manifest in scans}
    total = sum(u.total_bytes for i, s in enumerate(plan.scan_shards) if i in done for u in s.units)
    told = sum(n for reasons in states.values() for n in reasons.values())
    return {
        "unit": "bytes",
        "total": total,
        "sources": dict(sources.most_common()),
        "states": {state: dict(reasons.most_common()) for state, reasons in states.items()},
        "balanced": total == told == sum(sources.values()) and not any(m.stats["problems"] for m in scans),
    }


def _tokens(exchanges: Iterable[Path], objects: Iterable[Path]) -> tuple[dict[str, Any], dict[str, int]]:
    """Mean tokens before and after over objects of a tier above raw, and their findings by kind."""
    before: dict[bytes, int] = {}
    for path in exchanges:
        data = pq.read_table(path, columns=["exchange_id", "tokens_est"], partitioning=None)
        before.update(zip(data.column(0).to_pylist(), data.column(1).to_pylist(), strict=True))  # type: ignore[arg-type]
    ratios: list[tuple[int, int]] = []
    findings: Counter[str] = Counter()
    for path in objects:
        data = pq.read_table(path, columns=["exchange_id", "tier", "tokens", "findings"], partitioning=None)
        for row in data.to_pylist():
            findings.update(finding["kind"] for finding in row["findings"] or ())
            if row["tier"] != "raw" and row["exchange_id"] in before:
                ratios.append((before[row["exchange_id"]], row["tokens"]))
    n = len(ratios)
    verbatim, distilled = sum(b for b, _ in ratios), sum(a for _, a in ratios)
    record = {
        "objects": n,
        "before": round(verbatim / n, 1) if n else 0.0,
        "after": round(distilled / n, 1) if n else 0.0,
        "compression": round(verbatim / distilled, 2) if distilled else 0.0,
    }
    return record, dict(findings.most_common())


def _throughput(events: list[Event]) -> dict[str, Any]:
    """Items done by each worker of the distill stage, in equal bins of the time from the first event to the last."""
    own = [event for event in events if event.stage == "distill"]
    done = [event for event in own if event.event == "done"]
    if not done:
        return {"bins": [], "bin_s": 0.0, "workers": {}}
    start, end = own[0].at, max(event.at for event in own)
    bin_s = max((end - start) / BINS, 1e-3)
    workers: dict[str, list[float]] = {}
    for event in done:
        series = workers.setdefault(event.worker, [0.0] * BINS)
        _spread(series, own, event, start, bin_s)
    return {"bins": [round(start + i * bin_s, 3) for i in range(BINS)], "bin_s": round(bin_s, 3), "workers": workers}


def _spread(series: list[float], events: list[Event], done: Event, start: float, bin_s: float) -> None:
    """Adds a shard's items, spread evenly from its taking to its end: a shard is far longer than a bin."""
    taken = [e.at for e in events if (e.event, e.worker, e.shard) == ("take", done.worker, done.shard)]
    begin = max((at for at in taken if at <= done.at), default=done.at)
    first, last = int((begin - start) / bin_s), min(len(series) - 1, int((done.at - start) / bin_s))
    first = min(first, last)
    for i in range(first, last + 1):
        series[i] += int(done.stats.get("n", 0)) / (last - first + 1)


def _slowest(shards: list[ShardManifest], plan: Plan) -> list[dict[str, Any]]:
    rows = [
        {
            "shard": m.shard,
            "product": plan.product_of(m.shard),
            "n": m.stats.get("n", 0),
            "engine_s": m.stats.get("engine_s", 0.0),
            "retries": m.stats.get("retries", 0),
        }
        for m in shards
    ]
    return sorted(rows, key=lambda row: (-row["engine_s"], row["shard"]))[:SLOWEST]


def _cost(totals: dict[str, Any], price_per_hour: float | None, kind: str) -> dict[str, Any] | None:
    """What 1,000 exchanges took of the engine. Shards overlap, so engine seconds are an upper bound."""
    n = totals.get("llm", 0) + totals.get("extractive", 0)
    if not n or kind == "extractive":
        return None
    claims = totals.get(CLAIMS, {})
    sums = {name: totals.get(name, 0) + claims.get(name, 0) for name in ("requests", "tokens_in", "tokens_out")}
    record: dict[str, Any] = {f"{name}_per_1000": round(1000 * value / n) for name, value in sums.items()}
    seconds = totals.get("engine_s", 0.0) + claims.get("engine_s", 0.0)
    record["engine_s_per_1000"] = round(1000 * seconds / n, 1)
    if price_per_hour is not None:
        record["price_per_1000"] = round(1000 * seconds / n / 3600 * price_per_hour, 4)
    return record


def _failures(totals: dict[str, Any]) -> dict[str, int]:
    failures = Counter(totals.get("failures", {}))
    failures.update(totals.get(CLAIMS, {}).get("failures", {}))
    return dict(failures.most_common())


def _rooms(bundle: Path, manifest: BundleManifest) -> list[dict[str, Any]]:
    path = next((bundle / f.path for f in manifest.files if f.role == "rooms"), None)
    if path is None:
        return []
    data = pq.read_table(path, columns=["room_type", "room_key", "room_label", "n_exchanges"], partitioning=None)
    rows = sorted(data.to_pylist(), key=lambda row: (-row["n_exchanges"], row["room_type"], row["room_key"]))
    return rows[:TOP_ROOMS]


def _warnings(record: dict[str, Any], plan: Plan, scans: list[ShardManifest], done: dict[str, bool]) -> list[str]:
    """What a person should look at, one sentence each."""
    quarantined = record["flow"]["states"].get("quarantined", {})
    secrets = sum(n for m in scans for n in m.stats.get("secrets", {}).values())
    eligible = record["totals"].get("eligible", 0)
    share = record["tiers"]["llm"] / eligible if eligible else 1.0
    config = plan.bound_config()
    found = [f"The stage {name} is not complete." for name, complete in done.items() if not complete]
    found += [f"Not read: {text}" for text in plan.warnings]
    if not record["flow"]["balanced"]:
        found.append("The ledger does not balance: some bytes are not accounted for.")
    found += [f"Quarantined: {size:,} bytes ({reason})." for reason, size in quarantined.items()]
    if config.engine.kind != "extractive" and share < config.distill.min_llm_share:
        found.append(f"Only {share:.0%} of the exchanges reached tier llm; min_llm_share wants more.")
    if record["truncated"]:
        found.append(f"{record['truncated']:,} texts were longer than the encoder reads.")
    if secrets and config.scan.privacy != "off":
        found.append(f"{secrets:,} secrets were replaced by placeholders: rotate those that still work.")
    return found + _gate_warnings(record["gate"])


def _stuck(events: list[Event], stuck_after_s: float, *, complete: bool) -> list[str]:
    """Of every worker that was stuck, or is while the run is not complete, a sentence with its name."""
    rows = {row["id"]: row for row in workers_of(events, stuck_after_s=stuck_after_s)}
    given: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        if event.about:
            given.setdefault((event.about, event.stage, event.worker), []).append(event)
    found = []
    for (about, stage, by), given_away in given.items():
        shards = ", ".join(str(event.shard) for event in given_away)
        minutes = max(event.stats.get("silent_s", 0.0) for event in given_away) / 60
        found.append(
            f"Worker {about} on {rows[about]['host'] or 'an unknown host'} was stuck: nothing was committed for "
            f"{minutes:,.1f} minutes; {by} saw to it that its {stage} shards {shards} went to others."
        )
    if not complete:
        found += [
            f"Worker {name} on {row['host']} is stuck: nothing was committed for {row['silent_s'] / 60:,.0f} minutes."
            for name, row in rows.items()
            if row["state"] == "stuck" and row["held"]
        ]
    return found


def _gate_warnings(gate: dict[str, str]) -> list[str]:
    ungated = any(verdict != "PASS" for verdict in gate.values())
    return ["An engine ran without a PASS of the gate: its fidelity is not vouched for."] if ungated else []


def _values(paths: Iterable[Path], column: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(map(str, pq.read_table(path, columns=[column], partitioning=None).column(0).to_pylist()))
    return counts


def _json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BackfillError(f"{path} cannot be read: {error}") from error
    return tree if isinstance(tree, dict) else {}
