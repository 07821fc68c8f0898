"""Approximate indexes over many vectors: which one by size, memory and recall wanted, and how it is built and gated.

Everything here is derived from rows that lie in the bundle as float16 and rank in the end: an index only names
candidates. Up to 100,000 rows none is built. HNSW over 8-bit codes cannot be merged and is built in one pass; IVF is
trained once on a sample, every file adds to an empty clone, and the clones are merged in the order of the files.
Deliberately absent: files of a bundle and trust in them (`ann_files`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backfill.errors import ConfigError
from backfill.indexes import cagra, gpu_kmeans
from backfill.indexes.vectors import F16, F32, I64

Kind = Literal["exact", "hnsw", "ivf"]
Device = Literal["cpu", "gpu"]

EXACT_UP_TO_ROWS = 100_000
_LINKS = 32
_EF_CONSTRUCTION = 100
# Of FAISS's own advice (wiki, "Guidelines to choose an index"): 30 to 256 training rows a list.
_TRAINED_ROWS_PER_LIST = 64
_BATCH_ROWS = 16_384
_GATE_QUERIES = 200
_K = 10
# As many as a search ranks by their float16 rows, at the least (`vector_space`); of 1-bit codes 100 are too few.
_CANDIDATES = 500
# Efforts tried until the recall wanted is reached: efSearch of HNSW, nprobe of IVF.
_EFFORTS = {"hnsw": (128, 256, 512, 1024), "ivf": (16, 32, 64, 128, 256)}


@dataclass(frozen=True, slots=True)
class Choice:
    """An index: its FAISS description ("" where every row is looked at), bytes that it takes, and why this one."""

    kind: Kind
    factory: str
    n_bytes: int
    reason: str


def choose(n_rows: int, dim: int, *, memory_bytes: int, wanted: Kind | Literal["auto"] = "auto") -> Choice:
    """The index for N rows of D numbers on a host that may spend `memory_bytes` on it."""
    rows = f"{n_rows:,} rows"
    hnsw_bytes = n_rows * (dim + 4 * 2 * _LINKS + 16)
    n_lists = _lists(n_rows)
    ivf_bytes = n_rows * (dim // 8 + 8 + 8) + n_lists * dim * 4
    if wanted == "exact" or (wanted == "auto" and n_rows <= EXACT_UP_TO_ROWS):
        why = "asked for" if wanted == "exact" else f"up to {EXACT_UP_TO_ROWS:,} a scan of all takes some 10 ms"
        return Choice("exact", "", 0, f"{rows}: every one is looked at, without a second copy ({why})")
    if wanted == "hnsw" or (wanted == "auto" and hnsw_bytes <= memory_bytes):
        why = "asked for" if wanted == "hnsw" else f"fits into the {memory_bytes / 1e9:.1f} GB it may take"
        reason = f"{rows}: HNSW over 8-bit codes, {hnsw_bytes / 1e9:.2f} GB, ranked again from float16 ({why})"
        return Choice("hnsw", f"HNSW{_LINKS},SQ8", hnsw_bytes, reason)
    why = "asked for" if wanted == "ivf" else f"HNSW would take {hnsw_bytes / 1e9:.1f} GB"
    size = f"{ivf_bytes / 1e9:.2f} GB"
    reason = f"{rows}: IVF of {n_lists:,} lists with RaBitQ, {size}, ranked again from float16 ({why})"
    return Choice("ivf", f"IVF{n_lists},RaBitQ", ivf_bytes, reason)


def _lists(n_rows: int) -> int:
    """4 x the root of N, a power of two: 4,096 lists for a million rows, 65,536 for hundreds of millions."""
    return 1 << min(16, max(4, round(math.log2(4 * math.sqrt(max(n_rows, 1))))))


def build(choice: Choice, files: Sequence[F16], device: Device = "cpu") -> Any:
    """A FAISS index over the rows of all files, numbered through them in order. `choice` is not "exact".

    Raises ConfigError where a GPU is wanted and neither FAISS nor torch sees one.
    """
    if choice.kind == "hnsw" and device == "gpu" and cagra.is_there():
        return cagra.build(files)
    if choice.kind == "hnsw":
        index = _empty(choice, files[0].shape[1])
        index.hnsw.efConstruction = _EF_CONSTRUCTION
        index.train(sample(files, 16_384))
        _add(index, files)
        return index
    trained = train(choice, files, device)
    return merged([add_to_clone(trained, rows, first) for rows, first in zip(files, _firsts(files), strict=True)])


def train(choice: Choice, files: Sequence[F16], device: Device = "cpu") -> Any:
    """An empty IVF index trained on a sample of all files; a pure function of the rows."""
    index = _empty(choice, files[0].shape[1])
    rows = sample(files, _TRAINED_ROWS_PER_LIST * index.nlist)
    if device == "gpu":
        _use_gpus(index, rows)
    index.train(rows)
    return index


def add_to_clone(trained: Any, rows: F16, first: int) -> Any:
    """One shard's index: a clone of the trained one that holds the rows under the numbers from `first` on."""
    import faiss

    index = faiss.clone_index(trained)
    for start in range(0, len(rows), _BATCH_ROWS):
        batch = rows[start : start + _BATCH_ROWS].astype(np.float32)
        index.add_with_ids(batch, np.arange(first + start, first + start + len(batch), dtype=np.int64))
    return index


