"""Two processes that scan into one run folder at the same time: one run comes of it, as if one had been there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from backfill.config import Config, ScanConfig
from backfill.manifest import check
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard
from tests.claude_lines import ClaudeFile
from tests.conftest import ROOT

N_FILES = 8
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


def test_two_processes_make_one_run(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for n in range(N_FILES):
        session = ClaudeFile()
        session.user(f"Why does export {n} fail?")
        session.agent(f"Lock {n} was held by the migration; I released it.")
        (source / f"{n:02d}.jsonl").write_bytes(session.data())

    out, flags = tmp_path / "run", [tmp_path / "a", tmp_path / "b"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(source), str(out), str(own), str(other)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for own, other in (flags, flags[::-1])
    ]
    records = []
    for process in both:
        said, problems = process.communicate(timeout=180)
        assert process.returncode == 0, problems
        records.append({k: v for k, v in json.loads(said).items() if k != "seconds"})

    alone = RunDir(tmp_path / "alone")
    alone.make()
    plan = plan_scan(alone, replace(Config(), scan=ScanConfig(shard_bytes=1)), [str(source)])
    for shard in range(len(plan.scan_shards)):
        scan_shard(alone, plan, shard, lambda: False)
    run = RunDir(out)
    assert tables_of(run) == tables_of(alone)
    assert records[0] == records[1]
    assert (records[0]["exchanges"], records[0]["balanced"]) == (N_FILES, True)
    manifests = [run.scan_manifest(run.plan(), shard) for shard in range(N_FILES)]
    named = {file.name for manifest in manifests if manifest for file in manifest.files}
    assert {path.name for path in run.exchanges.glob("*.parquet")} == named  # the loser's files are gone
