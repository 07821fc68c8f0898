"""Peak memory of a scan, whatever the sizes: files of hundreds of megabytes, each read by a process of its own.

Inputs are written here: exports of ChatGPT and Claude.ai as one document, a session as one JSONL file, an array of chat
messages, one line of 200 MB. The figure is the child's greatest resident set (getrusage), interpreter, pyarrow and the
tables' writer included; beside it the same for a process that only imports what a scan needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_MB = 400
_FULL_BYTES = {"chatgpt": 500, "claude_ai": 500, "jsonl": 500, "openai_array": 300, "one_line": 200}
_QUICK_SHARE = 10
_BLOCK_BYTES = 4 << 20


def measure(folder: Path, *, quick: bool) -> dict[str, tuple[float, float]]:
    """(MB of input, peak MB of the scan) by input; `imports` has no input. Raises RuntimeError when a scan fails."""
    found = {"imports": (0.0, _peak_mb(["-c", "import backfill.pipeline"], folder))}
    for name, size_mb in _FULL_BYTES.items():
        source = folder / name / "source"
        source.mkdir(parents=True)
        wanted = size_mb * 1_000_000 // (_QUICK_SHARE if quick else 1)
        path = _WRITERS[name](source, wanted)
        argv = ["-m", "backfill.cli", "scan", str(source), "--out", str(folder / name / "run"), "--json"]
        found[name] = (path.stat().st_size / 1e6, _peak_mb(argv, folder))
        path.unlink()
    return found


def _peak_mb(argv: list[str], folder: Path) -> float:
    """Runs this Python as the only child of a child: `ru_maxrss` of children is the greatest of all of them."""
    inner = f"import resource, subprocess, sys; done = subprocess.run([sys.executable, *{argv!r}], stdout=2); "
    inner += "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", inner], capture_output=True, text=True, check=False)
    code, peak = done.stdout.split()
    if code != "0":
        raise RuntimeError(f"{' '.join(argv)} ended with {code}: {done.stderr[-2000:]}")
    return int(peak) * (1 if sys.platform == "darwin" else 1024) / 1e6


def _text(n: int, k: int) -> str:
    """Words that differ from message to message, `k` of them."""
    return " ".join(f"step{(n * 31 + i * 7) % 5003} waits" if i % 3 else "and the queue" for i in range(k))


def _chatgpt(source: Path, size_bytes: int) -> Path:
    def conversation(c: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": [f"{c}-0"], "message": None}}
        for m in range(40):
            role = "assistant" if m % 2 else "user"
            content = {"content_type": "text", "parts": [_text(c * 40 + m, 200 if m % 2 else 30)]}
            message = {"id": f"{c}-{m}", "author": {"role": role}, "create_time": 1.77e9 + c * 1000 + m}
            mapping[f"{c}-{m}"] = {
                "id": f"{c}-{m}",
                "parent": f"{c}-{m - 1}" if m else "root",
                "children": [f"{c}-{m + 1}"] if m < 39 else [],
                "message": {**message, "content": content, "recipient": "all", "metadata": {"model_slug": "m"}},
            }
        return {"title": f"Conversation {c}", "conversation_id": f"conversation-{c}", "mapping": mapping}

    return _document(source / "conversations.json", map(conversation, range(10**9)), size_bytes)


def _claude_ai(source: Path, size_bytes: int) -> Path:
    def conversation(c: int) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {
                "uuid": f"{c}-{m}",
                "text": _text(c * 40 + m, 200 if m % 2 else 30),
                "sender": "assistant" if m % 2 else "human",
                "created_at": "2026-03-01T10:00:00.000000Z",
                "attachments": [],
            }
            for m in range(40)
        ]
        return {"uuid": f"conversation-{c}", "name": f"Conversation {c}", "chat_messages": messages}

    return _document(source / "conversations.json", map(conversation, range(10**9)), size_bytes)


def _openai_array(source: Path, size_bytes: int) -> Path:
    messages: Iterator[dict[str, Any]] = (
        {"role": "assistant" if m % 2 else "user", "content": _text(m, 200 if m % 2 else 30)} for m in range(10**9)
    )
    return _document(source / "messages.json", messages, size_bytes)


def _document(path: Path, values: Iterator[dict[str, Any]], size_bytes: int) -> Path:
    with path.open("w") as file:
        file.write("[")
        written = 1
        for n, value in enumerate(values):
            written += file.write((",\n" if n else "") + json.dumps(value))
            if written >= size_bytes:
                break
        file.write("]")
    return path


def _jsonl(source: Path, size_bytes: int) -> Path:
    from bench.scan_corpus import session_lines

    path = source / "session.jsonl"
    with path.open("w") as file:
        written = 0
        for line in session_lines("0000-jsonl", range(10**9)):
            written += file.write(json.dumps(line) + "\n")
            if written >= size_bytes:
                break
    return path


def _one_line(source: Path, size_bytes: int) -> Path:
    """A session whose second line is one tool result of the given size; the first and the last are ordinary."""
    from bench.scan_corpus import session_lines

    first, *_, last = session_lines("0000-line", range(2))
    path = source / "session.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(first).encode() + b"\n")
        file.write(b'{"type":"user","sessionId":"0000-line","uuid":"long","message":{"role":"user","content":[')
        file.write(b'{"type":"tool_result","tool_use_id":"none","content":"')
        for _ in range(size_bytes // _BLOCK_BYTES + 1):
            file.write(b"0123456789abcdef" * (_BLOCK_BYTES // 16))
        file.write(b'"}]}}\n' + json.dumps(last).encode() + b"\n")
    return path


_WRITERS: dict[str, Callable[[Path, int], Path]] = {
    "chatgpt": _chatgpt,
    "claude_ai": _claude_ai,
    "jsonl": _jsonl,
    "openai_array": _openai_array,
    "one_line": _one_line,
}
