"""Two processes that scan into one run folder at the same time: one run comes of it, as if one had been there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill import tables
from backfill.config import Config, ScanConfig, to_tree
from backfill.manifest import check, publish
from backfill.rounds import plan_round
from backfill.rundir import Plan, PlannedUnit, RunDir, ScanShard
from backfill.scan import plan_scan, scan_shard, scan_summary
from tests.claude_lines import ClaudeFile
from tests.conftest import ROOT

N_FILES = 8
ONE_A_SHARD = replace(Config(), scan=ScanConfig(shard_bytes=1))
# Waits for the other process to be ready, so that both plan and publish at the same time.
PROCESS = """
import sys, time
from dataclasses import replace
from pathlib import Path
from backfill.config import Config, ScanConfig
from backfill.ids import canonical_json
from backfill.launchers import make_launcher
from backfill.pipeline import scan_sources
from backfill.progress import Reporter
from backfill.rundir import RunDir
import backfill.scan

source, out, own, other = map(Path, sys.argv[1:])
config = replace(Config(), sources=(str(source),), scan=ScanConfig(shard_bytes=1))
own.touch()
waited = time.monotonic() + 60
while not other.exists() and time.monotonic() < waited:
    time.sleep(0.001)
_, record = scan_sources(RunDir(out), config, make_launcher(config), Reporter(quiet=True), lambda: False)
print(canonical_json(record).decode())
"""


def write_sessions(folder: Path, numbers: Sequence[int]) -> Path:
    folder.mkdir()
    for n in numbers:
        session = ClaudeFile()
        session.user(f"Why does export {n} fail?")
        session.agent(f"Lock {n} was held by the migration; I released it.")
        (folder / f"{n:02d}.jsonl").write_bytes(session.data())
    return folder


def scan_at_once(sources: Sequence[Path], out: Path) -> list[dict[str, Any]]:
    """Two processes, one a source; returns their records without the seconds."""
    flags = [out.parent / "a", out.parent / "b"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(source), str(out), str(own), str(other)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for source, own, other in zip(sources, flags, flags[::-1], strict=True)
    ]
    records = []
    for process in both:
        said, problems = process.communicate(timeout=180)
        assert process.returncode == 0, problems
        records.append({k: v for k, v in json.loads(said).items() if k != "seconds"})
    return records


def scan_alone(run: RunDir, config: Config, source: Path) -> Plan:
    run.make()
    plan = plan_scan(run, config, [str(source)])
    for shard in run.missing(plan, "scan"):
        scan_shard(run, plan, shard, lambda: False)
    return plan


def tables_of(run: RunDir) -> list[tuple[str, int, str]]:
    """Role, rows and SHA-256 of every table that a finished shard names, shard by shard."""
    plan = run.plan()
    found = []
    for shard in range(len(plan.scan_shards)):
        manifest = run.scan_manifest(plan, shard)
        assert manifest is not None
        assert check(run.exchanges, manifest) == []
        found += [(file.role, file.rows, file.sha256) for file in manifest.files]
    return found


def prompts_of(run: RunDir, plan: Plan) -> list[str]:
    return sorted(
        row.user_text
        for shard in range(len(plan.scan_shards))
        for row in tables.read_table(tables.EXCHANGES, run.scan_file(plan, shard, "exchanges"))
    )


def test_two_processes_make_one_run(tmp_path: Path) -> None:
    source = write_sessions(tmp_path / "source", range(N_FILES))
    run, alone = RunDir(tmp_path / "run"), RunDir(tmp_path / "alone")
    records = scan_at_once([source, source], run.path)
    scan_alone(alone, ONE_A_SHARD, source)
    assert tables_of(run) == tables_of(alone)
    assert records[0] == records[1]
    assert (records[0]["exchanges"], records[0]["balanced"]) == (N_FILES, True)
    manifests = [run.scan_manifest(run.plan(), shard) for shard in range(N_FILES)]
    named = {file.name for manifest in manifests if manifest for file in manifest.files}
    assert {path.name for path in run.exchanges.glob("*.parquet")} == named  # the loser's files are gone


def test_two_processes_with_different_sources_lose_nothing(tmp_path: Path) -> None:
    sources = [write_sessions(tmp_path / "left", range(5)), write_sessions(tmp_path / "right", range(5, 8))]
    run = RunDir(tmp_path / "run")
    scan_at_once(sources, run.path)
    plan = run.plan()
    assert sorted(plan.roots) == sorted(map(str, sources))
    assert run.missing(plan, "scan") == []
    assert prompts_of(run, plan) == [f"Why does export {n} fail?" for n in range(8)]
    record = scan_summary(run, plan, 0.0)
    assert (record["exchanges"], record["files"], record["balanced"]) == (8, 8, True)
    assert json.loads((run.path / "plan.json").read_bytes())["scan_fingerprint"] == plan.scan_fingerprint


def test_the_second_of_two_revisions_is_made_on_top_of_the_first(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.make()
    assert run.create_plan(Plan(to_tree(Config()), "f" * 32, ("/a",), ()))
    assert not run.create_plan(Plan(to_tree(Config()), "f" * 32, ("/b",), ()))

    def with_shard(plan: Plan, name: str) -> Plan:
        return replace(plan, scan_shards=(*plan.scan_shards, ScanShard((PlannedUnit(0, name, 1, 1),))))

    seen: list[int] = []

    def late(plan: Plan) -> Plan:
        seen.append(len(plan.scan_shards))
        if len(seen) == 1:
            run.revise_plan(lambda plan: with_shard(plan, "first"))  # another process is faster
        return with_shard(plan, "second")

    plan = run.revise_plan(late)
    assert seen == [0, 1]
    assert [shard.units[0].source for shard in plan.scan_shards] == ["first", "second"]
    assert run.plan() == plan
    assert run.revise_plan(lambda plan: plan) == plan  # nothing to say, no revision
    (tmp_path / "plan.json").write_bytes(b"{}")  # a copy that was cut off decides nothing
    assert run.plan() == plan


def test_a_done_shard_counts_for_its_own_files_alone(tmp_path: Path) -> None:
    """The settings change, the files change, the settings change back: shard 0 holds other files under its old name."""
    run = RunDir(tmp_path / "run")
    source = write_sessions(tmp_path / "source", range(3))
    scan_alone(run, Config(), source)
    for path in source.iterdir():
        path.unlink()
    write_sessions(source / "new", range(3, 6))
    for config in (replace(Config(), scan=ScanConfig(privacy="off")), Config()):
        plan = scan_alone(run, config, source)
        assert prompts_of(run, plan) == [f"Why does export {n} fail?" for n in range(3, 6)]


def test_a_done_distillation_shard_counts_for_its_own_exchanges_alone(tmp_path: Path) -> None:
    run, off = RunDir(tmp_path / "run"), replace(Config(), scan=ScanConfig(privacy="off"))
    source = write_sessions(tmp_path / "source", range(3))
    scan_alone(run, Config(), source)
    plan = plan_round(run)
    publish(run.objects, "distill", 0, plan.fingerprint_of(0), {})
    scan_alone(run, off, source)
    assert run.missing(plan_round(run), "distill") == []  # equal exchanges, read in another way
    write_sessions(source / "new", range(3, 6))
    scan_alone(run, Config(), source)
    plan = plan_round(run)
    assert (plan.distill_shards(), run.missing(plan, "distill")) == ([0], [0])
