"""The whole cross-layer query against the same put together by hand from SQLite FTS5 and FAISS.

Both get the same texts, vectors and query vectors (no encoding), find the ten best exchanges by min-max of BM25 and
vectors (.5 + .5, depth 200) and read prompt, answer, distilled text and place of each. By hand means: one SQLite file
with an FTS5 table (porter) and a table of rows, one FAISS flat index of float16 over core vectors and one over context
vectors. Wall ms, in turn, since both may use both cores; median and 99th percentile. Goal: below 0.7 of its time at
equal or better MRR of the one right answer.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfill.bundle import Bundle
from bench import synthetic
from bench.harness import Result

K, DEPTH = 10, 200
SIZES = (10_000, 100_000)


def run(quick: bool, n: int = 0) -> Result:
    """Measures ms a query; see the module. `n` overrides the size (1,000,000 by hand: `python -m bench.query N`)."""
    n = n or (SIZES[0] if quick else SIZES[1])
    queries = synthetic.queries(n, 60 if quick else 200)
    ours, by_hand = Ours(n, queries), ByHand(n)
    subjects: dict[str, Callable[[synthetic.Query], list[bytes]]] = {"ours": ours, "SQLite FTS5 + FAISS": by_hand}
    ms: dict[str, list[float]] = {name: [] for name in subjects}
    cpu: dict[str, list[float]] = {name: [] for name in subjects}
    ranks: dict[str, list[float]] = {name: [] for name in subjects}
    for number, query in enumerate(queries):
        for name, subject in subjects.items():
            began, cpu_began = time.perf_counter(), time.process_time()
            found = subject(query)
            if number >= 5:
                ms[name].append((time.perf_counter() - began) * 1e3)
                cpu[name].append((time.process_time() - cpu_began) * 1e3)
                ranks[name].append(synthetic.reciprocal_rank(found, query.target))
    mrr = {name: statistics.mean(found) for name, found in ranks.items()}
    p99 = {name: float(np.percentile(found, 99)) for name, found in ms.items()}
    for name in subjects:
        print(f"  {name:<20} p50 {statistics.median(ms[name]):8.2f} ms, p99 {p99[name]:8.2f}, CPU "
              f"{statistics.median(cpu[name]):.2f} ms, MRR {mrr[name]:.3f}")  # fmt: skip
    again = _again(ours, queries[5:])
    theirs = statistics.median(ms["SQLite FTS5 + FAISS"])
    value = statistics.median(ms["ours"])
    met = value <= 0.7 * theirs and mrr["ours"] >= mrr["SQLite FTS5 + FAISS"]
    return Result(
        name="query",
        value=value,
        unit="ms",
        peers={"SQLite FTS5 + FAISS": theirs},
        limit="decoding the row groups of ten hits",
        ratio=value / theirs,
        goal="<= 0.7 of it at equal or better MRR",
        met=met,
        notes=f"{n:,} exchanges; MRR " + ", ".join(f"{name} {found:.3f}" for name, found in mrr.items())
        + f"; CPU ms {', '.join(f'{k} {statistics.median(v):.1f}' for k, v in cpu.items())}"
        + f"; p99 ms {', '.join(f'{k} {v:.1f}' for k, v in p99.items())}; ours asked again {again:.2f}",
    )  # fmt: skip


class Ours:
    """The default search of the library."""

    def __init__(self, n: int, queries: Sequence[synthetic.Query]) -> None:
        self._bundle: Any = synthetic.opened(n, queries)

    def __call__(self, query: synthetic.Query) -> list[bytes]:
        return [bytes.fromhex(hit.exchange_id) for hit in self._bundle.search(query.text, k=K).hits]


class ByHand:
    """What a weekend gives: FTS5 for words, FAISS for meaning, a table to read from."""

    def __init__(self, n: int) -> None:
        import faiss

        self._ids, (core, context) = synthetic.vectors(n)
        path = database(n)
        self._db = sqlite3.connect(path)
        self._indexes = []
        for rows in (core, context):
            index = faiss.IndexScalarQuantizer(synthetic.DIM, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
            index.add(rows.astype(np.float32))
            self._indexes.append(index)
        self._parts = (core, context)

    def __call__(self, query: synthetic.Query) -> list[bytes]:
        words = " OR ".join(f'"{word}"' for word in query.text.split())
        sql = "SELECT rowid, bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY bm25(texts) LIMIT ?"
        by_words = {row - 1: -score for row, score in self._db.execute(sql, (words, DEPTH))}
        found = set(by_words)
        for index in self._indexes:
            found.update(row for row in index.search(query.vector[None], DEPTH)[1][0].tolist() if row >= 0)
        rows = np.array(sorted(found))
        near = np.maximum(*(part[rows].astype(np.float32) @ query.vector for part in self._parts))
        text = np.array([by_words.get(row, 0.0) for row in rows.tolist()])
        fused = 0.5 * _minmax(text, 0.0) + 0.5 * _minmax(near, float(near.min()))
        best = rows[np.argsort(-fused, kind="stable")[:K]].tolist()
        for row in best:
            self._db.execute("SELECT user_text, agent_text, rest FROM rows WHERE rowid = ?", (row + 1,)).fetchone()
        return [self._ids[row] for row in best]


def database(n: int) -> Path:
    """The SQLite file of the bundle's rows, made once."""
    path = synthetic.CACHE / f"by-hand-v{synthetic.VERSION}-{n}.sqlite"
    if path.exists():
        return path
    attempt = path.with_suffix(f".{os.getpid()}")
    db = sqlite3.connect(attempt)
    db.execute("CREATE TABLE rows (user_text, agent_text, rest)")
    db.execute("CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter unicode61')")
    for segment in Bundle.open(synthetic.bundle(n)).segments:
        texts = segment.table("exchanges").read(("user_text", "agent_text"))
        objects = segment.table("objects").read(("exchange_core", "specific_context"))
        places = segment.table("occurrences").read(("project", "session_id", "source", "started_at"))
        docs = segment.docs
        for doc, row in enumerate(docs.exchange_row.tolist()):
            at, place = int(docs.object_row[doc]), int(docs.occ_row[docs.occ_indptr[doc]])
            rest = [*(objects[name][at] for name in objects), *(places[name][place] for name in places)]
            user, agent = texts["user_text"][row], texts["agent_text"][row]
            number = db.execute("INSERT INTO rows VALUES (?, ?, ?)", (user, agent, json.dumps(rest))).lastrowid
            db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (number, f"{user}\n{agent}"))
    db.commit()
    db.execute("INSERT INTO texts (texts) VALUES ('optimize')")
    db.commit()
    db.close()
    attempt.rename(path)
    return path


def _minmax(scores: Any, low: float) -> Any:
    spread = float(scores.max()) - low
    return (scores - low) / spread if spread > 0 else np.zeros(len(scores))


def _again(ours: Ours, queries: Sequence[synthetic.Query]) -> float:
    """Median ms of the queries asked a second time, when what they read is remembered."""
    taken = []
    for query in queries[:40]:
        ours(query)
    for query in queries[:40]:
        began = time.perf_counter()
        ours(query)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


if __name__ == "__main__":
    import sys

    print(run(False, int(sys.argv[1])).line())
