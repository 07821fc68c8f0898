"""`verify` of a run folder: every shard against its manifest, the ledger against the plan, then the bundle."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from backfill import tables
from backfill.bundle_writer import MANIFEST
from backfill.errors import BackfillError
from backfill.ledger import check as check_ledger
from backfill.manifest import ShardManifest, check
from backfill.rundir import Plan, RunDir
from backfill.types import LedgerRow
from backfill.verify import Problem, Verdict, check_ids, verify_bundle


def verify_run(path: Path, *, trust_encoder: bool = False) -> Verdict:
    """Checks what a run has finished so far; a shard that is not done yet is a warning, not an error."""
    run = RunDir(path)
    verdict = Verdict()
    try:
        plan = run.plan()
        _check_shards(run, plan, verdict)
        if not verdict.errors:
            _check_ledger(run, plan, verdict)
    except BackfillError as error:
        verdict.errors.append(Problem(str(path), "unreadable", str(error)))
    if (run.bundle / MANIFEST).is_file():
        inner = verify_bundle(run.bundle, trust_encoder=trust_encoder)
        verdict.errors += [Problem(f"bundle/{p.file}", p.kind, p.detail) for p in inner.errors]
        verdict.warnings += inner.warnings
        verdict.probe_cosine = inner.probe_cosine
    return verdict


def _check_shards(run: RunDir, plan: Plan, verdict: Verdict) -> None:
    for stage, folder in (("scan", run.exchanges), ("distill", run.objects), ("embed", run.vectors)):
        missing = set(run.missing(plan, stage))
        if missing:
            verdict.warnings.append(f"{stage}: {len(missing)} shards are not done")
        shards = range(len(plan.scan_shards)) if stage == "scan" else plan.distill_shards()
        for shard in sorted(set(shards) - missing):
            manifest = _manifest(run, plan, stage, shard)
            if manifest is not None:
                verdict.errors += [Problem(f"{folder.name}/{n}", "checksum", why) for n, why in check(folder, manifest)]


def _manifest(run: RunDir, plan: Plan, stage: str, shard: int) -> ShardManifest | None:
    read = {"scan": run.scan_manifest, "distill": run.object_manifest, "embed": run.vector_manifest}[stage]
    return read(plan, shard)


def _check_ledger(run: RunDir, plan: Plan, verdict: Verdict) -> None:
    """The rows of every source tile its planned size, and every ref names an exchange of the run."""
    ids: set[bytes] = set()
    shards: list[tuple[int, list[LedgerRow]]] = []
    for shard in range(len(plan.scan_shards)):
        manifest = run.scan_manifest(plan, shard)
        if manifest is None:
            continue
        for row in tables.iter_table(tables.EXCHANGES, run.exchanges / manifest.file("exchanges").name):
            ids.add(row.exchange_id)
            problem = check_ids(row)
            if problem:
                verdict.errors.append(Problem("01-exchanges", "id", f"{row.exchange_id.hex()}: {problem}"))
        rows = tables.read_table(tables.LEDGER, run.exchanges / manifest.file("ledger").name)
        shards.append((shard, rows))
    problems: list[str] = []
    for shard, rows in shards:
        by_unit: dict[tuple[str, bytes], list[LedgerRow]] = defaultdict(list)
        for row in rows:
            by_unit[row.source, row.file_digest].append(row)
        sizes = {k: v for unit in plan.scan_shards[shard].units for k, v in unit.sizes.items()}
        for (source, _), unit_rows in by_unit.items():
            size = sizes.get(source) if _once(plan, shard, source) else max(r.byte_end for r in unit_rows)
            problems += check_ledger(unit_rows, {source: size if size is not None else -1}, ids)
    verdict.ledger_balanced = not problems
    verdict.errors += [Problem("01-exchanges", "ledger", text) for text in problems[:50]]


def _once(plan: Plan, shard: int, source: str) -> bool:
    return sum(source in unit.sizes for unit in plan.scan_shards[shard].units) == 1
