"""Scan throughput of one process, end to end, against parsing alone; and its peak memory (`--memory`).

Inputs: sessions written here whose make-up is that of real ones (`scan_corpus` says from what it was counted), and real
Claude Code sessions where there are any (BENCH_TRANSCRIPTS names their folder). Subjects, turn by turn: `backfill scan`
of one shard (read, parse, segment, privacy, ledger, Parquet, fsync), the same with privacy off; a loop of `json.loads`
per line and nothing else; the same with orjson; reading the bytes. The goals hold in seconds on the wall of one
process, which may have threads; because machines are shared, rates per CPU second of all its threads are printed
beside them. Goals: at least 0.7 of the json.loads loop, 1.2 with privacy off. Two workers against one are measured as
wall clock of the whole command; the growth exponent is the slope of log seconds over log bytes of three sizes.

    python -m bench scan [--quick]            speed
    python -m bench.scan --memory [--quick]   peak memory of files of 200 to 500 MB (a tenth with --quick)
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from backfill.config import Config, ScanConfig
from backfill.launchers import make_launcher
from backfill.pipeline import scan_sources
from backfill.progress import Reporter
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard
from bench.harness import Result, Spread, machine, take_turns
from bench.scan_corpus import make_up, write_corpus
from bench.scan_memory import LIMIT_MB, measure

GOAL, GOAL_PRIVACY_OFF = 0.7, 1.2
SHARED = Path(__file__).resolve().parents[2] / "shared/data/transcripts/claude_code"
Clock = Callable[[], float]


def run(quick: bool) -> Result:
    """Measures MB/s; see the module."""
    folder = Path(tempfile.mkdtemp(prefix="backfill-bench-"))
    try:
        source = folder / "synthetic"
        source.mkdir()
        write_corpus(source, 4 if quick else 20, 24)
        corpora = {"synthetic": source}
        real = Path(os.environ.get("BENCH_TRANSCRIPTS", SHARED))
        if real.is_dir():
            corpora["real"] = real
        spreads: dict[str, Spread] = {}
        for name, root in corpora.items():
            print(f"  {name}: {make_up(sorted(root.rglob('*.jsonl')))}")
            spreads |= _speed(folder, name, root, 3 if quick else 7)
        workers = _workers(folder, source, 1 if quick else 3)
        exponent = _growth(folder, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratios = {name: _ratios(spreads, name) for name in corpora}
    judged = "real" if "real" in ratios else "synthetic"
    said = "; ".join(
        f"{name} {on:.2f} of the json.loads loop, {off:.2f} with privacy off (CPU seconds: {cpu_on:.2f}, {cpu_off:.2f})"
        for name, (on, off, cpu_on, cpu_off) in ratios.items()
    )
    return Result(
        name="scan",
        value=spreads[f"{judged}: scan"].median,
        unit="MB/s",
        peers={name: spread.median for name, spread in spreads.items() if name != f"{judged}: scan"},
        limit=f"{judged}: raw read",
        ratio=ratios[judged][0],
        goal=f">= {GOAL} of the json.loads loop, {GOAL_PRIVACY_OFF} with privacy off",
        met=all(on >= GOAL and off >= GOAL_PRIVACY_OFF for on, off, _, _ in ratios.values()),
        spread=spreads,
        notes=f"{said}; 2 workers {workers:.2f} times as fast as 1; growth exponent {exponent:.2f}",
    )


def _speed(folder: Path, name: str, root: Path, runs: int) -> dict[str, Spread]:
    """Rates of all subjects over one corpus: MB per second of the wall, and of the CPU for the scans and the loop."""
    files = sorted(path for path in root.rglob("*.jsonl") if path.is_file())
    size_mb = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 1e6
    lines_mb = sum(path.stat().st_size for path in files) / 1e6
    cpu: dict[str, list[float]] = {}

    def rate(label: str, mb: float, work: Callable[[], Any]) -> Callable[[], float]:
        def measured() -> float:
            wall, used = time.perf_counter(), time.process_time()
            work()
            cpu.setdefault(f"{label}, per CPU s", []).append(mb / (time.process_time() - used))
            return mb / (time.perf_counter() - wall)

        return measured

    subjects = {
        f"{name}: scan": rate(f"{name}: scan", size_mb, lambda: scan_once(folder, root, "secrets")),
        f"{name}: scan, privacy off": rate(
            f"{name}: scan, privacy off", size_mb, lambda: scan_once(folder, root, "off")
        ),
        f"{name}: json.loads loop": rate(f"{name}: json.loads loop", lines_mb, lambda: _each_line(json.loads, files)),
        f"{name}: raw read": rate(f"{name}: raw read", lines_mb, lambda: [path.read_bytes() for path in files]),
    }
    orjson_loads = _orjson()
    if orjson_loads is not None:
        label = f"{name}: orjson loop"
        subjects[label] = rate(label, lines_mb, lambda: _each_line(orjson_loads, files))
    spreads = take_turns(subjects, runs)
    in_cpu_s = {label: Spread.of(values[1:]) for label, values in cpu.items() if "raw" not in label}
    for label, spread in in_cpu_s.items():
        print(f"  {label:<44} {spread.median:12.2f}  ({spread.low:.2f} to {spread.high:.2f}, {spread.runs} runs)")
    return spreads | in_cpu_s


def _ratios(spreads: dict[str, Spread], name: str) -> tuple[float, float, float, float]:
    """Scan and scan without privacy against the json.loads loop: on the wall, then in CPU seconds."""
    return tuple(  # type: ignore[return-value]
        spreads[f"{name}: {subject}{unit}"].median / spreads[f"{name}: json.loads loop{unit}"].median
        for unit in ("", ", per CPU s")
        for subject in ("scan", "scan, privacy off")
    )


def scan_once(folder: Path, source: Path, privacy: Any, shard_bytes: int = 1 << 40) -> None:
    """One shard, from listing the sources to the published manifest."""
    run = RunDir(Path(tempfile.mkdtemp(prefix="run-", dir=folder)) / "run")
    run.make()
    config = replace(Config(), scan=ScanConfig(privacy=privacy, shard_bytes=shard_bytes))
    plan = plan_scan(run, config, [str(source)])
    for shard in range(len(plan.scan_shards)):
        scan_shard(run, plan, shard, lambda: False)
    shutil.rmtree(run.path.parent)


def _each_line(loads: Callable[[bytes], Any], files: list[Path]) -> None:
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                try:
                    loads(line)
                except ValueError:
                    continue  # torn lines, of which real files have some


def _orjson() -> Callable[[bytes], Any] | None:
    try:
        orjson = importlib.import_module("orjson")
    except ModuleNotFoundError:
        print("  orjson is not installed: that peer is left out")
        return None
    loads: Callable[[bytes], Any] = orjson.loads
    return loads


def _workers(folder: Path, source: Path, runs: int) -> float:
    """How much faster two processes are than one, over eight shards; the workers' start is part of it."""
    best = {1: math.inf, 2: math.inf}
    shard_bytes = sum(path.stat().st_size for path in source.iterdir()) // 8
    for _ in range(runs):
        for workers in best:
            scan = ScanConfig(workers=workers, shard_bytes=shard_bytes)
            config = replace(Config(), sources=(str(source),), scan=scan)
            out = Path(tempfile.mkdtemp(prefix="workers-", dir=folder)) / "run"
            started = time.perf_counter()
            scan_sources(RunDir(out), config, make_launcher(config), Reporter(quiet=True), lambda: False)
            best[workers] = min(best[workers], time.perf_counter() - started)
    return best[1] / best[2]


