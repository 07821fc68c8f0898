"""Scan throughput of one process, end to end, against parsing alone.

Input: synthetic Claude Code sessions written here (tool outputs of a few KB, split messages, thinking), so that anyone
can rerun it. Subjects, turn by turn: `backfill scan` of one shard (read, parse, segment, privacy, ledger, Parquet,
fsync), the same with privacy off; a loop of `json.loads` per line and nothing else, the same with orjson; reading the
bytes. Rates are per CPU second of all threads, because machines are shared. Goals: at least 0.7 of the json.loads loop,
1.2 with privacy off. The growth exponent is the slope of log seconds over log bytes of three sizes: 1 is linear.
"""

from __future__ import annotations

import importlib
import json
import math
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from backfill.config import Config, ScanConfig
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard
from bench.harness import Result, cpu_timed, take_turns

GOAL, GOAL_PRIVACY_OFF = 0.7, 1.2
WORDS = re.findall(
    r"\S+",
    "the retry of the queue worker fails because the connection pool is exhausted while the migration holds a lock on "
    "invoices and the timeout of fifteen seconds is shorter than the backup window so raise max_connections first",
)


def write_corpus(folder: Path, sessions: int, exchanges: int, seed: int = 7) -> int:
    """Writes Claude Code sessions; returns their bytes."""
    random.seed(seed)
    total = 0
    for s in range(sessions):
        lines = [line for e in range(exchanges) for line in _exchange(f"{s:08d}-0000-4000-8000-000000000000", s, e)]
        path = folder / f"session-{s:04d}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        total += path.stat().st_size
    return total


def run(quick: bool) -> Result:
    """Measures MB/s; see the module."""
    folder = Path(tempfile.mkdtemp(prefix="backfill-bench-"))
    try:
        source = folder / "src"
        source.mkdir()
        size_mb = write_corpus(source, 20 if quick else 100, 30) / 1e6
        files = sorted(source.iterdir())
        number = iter(range(1000))

        def ours(privacy: Any, root: Path) -> float:
            run = RunDir(folder / f"run-{next(number)}")
            return cpu_timed(lambda: _scan(run, root, privacy))

        subjects: dict[str, Callable[[], float]] = {
            "scan": lambda: size_mb / ours("secrets", source),
            "scan, privacy off": lambda: size_mb / ours("off", source),
            "json.loads loop": lambda: size_mb / cpu_timed(lambda: _each_line(json.loads, files)),
            "raw read": lambda: size_mb / cpu_timed(lambda: [f.read_bytes() for f in files]),
        }
        orjson_loads = _orjson()
        if orjson_loads is not None:
            subjects["orjson loop"] = lambda: size_mb / cpu_timed(lambda: _each_line(orjson_loads, files))
        print(f"  {size_mb:.1f} MB in {len(files)} files")
        spreads = take_turns(subjects, 3 if quick else 5)
        exponent = _growth(folder, partial(ours, "secrets"), quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    loads = spreads["json.loads loop"].median
    ratio = spreads["scan"].median / loads
    off = spreads["scan, privacy off"].median / loads
    return Result(
        name="scan",
        value=spreads["scan"].median,
        unit="MB/CPU s",
        peers={name: spread.median for name, spread in spreads.items() if name != "scan"},
        limit="raw read",
        ratio=ratio,
        goal=f">= {GOAL} of the json.loads loop, {GOAL_PRIVACY_OFF} with privacy off",
        met=ratio >= GOAL and off >= GOAL_PRIVACY_OFF,
        spread=spreads,
        notes=f"with privacy off {off:.2f} of the json.loads loop; growth exponent {exponent:.2f}",
    )


def _scan(run: RunDir, source: Path, privacy: Any) -> None:
    run.make()
    plan = plan_scan(run, replace(Config(), scan=ScanConfig(privacy=privacy)), [str(source)])
    for shard in range(len(plan.scan_shards)):
        scan_shard(run, plan, shard, lambda: False)


def _each_line(loads: Callable[[bytes], Any], files: list[Path]) -> None:
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                loads(line)


def _orjson() -> Callable[[bytes], Any] | None:
    try:
        orjson = importlib.import_module("orjson")
    except ModuleNotFoundError:
        print("  orjson is not installed: that peer is left out")
        return None
    loads: Callable[[bytes], Any] = orjson.loads
    return loads


def _growth(folder: Path, seconds: Callable[[Path], float], quick: bool) -> float:
    """The exponent k of seconds = c * bytes^k, by least squares over one session of three sizes."""
    points: list[tuple[float, float]] = []
    for exchanges in (60, 240, 960) if quick else (250, 1000, 4000):
        root = folder / f"grow-{exchanges}"
        root.mkdir()
        size = write_corpus(root, 1, exchanges)
        points.append((math.log(size), math.log(min(seconds(root) for _ in range(3)))))
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope


def _text(n: int) -> str:
    return " ".join(random.choices(WORDS, k=n))


def _exchange(session: str, s: int, e: int) -> list[dict[str, object]]:
    base = {
        "sessionId": session,
        "cwd": "/home/dev/ledgerline",
        "gitBranch": "main",
        "version": "2.1.4",
        "isSidechain": False,
        "userType": "external",
    }
    number = iter(range(100))
    parent = None if e == 0 else f"{s}-{e - 1}-6"
    lines: list[dict[str, object]] = []

    def add(kind: str, message: dict[str, object], **more: object) -> None:
        nonlocal parent
        i = next(number)
        uuid = f"{s}-{e}-{i}"
        stamp = f"2026-04-{1 + e % 28:02d}T10:{i:02d}:00.000Z"
        lines.append(
            {"parentUuid": parent, **base, "type": kind, "message": message, "uuid": uuid, "timestamp": stamp, **more}
        )
        parent = uuid

    def say(block: dict[str, object], part: int) -> None:
        content = [block]
        add("assistant", {"id": f"msg_{s}_{e}_{part}", "role": "assistant", "model": "m", "content": content})

    add("user", {"role": "user", "content": _text(40)})
    say({"type": "thinking", "thinking": _text(80), "signature": "x" * 200}, 0)
    for call in (1, 2):
        use = f"toolu_{s}_{e}_{call}"
        say({"type": "tool_use", "id": use, "name": "Bash", "input": {"command": f"pytest -q tests/test_{e}.py"}}, call)
        output = "\n".join(_text(12) for _ in range(60))
        result = [{"type": "tool_result", "tool_use_id": use, "content": output}]
        add("user", {"role": "user", "content": result}, toolUseResult={"stdout": output, "stderr": ""})
    say({"type": "text", "text": _text(120)}, 3)
    return lines
