"""Vectors: our space over a bundle's files against plain FAISS flat and HNSW, hnswlib and usearch.

The same float16 rows and queries; one thread each. Reported for each: recall of the exact ten best, CPU ms a query,
memory or file bytes a vector, CPU seconds to build. Goal: recall of at least 0.95 at no more time than FAISS's exact
scan of float16. Below 100,000 rows ours is exact too: it scans each file for its hundred best and scores these again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.vector_space import VectorSpace
from bench import synthetic
from bench.harness import Result, cpu_timed
from bench.peers import peer

K = 10
Rows = npt.NDArray[np.float16]
Search = Callable[[npt.NDArray[np.float32]], Sequence[int]]


def run(quick: bool) -> Result:
    """Measures CPU ms a query; see the module."""
    import faiss

    faiss.omp_set_num_threads(1)
    n = 10_000 if quick else 100_000
    _, (core, context) = synthetic.vectors(n)
    files = [core] if quick else [core, context]
    rows = np.concatenate(files)
    queries = [query.vector for query in synthetic.queries(n, 60)]
    wide = rows.astype(np.float32)
    truth = [np.argsort(-(wide @ query), kind="stable")[:K].tolist() for query in queries]
    ours = VectorSpace(files, [np.arange(n) + n * at for at in range(len(files))], len(rows))
    every = np.ones(len(rows), np.bool_)
    table: dict[str, tuple[float, float, float, float]] = {}
    for name, make in {
        "ours": lambda: (lambda q: _best(ours, q, every), ours.n_rows * 48),
        "faiss fp16 flat": lambda: _faiss_flat(faiss, rows),
        "faiss HNSW32": lambda: _faiss_hnsw(faiss, wide),
        "usearch": lambda: _usearch(wide),
        "hnswlib": lambda: _hnswlib(wide),
    }.items():
        held: list[tuple[Search, float] | None] = []
        built = cpu_timed(lambda make=make, held=held: held.append(make()))  # type: ignore[misc]
        if held[0] is None:
            continue
        search, extra = held[0]
        ms, recall = _measure(search, queries, truth)
        table[name] = (ms, recall, extra / len(rows), built)
        print(f"  {name:<16} {ms:8.2f} CPU ms, recall {recall:.3f}, {extra / len(rows):6.0f} bytes a vector beside or "
              f"in place of its 768, built in {built:.1f} CPU s")  # fmt: skip
    ratio = table["ours"][0] / table["faiss fp16 flat"][0]
    return Result(
        name="vectors",
        value=table["ours"][0],
        unit="CPU ms a query",
        peers={name: row[0] for name, row in table.items() if name != "ours"},
        limit="one pass over 48 bytes a row",
        ratio=ratio,
        goal="<= FAISS's exact fp16 scan at recall >= 0.95",
        met=ratio <= 1.0 and table["ours"][1] >= 0.95,
        notes=f"{len(rows):,} vectors; recall@10 " + ", ".join(f"{name} {row[1]:.3f}" for name, row in table.items()),
    )


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
    index.add(np.arange(len(wide)), wide, threads=1)
    return (lambda q: index.search(q, K, threads=1).keys.tolist()), float(index.memory_usage)


def _hnswlib(wide: npt.NDArray[np.float32]) -> tuple[Search, float] | None:
    hnswlib = peer("hnswlib")
    if hnswlib is None:
        return None
    index = hnswlib.Index(space="ip", dim=wide.shape[1])
    index.init_index(max_elements=len(wide), M=32, ef_construction=100)
    index.add_items(wide, num_threads=1)
    index.set_ef(128)
    return (lambda q: index.knn_query(q, k=K, num_threads=1)[0][0].tolist()), (wide.shape[1] * 4 + 32 * 8) * len(wide)
