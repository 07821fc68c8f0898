"""Scan throughput of one process, end to end, against parsing alone.

Input: synthetic Claude Code sessions written here (tool outputs of a few KB, split messages, thinking), so that anyone
can rerun it. Subjects, turn by turn: `backfill scan` of one shard (read, parse, segment, privacy, ledger, Parquet,
fsync); a loop of `json.loads` per line and nothing else; reading the bytes. Goal: at least 0.7 of the json.loads loop.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from pathlib import Path

from backfill.config import Config
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard
from bench.harness import Result, take_turns, timed

GOAL = 0.7
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

        def ours() -> float:
            out = RunDir(folder / f"run-{next(number)}")
            out.make()
            plan = plan_scan(out, Config(), [str(source)])
            return size_mb / timed(
                lambda: [scan_shard(out, plan, s, lambda: False) for s in range(len(plan.scan_shards))]
            )

        def loads() -> float:
            return size_mb / timed(lambda: [json.loads(line) for f in files for line in f.open("rb")])

        def raw() -> float:
            return size_mb / timed(lambda: [f.read_bytes() for f in files])

        print(f"  {size_mb:.1f} MB in {len(files)} files")
        spreads = take_turns({"scan": ours, "json.loads loop": loads, "raw read": raw}, 3 if quick else 5)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratio = spreads["scan"].median / spreads["json.loads loop"].median
    return Result(
        name="scan",
        value=spreads["scan"].median,
        unit="MB/s",
        peers={"json.loads loop": spreads["json.loads loop"].median, "raw read": spreads["raw read"].median},
        limit="raw read",
        ratio=ratio,
        goal=f">= {GOAL} of the json.loads loop",
        met=ratio >= GOAL,
        spread=spreads,
    )


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
