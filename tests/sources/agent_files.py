"""Small files of agents, written for tests, and readings of folders and databases of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.scan import list_units
from backfill.sources import UnitResult, read_unit
from backfill.sources.units import UnitFile
from tests.sources.contract import Case


def jsonl(values: Iterable[Any]) -> bytes:
    """One value per line."""
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def read_tree(root: Path, **config: Any) -> list[UnitResult]:
    """Reads every unit below a folder; each must tile its files and name exchanges that exist."""
    results = []
    for unit in list_units([str(root)]).units:
        members = [UnitFile(root / m.source, m.source, m.size_bytes) for m in unit.members]
        settings = ScanConfig(**{"privacy": "off", **config})
        result = read_unit(root / unit.source, unit.source, unit.size_bytes, settings, members=members)
        assert check(result.ledger, unit.sizes, {e.exchange_id for e in result.exchanges}) == []
        results.append(result)
    return results


def write_tree(root: Path, files: dict[str, Any]) -> None:
    """Writes JSON documents, or bytes as they are."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


def database(path: Path, script: str, rows: dict[str, list[tuple[Any, ...]]]) -> Path:
    """A SQLite database."""
    connection = sqlite3.connect(path)
    connection.executescript(script)
    for table, values in rows.items():
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(values[0]))})", values)
    connection.commit()
    connection.close()
    return path


def told(result: UnitResult) -> list[tuple[str, str]]:
    """(user_text, agent_text) in the order in which the exchanges began."""
    rows = {e.exchange_id: e for e in result.exchanges}
    ordered = sorted(result.occurrences, key=lambda o: (o.session_id, o.started_at or 0, o.byte_start, o.part))
    return [(rows[o.exchange_id].user_text, rows[o.exchange_id].agent_text) for o in ordered]


def fates(result: UnitResult) -> list[tuple[str, int, str, str]]:
    """(source, n_records, state, reason) of the ledger."""
    return [(r.source, r.n_records, r.state, r.reason) for r in result.ledger]


CASES: tuple[Case, ...] = (
    Case(
        "opencode_transcripts",
        "opencode_transcripts",
        jsonl(
            [
                {"type": "user", "timestamp": "2026-01-02T03:04:05.000Z", "content": "Where is the lock?"},
                {
                    "type": "tool_use",
                    "timestamp": "2026-01-02T03:04:06.000Z",
                    "tool_name": "grep",
                    "tool_input": {"pattern": "lock-mark"},
                },
                {
                    "type": "tool_result",
                    "timestamp": "2026-01-02T03:04:07.000Z",
                    "tool_name": "grep",
                    "tool_input": {"pattern": "lock-mark-again"},
                    "tool_output": {"title": "x", "output": "db.py:12"},
                },
                {"type": "user", "timestamp": "2026-01-02T03:05:05.000Z", "content": "Remove it"},
            ]
        ),
        (("Where is the lock?", ""), ("Remove it", "")),
        ("lock-mark", "db.py:12"),
        ("lock-mark-again",),
    ),
)
