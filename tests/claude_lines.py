"""Writes small Claude Code files for tests: each call is one line, linked to the line before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backfill.config import ScanConfig
from backfill.sources import UnitResult, read_unit

SESSION = "6a0c1f52-0000-4000-8000-000000000001"


class ClaudeFile:
    """Lines of a session. `parent` chains follow file order unless given; uuids are u1, u2, ..."""

    def __init__(self, session: str = SESSION, cwd: str = "/home/ana/shop", **common: Any) -> None:
        self.lines: list[bytes] = []
        self.session = session
        self.common = {"cwd": cwd, "gitBranch": "main", **common}
        self.last: str | None = None
        self.n = 0

    def add(self, kind: str, **fields: Any) -> str:
        """A record with envelope; gives its uuid. A field of None is left out, except parentUuid."""
        self.n += 1
        uuid = fields.pop("uuid", f"u{self.n}")
        record = {
            "parentUuid": fields.pop("parent", self.last),
            "isSidechain": False,
            **self.common,
            "sessionId": self.session,
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-03-01T10:{self.n // 60:02d}:{self.n % 60:02d}.000Z",
            **fields,
        }
        self.raw(record)
        self.last = uuid
        return uuid

    def raw(self, record: Any) -> None:
        """A line as it is."""
        self.lines.append((json.dumps(record, ensure_ascii=False) + "\n").encode())

    def user(self, content: Any, **fields: Any) -> str:
        """A user record."""
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def agent(self, *blocks: Any, mid: str = "", **fields: Any) -> str:
        """An assistant record; a string is a text block."""
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        message = {"id": mid or f"msg_{self.n + 1}", "role": "assistant", "model": "claude-test-1", "content": content}
        return self.add("assistant", message=message | fields.pop("message", {}), **fields)

    def result(self, call_id: str, text: Any, **fields: Any) -> str:
        """A tool result."""
        return self.user([{"type": "tool_result", "tool_use_id": call_id, "content": text}], **fields)

    def queue(self, operation: str, content: str | None = None) -> None:
        """A queue record."""
        record = {"type": "queue-operation", "operation": operation, "sessionId": self.session}
        self.raw(record | ({} if content is None else {"content": content}))

    def data(self) -> bytes:
        """The whole file."""
        return b"".join(self.lines)


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """A tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def thought(text: str) -> dict[str, Any]:
    """A thinking block."""
    return {"type": "thinking", "thinking": text}


def read(
    tmp_path: Path, data: bytes, source: str = "proj/s.jsonl", split_tokens: int = 1500, **config: Any
) -> UnitResult:
    """Reads bytes as a unit; secrets are left alone unless the test says otherwise."""
    path = tmp_path / "unit"
    path.write_bytes(data)
    return read_unit(path, source, len(data), ScanConfig(**{"privacy": "off", **config}), split_tokens=split_tokens)


def texts(result: UnitResult) -> list[tuple[str, str]]:
    """(user_text, agent_text) of the occurrences, in the order of the file."""
    rows = {e.exchange_id: e for e in result.exchanges}
    ordered = sorted(result.occurrences, key=lambda o: (o.byte_start, o.part))
    return [(rows[o.exchange_id].user_text, rows[o.exchange_id].agent_text) for o in ordered]
