"""TREC run files: `query Q0 doc rank score tag`, one line a retrieved document.

The score is what is left of the depth (n - rank + 1), not the ranker's own: scorers sort by it, and equal scores
would let them choose another order than ours. White space in ids becomes %-escapes, as the format has no quoting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from backfill.errors import UsageError

_NAME = re.compile(r"[^\w.-]+")
_SPACE = re.compile(r"[\s%]")


def run_name(name: str) -> str:
    """The file name of a configuration: letters, digits, dot, dash and underscore."""
    return f"{_NAME.sub('_', name)}.trec"


def write_run(path: Path, tag: str, ranked: Iterable[tuple[str, Sequence[str]]]) -> int:
    """Writes (query, documents best first) pairs; returns the number of lines."""
    lines = 0
    tag = _NAME.sub("_", tag)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for query, docs in ranked:
            head, n_docs = f"{_escaped(query)} Q0 ", len(docs)
            file.writelines(
                f"{head}{_escaped(doc)} {rank} {n_docs - rank + 1} {tag}\n" for rank, doc in enumerate(docs, 1)
            )
            lines += n_docs
    return lines


def read_run(path: Path) -> dict[str, list[str]]:
    """Documents by query, by rank. Raises UsageError for a line of another form."""
    rows: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if len(fields) != 6 or not fields[3].isdigit():
            raise UsageError(f"{path}, line {number}: not `query Q0 doc rank score tag`")
        rows.setdefault(fields[0], []).append((int(fields[3]), fields[2]))
    return {query: [doc for _, doc in sorted(found)] for query, found in rows.items()}


def _escaped(name: str) -> str:
    return _SPACE.sub(lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)