def _growth(folder: Path, quick: bool) -> float:
    """The exponent k of seconds = c * bytes^k, by least squares over one session of three sizes."""
    points: list[tuple[float, float]] = []
    for exchanges in (20, 60, 180) if quick else (60, 240, 960):
        root = folder / f"grow-{exchanges}"
        root.mkdir()
        size = write_corpus(root, 1, exchanges)
        used: list[float] = []
        for _ in range(3):
            started = time.process_time()
            scan_once(folder, root, "secrets")
            used.append(time.process_time() - started)
        points.append((math.log(size), math.log(min(used))))
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope


def memory(quick: bool) -> Result:
    """Measures peak memory; see the module."""
    folder = Path(tempfile.mkdtemp(prefix="backfill-bench-"))
    try:
        found = measure(folder, quick=quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, (size_mb, peak_mb) in found.items():
        print(f"  {name:<14} {size_mb:8.1f} MB read, {peak_mb:8.1f} MB at most")
    imports = found.pop("imports")[1]
    name, (_, peak) = max(found.items(), key=lambda item: item[1][1])
    peers = {"imports alone": imports} | {name: peak_mb for name, (_, peak_mb) in found.items()}
    return Result(
        name="scan-memory",
        value=peak,
        unit="MB",
        peers=peers,
        limit="imports alone",
        ratio=peak / LIMIT_MB,
        goal=f"< {LIMIT_MB} MB",
        met=peak < LIMIT_MB,
        notes=f"greatest for {name}",
    )


def main() -> int:
    """Runs the memory benchmark, which is too long for `bench all`, and records it."""
    from bench.__main__ import record

    parser = argparse.ArgumentParser(prog="python -m bench.scan", description=__doc__)
    parser.add_argument("--memory", action="store_true", required=True, help="measure peak memory")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    args = parser.parse_args()
    print(f"== scan-memory  ({machine()})", flush=True)
    result = memory(args.quick)
    if not args.quick:
        record(result)
    print(result.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
