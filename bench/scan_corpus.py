"""The corpus of the scan's benchmark: Claude Code sessions whose make-up is that of real ones.

Counted over 33 MB of public Claude Code sessions (8,986 lines): of the lines 41% are the agent's, 31% progress, 22%
the user's (nearly all tool results), 4% snapshots; of the bytes 43% are `toolUseResult`, which repeats results with
whole files, 20% progress, 14% tool results, 4% thinking, 3% calls, 1% what is said. A line has 1.0 KB at the median,
6.4 KB at the ninth decile, 3.7 KB on average; an exchange has 9 tool calls (a third shell, a quarter reads, a fifth
edits). `make_up` counts the same of any folder. Deliberately absent: real text; words and code are drawn from
short lists.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WORDS = re.findall(
    r"\S+",
    "the retry of the queue worker fails because the connection pool is exhausted while the migration holds a lock on "
    "invoices and the timeout of fifteen seconds is shorter than the backup window so raise max_connections in "
    "src/ledger/pool.py first",
)
CODE = (
    '    def settle(self, invoice: "Invoice", *, dry_run: bool = False) -> None:\n',
    '        if invoice["state"] not in ("open", "late"):\n            raise ValueError(f"{invoice!r} is closed")\n',
    "        for row in self.rows[start : start + PAGE]:\n            total += row.amount  # cents\n",
    '\treturn fmt.Errorf("pool %s: %w", name, err)\n}\n\n',
    "  const { data, error } = useQuery(['invoices', id], () => fetch(`/api/invoices/${id}`));\n",
    "src/ledger/pool.py:118:    token = os.environ['LEDGER_TOKEN']\n",
    "PASSED tests/test_pool.py::test_retry[15-3] in 0.42s → ok\n",
)
# Bytes of a tool's output and how often, of a hundred; whole files and test logs make the long tail.
_SIZES = ((120, 30), (600, 28), (1_800, 22), (5_000, 14), (14_000, 5), (40_000, 1))
_TOOLS = ("Bash", "Bash", "Bash", "Read", "Read", "Edit", "Edit", "Grep", "TodoWrite")


def write_corpus(folder: Path, sessions: int, exchanges: int, seed: int = 7) -> int:
    """Writes sessions as files; returns their bytes."""
    total = 0
    for s in range(sessions):
        path = folder / f"session-{s:04d}.jsonl"
        lines = session_lines(f"{s:08d}-0000-4000-8000-000000000000", range(exchanges), seed + s)
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        total += path.stat().st_size
    return total


def session_lines(session: str, exchanges: Iterable[int], seed: int = 7) -> Iterator[dict[str, Any]]:
    """The records of one session, exchange by exchange."""
    draw = random.Random(seed)
    writer = _Session(session, draw)
    for number in exchanges:
        yield from writer.exchange(number)


def make_up(files: Iterable[Path]) -> str:
    """One line that says what JSONL files are made of, so that two corpora can be compared."""
    lengths: list[int] = []
    kinds: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for path in files:
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if not isinstance(record, dict):
                continue
            lengths.append(len(line))
            kinds[str(record.get("type"))] += 1
            parts["toolUseResult"] += len(json.dumps(record.get("toolUseResult"))) if "toolUseResult" in record else 0
            if record.get("type") == "progress":
                parts["progress"] += len(line)
    lengths.sort()
    n, size = len(lengths), sum(lengths)
    shares = ", ".join(f"{kind} {count / n:.0%}" for kind, count in kinds.most_common(4))
    weights = ", ".join(f"{part} {count / size:.0%}" for part, count in parts.most_common())
    return (
        f"{size / 1e6:.1f} MB in {n:,} lines ({shares}); of the bytes {weights}; "
        f"a line has {lengths[n // 2]:,} bytes at the median, {lengths[n * 9 // 10]:,} at the ninth decile"
    )


class _Session:
    """Writes the records of one session, each naming the one before."""

    def __init__(self, session: str, draw: random.Random) -> None:
        self._draw = draw
        self._parent: str | None = None
        self._n = 0
        self._session = session
        self._envelope = {
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/dev/ledgerline",
            "sessionId": session,
            "version": "2.1.4",
            "gitBranch": "main",
        }

    def exchange(self, number: int) -> Iterator[dict[str, Any]]:
        """A prompt, nine tool calls with progress between them, and the answer."""
        yield self._line("user", message={"role": "user", "content": self._words(30)})
        for call in range(9):
            message = f"msg_{self._session[:8]}_{number}_{call}"
            if self._draw.random() < 0.65:
                thinking = {"type": "thinking", "thinking": self._words(90), "signature": "x" * 400}
                yield self._said(message, thinking)
            if self._draw.random() < 0.5:
                yield self._said(message, {"type": "text", "text": self._words(25)})
            tool = self._draw.choice(_TOOLS)
            use, arguments = f"toolu_{self._session[:8]}_{number}_{call}", self._arguments(tool)
            yield self._said(message, {"type": "tool_use", "id": use, "name": tool, "input": arguments})
            for _ in range(self._draw.choice((1, 1, 2, 2))):
                inner = {"type": "assistant", "message": {"content": [{"type": "text", "text": self._code(1200)}]}}
                data = {"type": "agent_progress", "message": inner, "normalizedMessages": [], "agentId": "a1b2c3"}
                yield self._line("progress", data=data, toolUseID=use, parentToolUseID=use)
            output = self._code(self._draw.choices(*zip(*_SIZES, strict=True))[0])
            result = [{"type": "tool_result", "tool_use_id": use, "content": output}]
            yield self._line("user", message={"role": "user", "content": result}, toolUseResult=self._repeated(output))
        snapshot = {"messageId": f"{self._n}", "trackedFileBackups": {}, "timestamp": "2026-04-01T10:00:00.000Z"}
        yield {"type": "file-history-snapshot", "messageId": f"{self._n}", "snapshot": snapshot}
        answer = {"type": "text", "text": self._words(120)}
        yield self._said(f"msg_{self._session[:8]}_{number}_end", answer)

    def _line(self, kind: str, **more: Any) -> dict[str, Any]:
        self._n += 1
        uuid = f"{self._session[:8]}-{self._n:06d}-4000-8000-000000000000"
        minute, second = divmod(self._n, 60)
        stamp = f"2026-04-{1 + minute // 1440 % 28:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d}.250Z"
        line = {"parentUuid": self._parent, **self._envelope, "type": kind, **more, "uuid": uuid, "timestamp": stamp}
        self._parent = uuid
        return line

    def _said(self, message: str, block: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 4, "cache_read_input_tokens": 41_000, "output_tokens": 210, "service_tier": "standard"}
        said = {"model": "m", "id": message, "type": "message", "role": "assistant", "content": [block], "usage": usage}
        return self._line("assistant", message=said, requestId=f"req_{message}")

    def _arguments(self, tool: str) -> dict[str, Any]:
        file = f"/home/dev/ledgerline/src/ledger/pool_{self._n}.py"
        if tool == "Bash":
            return {"command": f"cd src && pytest -q tests/test_{self._n}.py 2>&1 | tail -20", "description": "Test"}
        if tool == "Edit":
            return {"file_path": file, "old_string": self._code(250), "new_string": self._code(300)}
        if tool == "Grep":
            return {"pattern": "max_connections", "path": "src", "output_mode": "content"}
        return {"file_path": file} if tool == "Read" else {"todos": [{"content": self._words(8), "status": "pending"}]}

    def _repeated(self, output: str) -> dict[str, Any]:
        """What the record says of the result beside the message: it again, with the whole file for every other one."""
        whole = self._code(2 * len(output) + 4_000) if self._draw.random() < 0.5 else ""
        return {"stdout": output, "stderr": "", "interrupted": False, "originalFile": whole, "isImage": False}

    def _words(self, n: int) -> str:
        return " ".join(self._draw.choices(WORDS, k=n))

    def _code(self, n_bytes: int) -> str:
        pieces = self._draw.choices(CODE, k=n_bytes // 60 + 1)
        return "".join(pieces)[:n_bytes]