def merged(shards: Sequence[Any]) -> Any:
    """The shards' indexes as one, in their order; the first takes the others' rows in, and they are empty then."""
    whole = shards[0]
    for other in shards[1:]:
        whole.merge_from(other, 0)
    return whole


def sample(files: Sequence[F16], n: int) -> F32:
    """At most `n` rows at equal distances through all files, float32: the same ones for the same rows."""
    total = sum(map(len, files))
    wanted = np.unique(np.linspace(0, max(total - 1, 0), min(n, total)).astype(np.int64))
    return _rows_at(files, wanted)


def search(index: Any, query: F32, k: int, effort: int, mask: npt.NDArray[np.bool_] | None = None) -> I64:
    """At most `k` candidate rows for a query [D], rising. `mask` [N] keeps the rows that are true."""
    import faiss

    selector = None if mask is None else faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
    chosen = {} if selector is None else {"sel": selector}
    if hasattr(index, "hnsw"):
        parameters = faiss.SearchParametersHNSW(efSearch=max(effort, k), **chosen)
    else:
        parameters = faiss.SearchParametersIVF(nprobe=effort, **chosen)
    before = faiss.omp_get_max_threads()
    # One thread: see `vectors.ExactIndex`.
    faiss.omp_set_num_threads(1)
    try:
        found = index.search(query[None], k, params=parameters)[1][0]
    finally:
        faiss.omp_set_num_threads(before)
    return np.sort(found[found >= 0])


def gate(index: Any, choice: Choice, files: Sequence[F16], wanted: float) -> tuple[int, float]:
    """(effort, recall@10 against exact): the least effort that reaches the recall wanted, else the greatest.

    Queries are rows that are left out of both answers, so what is counted are the neighbours. Candidates are ranked
    by their float16 rows, as a search does.
    """
    total = sum(map(len, files))
    numbers = np.unique(np.linspace(0, total - 1, min(_GATE_QUERIES, total)).astype(np.int64))
    queries = _rows_at(files, numbers)
    exact = _exact(files, queries, numbers)
    reached = (0, 0.0)
    for effort in _EFFORTS[choice.kind]:
        hits = 0
        for query, own, best in zip(queries, numbers, exact, strict=True):
            rows = search(index, query, _CANDIDATES, effort)
            rows = rows[rows != own]
            found = rows[np.argsort(-(_rows_at(files, rows) @ query), kind="stable")[:_K]]
            hits += len(np.intersect1d(found, best))
        reached = (effort, hits / sum(map(len, exact)))
        if reached[1] >= wanted:
            break
    return reached


def _exact(files: Sequence[F16], queries: F32, own: I64) -> list[I64]:
    """The ten best rows of each query, its own left out; one pass over the files."""
    scores = np.full((len(queries), _K), -np.inf, np.float32)
    rows = np.full((len(queries), _K), -1, np.int64)
    for matrix, first in zip(files, _firsts(files), strict=True):
        for start in range(0, len(matrix), _BATCH_ROWS):
            block = queries @ matrix[start : start + _BATCH_ROWS].astype(np.float32).T
            here = np.arange(first + start, first + start + block.shape[1])
            block[own[:, None] == here[None]] = -np.inf
            scores = np.concatenate([scores, block], axis=1)
            rows = np.concatenate([rows, np.broadcast_to(here, block.shape)], axis=1)
            keep = np.argpartition(-scores, _K - 1, axis=1)[:, :_K]
            scores, rows = np.take_along_axis(scores, keep, 1), np.take_along_axis(rows, keep, 1)
    return [found[np.isfinite(best)] for found, best in zip(rows, scores, strict=True)]


def _rows_at(files: Sequence[F16], numbers: I64) -> F32:
    firsts = _firsts(files)
    out = np.empty((len(numbers), files[0].shape[1]), np.float32)
    owner = np.searchsorted(firsts, numbers, side="right") - 1
    for number, first in enumerate(firsts):
        mine = owner == number
        if mine.any():
            out[mine] = files[number][numbers[mine] - first]
    return out


def _firsts(files: Sequence[F16]) -> list[int]:
    return [0, *accumulate(len(rows) for rows in files[:-1])]


def _empty(choice: Choice, dim: int) -> Any:
    import faiss

    return faiss.index_factory(dim, choice.factory, faiss.METRIC_INNER_PRODUCT)


def _add(index: Any, files: Sequence[F16]) -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    # One thread: links depend on the order in which rows arrive, so several would give other bytes each time.
    faiss.omp_set_num_threads(1)
    try:
        for rows in files:
            for start in range(0, len(rows), _BATCH_ROWS):
                index.add(rows[start : start + _BATCH_ROWS].astype(np.float32))
    finally:
        faiss.omp_set_num_threads(before)


def _use_gpus(index: Any, rows: F32) -> None:
    """Has the centres of an IVF index found on GPUs: by faiss-gpu as it trains, or before that by torch."""
    import faiss

    if getattr(faiss, "get_num_gpus", lambda: 0)():
        index.clustering_index = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(index.d))
    elif gpu_kmeans.is_there():
        faiss.downcast_index(index.quantizer).add(gpu_kmeans.centres(rows, index.nlist))
    else:
        raise ConfigError(
            "index.ann_device is gpu, but neither FAISS nor torch sees one",
            hint="install faiss-gpu or a torch for CUDA, or set cpu",
        )
