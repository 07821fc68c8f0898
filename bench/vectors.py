"""Vectors: our space over a bundle's files against plain FAISS flat and HNSW, hnswlib and usearch.

The same float16 rows and queries; one thread a query. Reported for each: recall of the exact ten best, CPU ms a query,
bytes a vector in all, CPU seconds to build. Ours keeps the float16 rows once and looks at all of them up to 100,000, by
their sign bits above; the index that `backfill index` builds above that (8-bit HNSW, which names candidates for exact
scores) is a subject of its own at every size. Goals: at equal recall at most 1.1 times the time of its kind, the scan
against FAISS's exact float16 scan and the index against FAISS's float16 HNSW; fewer bytes than any graph.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.indexes import ann
from backfill.vector_space import SHORTLIST_ABOVE_ROWS, VectorSpace
from bench import synthetic
from bench.harness import Result, cpu_timed
from bench.peers import peer

K = 10
GOAL, RECALL_MARGIN = 1.1, 0.005
PAIRS = (("ours", "faiss fp16 flat"), ("ours, index", "faiss HNSW32"))
Rows = npt.NDArray[np.float16]
Search = Callable[[npt.NDArray[np.float32]], Sequence[int]]


def run(quick: bool) -> Result:
    """Measures CPU ms a query; see the module."""
    import faiss

    n = 10_000 if quick else 100_000
    _, (core, context) = synthetic.vectors(n)
    files = [core[: n // 2]] if quick else [core, context]
    rows = np.concatenate(files)
    queries = [query.vector for query in synthetic.queries(n, 60)]
    wide = rows.astype(np.float32)
    truth = [np.argsort(-(wide @ query), kind="stable")[:K].tolist() for query in queries]
    ours = VectorSpace(files, np.split(np.arange(len(rows)), len(files)), len(rows))
    every = np.ones(len(rows), np.bool_)
    table: dict[str, tuple[float, float, float, float]] = {}
    for name, make in {
        "ours": lambda: ((lambda q: _best(ours, q, every)), _scan_bytes(len(rows))),
        "ours, index": lambda: _index(files),
        "faiss fp16 flat": lambda: _faiss_flat(faiss, rows),
        "faiss HNSW32": lambda: _faiss_hnsw(faiss, wide),
        "usearch": lambda: _usearch(wide),
        "hnswlib": lambda: _hnswlib(wide),
    }.items():
        held: list[tuple[Search, float] | None] = []
        faiss.omp_set_num_threads(os.cpu_count() or 1)
        built = cpu_timed(lambda make=make, held=held: held.append(make()))  # type: ignore[misc]
        if held[0] is None:
            continue
        search, extra = held[0]
        faiss.omp_set_num_threads(1)
        ms, recall = _measure(search, queries, truth)
        table[name] = (ms, recall, extra / len(rows), built)
        print(f"  {name:<16} {ms:8.2f} CPU ms, recall {recall:.3f}, {extra / len(rows):6.0f} bytes a vector, "
              f"built in {built:.1f} CPU s")  # fmt: skip
    ratios = [table[name][0] / table[peer][0] for name, peer in PAIRS]
    as_good = all(table[name][1] >= table[peer][1] - RECALL_MARGIN for name, peer in PAIRS)
    graphs = [row[2] for name, row in table.items() if "ours" not in name and "flat" not in name]
    return Result(
        name="vectors",
        value=table["ours"][0],
        unit="CPU ms a query",
        peers={name: row[0] for name, row in table.items() if name != "ours"},
        limit="one pass over the rows, or over 48 bytes of each above 100,000",
        ratio=ratios[0],
        goal=f"<= {GOAL} of its kind in FAISS at equal recall, fewer bytes than a graph",
        met=max(ratios) <= GOAL and as_good and table["ours"][2] < min(graphs),
        notes=f"{len(rows):,} vectors; index {ratios[1]:.2f} of FAISS HNSW; recall@10, bytes a vector: "
        + ", ".join(f"{name} {row[1]:.3f}, {row[2]:.0f}" for name, row in table.items()),
    )


def _scan_bytes(n_rows: int) -> float:
    return n_rows * 2.0 * synthetic.DIM + (n_rows * synthetic.DIM / 8 if n_rows > SHORTLIST_ABOVE_ROWS else 0.0)


def _index(files: Sequence[Rows]) -> tuple[Search, float]:
    """The product's own graph, with the least effort that its gate accepts; it stands beside the float16 rows."""
    n = sum(map(len, files))
    choice = ann.choose(n, synthetic.DIM, memory_bytes=1 << 40, wanted="hnsw")
    index = ann.build(choice, files)
    effort, _ = ann.gate(index, choice, files, 0.95)
    rows = np.concatenate(files)

    def search(query: npt.NDArray[np.float32]) -> Sequence[int]:
        units = ann.search(index, query, 100, effort)
        scores = rows[units].astype(np.float32) @ query
        return units[np.argsort(-scores, kind="stable")[:K]].tolist()  # type: ignore[no-any-return]

    return search, choice.n_bytes + n * 2.0 * synthetic.DIM


def _best(space: VectorSpace, query: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> Sequence[int]:
    units = space.candidates(query, mask, 100)
    return units[np.argsort(-space.scores(query, units), kind="stable")[:K]].tolist()  # type: ignore[no-any-return]


def _measure(
    search: Search, queries: Sequence[npt.NDArray[np.float32]], truth: Sequence[list[int]]
) -> tuple[float, float]:
    search(queries[0])
    taken, recall = [], []
    for query, best in zip(queries, truth, strict=True):
        began = time.process_time()
        found = search(query)
        taken.append((time.process_time() - began) * 1e3)
        recall.append(len(set(found) & set(best)) / K)
    return statistics.median(taken), statistics.mean(recall)


def _faiss_flat(faiss: Any, rows: Rows) -> tuple[Search, float]:
    index = faiss.IndexScalarQuantizer(rows.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.add(rows.astype(np.float32))
    return (lambda q: index.search(q[None], K)[1][0].tolist()), rows.shape[1] * 2 * len(rows)


def _faiss_hnsw(faiss: Any, wide: npt.NDArray[np.float32]) -> tuple[Search, float]:
    index = faiss.IndexHNSWSQ(wide.shape[1], faiss.ScalarQuantizer.QT_fp16, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, 128
    index.train(wide[:1000])
    index.add(wide)
    return (lambda q: index.search(q[None], K)[1][0].tolist()), (wide.shape[1] * 2 + 32 * 2 * 4 * 1.05) * len(wide)


def _usearch(wide: npt.NDArray[np.float32]) -> tuple[Search, float] | None:
    usearch = peer("usearch.index")
    if usearch is None:
        return None
    index = usearch.Index(ndim=wide.shape[1], metric="ip", dtype="f16", connectivity=32, expansion_search=128)
    index.add(np.arange(len(wide)), wide, threads=os.cpu_count() or 1)
    return (lambda q: index.search(q, K, threads=1).keys.tolist()), float(index.memory_usage)


def _hnswlib(wide: npt.NDArray[np.float32]) -> tuple[Search, float] | None:
    hnswlib = peer("hnswlib")
    if hnswlib is None:
        return None
    index = hnswlib.Index(space="ip", dim=wide.shape[1])
    index.init_index(max_elements=len(wide), M=32, ef_construction=100)
    index.add_items(wide, num_threads=os.cpu_count() or 1)
    index.set_ef(128)
    return (lambda q: index.knn_query(q, k=K, num_threads=1)[0][0].tolist()), (wide.shape[1] * 4 + 32 * 8) * len(wide)
