"""Exact search over unit rows stored as raw little-endian float16 (`NAME.f16`, [N, D]).

The file is mapped, never copied: numpy and FAISS read the same bytes. Both implementations return the same answer to
the bit: FAISS finds candidates with its own float32 arithmetic, then every candidate near the cut is scored again by
one fixed float64 sum (`exact_scores`), ties going to the lower row. Deliberately absent: approximate search.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from backfill.errors import BundleError

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_STORED = np.dtype("<f2")
# Rows that are widened to float64 at a time, which stay in a core's second cache: 512 x 384 x 8 bytes = 1.6 MB.
_BLOCK_ROWS = 512


class VectorIndex(Protocol):
    """Search by inner product over the rows of one file."""

    @property
    def n_rows(self) -> int:
        """N."""
        ...

    def search(self, queries: F32, k: int, mask: Mask | None = None) -> tuple[F32, I64]:
        """The k best rows of each query [Q, D]: scores [Q, k] float32, falling, and row numbers [Q, k] int64.

        `mask` [N] keeps the rows that are true, before ranking. Equal scores are ordered by row number. Where fewer
        than k rows are left, score -inf and row -1 fill up; a row with a NaN or infinite score is never returned.
        """
        ...

    def scores_all(self, query: F32) -> F32:
        """Scores [N] float32 of one query [D], within float32 rounding of those of `search`."""
        ...

    def scores_at(self, query: F32, rows: I64) -> F32:
        """Scores [len(rows)] float32 of one query [D] for the row numbers, to the bit those of `search`."""
        ...


def open_vectors(path: Path, dim: int, n_rows: int | None = None) -> F16:
    """The rows [N, D] of a file, mapped read-only. Raises BundleError where the size does not fit dim and n_rows."""
    try:
        n_bytes = path.stat().st_size
    except OSError as error:
        raise BundleError(f"cannot read {path.name}: {error.strerror}") from error
    if dim < 1 or n_bytes % (2 * dim) or n_rows not in (None, n_bytes // (2 * dim)):
        raise BundleError(f"{path.name}: {n_bytes} bytes are not {n_rows or 'whole'} rows of {dim} float16 numbers")
    if n_bytes == 0:
        return np.empty((0, dim), _STORED)
    return np.memmap(path, _STORED, "r", shape=(n_bytes // (2 * dim), dim))


def write_vectors(rows: F16, path: Path) -> int:
    """Writes rows [N, D] as `open_vectors` reads them; returns N. Not fsynced."""
    path.write_bytes(rows.astype(_STORED, copy=False).tobytes())
    return len(rows)


class NumpyIndex:
    """The plain scan, and the specification of the other: every row is scored by the fixed float64 sum."""

    def __init__(self, rows: F16) -> None:
        """`rows` [N, D] float16. Raises ValueError for another shape or dtype."""
        self._rows = _checked_rows(rows)

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self._rows)

    def search(self, queries: F32, k: int, mask: Mask | None = None) -> tuple[F32, I64]:
        """See VectorIndex."""
        allowed = _allowed(self.n_rows, mask)
        queries = _checked_queries(queries, self._rows)
        return _each(queries, k, lambda query: (exact_scores(self._rows, allowed, query), allowed))

    def scores_all(self, query: F32) -> F32:
        """See VectorIndex."""
        return exact_scores(self._rows, np.arange(self.n_rows), _checked_queries(query[None], self._rows)[0])

    def scores_at(self, query: F32, rows: I64) -> F32:
        """See VectorIndex."""
        return exact_scores(self._rows, rows, _checked_queries(query[None], self._rows)[0])


class ExactIndex:
    """A FAISS scan of float16 codes that lie in the mapped file (IndexScalarQuantizer, QT_fp16, inner product)."""

    def __init__(self, rows: F16) -> None:
        """`rows` [N, D] float16. Raises ValueError for another shape or dtype."""
        import faiss

        self._faiss = faiss
        self._rows = _checked_rows(rows)
        self._index = faiss.IndexScalarQuantizer(
            rows.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self._keep_alive = _set_codes(faiss, self._index, rows) if len(rows) else None

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self._rows)

    def search(self, queries: F32, k: int, mask: Mask | None = None) -> tuple[F32, I64]:
        """See VectorIndex."""
        queries = _checked_queries(queries, self._rows)
        n_allowed = self.n_rows if mask is None else int(np.count_nonzero(_checked_mask(self.n_rows, mask)))
        parameters = None
        if mask is not None and n_allowed:
            bits = np.packbits(mask, bitorder="little")
            parameters = self._faiss.SearchParameters(sel=self._faiss.IDSelectorBitmap(bits))
        return _each(queries, k, lambda query: self._candidates(query, k, n_allowed, parameters))

    def scores_all(self, query: F32) -> F32:
        """See VectorIndex."""
        scores = np.full(self.n_rows, -np.inf, np.float32)
        if self.n_rows:
            found, rows = self._search(_checked_queries(query[None], self._rows), self.n_rows, None)
            scores[rows[0][rows[0] >= 0]] = found[0][rows[0] >= 0]
        return scores

    def scores_at(self, query: F32, rows: I64) -> F32:
        """See VectorIndex."""
        return exact_scores(self._rows, rows, _checked_queries(query[None], self._rows)[0])

    def _search(self, queries: F32, k: int, parameters: Any) -> tuple[F32, I64]:
        # One thread: where other programs want the cores too, OpenMP's threads wait for each other in a busy loop, and
        # a scan of 2,000 rows takes 20 ms instead of 0.2. The setting is the calling thread's own.
        before = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            scores, rows = self._index.search(queries, k, params=parameters)
        finally:
            self._faiss.omp_set_num_threads(before)
        return scores, rows

    def _candidates(self, query: F32, k: int, n_allowed: int, parameters: Any) -> tuple[F32, I64]:
        """Every row that can be among the k best once scores are exact, with its exact score."""
        # Error bound of a float32 dot product of D terms: D * 2^-24 * |x| |q| (Higham 2002, 3.1), for both sides.
        margin = query.size * 2.0**-23 * float(np.linalg.norm(query)) * 1.01
        depth, wanted = min(n_allowed, k), min(n_allowed, k + 16)
        while wanted:
            found, rows = self._search(query[None], wanted, parameters)
            if wanted == n_allowed or found[0, wanted - 1] < found[0, depth - 1] - margin:
                near = np.sort(rows[0][rows[0] >= 0])
                return exact_scores(self._rows, near, query), near
            wanted = min(n_allowed, 2 * wanted)
        return np.empty(0, np.float32), np.empty(0, np.int64)


def _set_codes(faiss: Any, index: Any, rows: F16) -> Any:
    """Lets the index read the rows where they lie, or copies them where this FAISS cannot; returns what to keep."""
    codes = rows.reshape(-1).view(np.uint8)
    try:
        # The owner of an owned vector is a null shared_ptr: the view then frees nothing, and we keep the rows alive.
        view = faiss.MaybeOwnedVectorUInt8.create_view(faiss.swig_ptr(codes), codes.size, index.codes.owner)
        index.codes = view
    except (AttributeError, TypeError):
        faiss.copy_array_to_vector(codes, index.codes)
    index.ntotal = len(rows)
    return codes


def _each(queries: F32, k: int, candidates: Callable[[F32], tuple[F32, I64]]) -> tuple[F32, I64]:
    scores = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.full((len(queries), k), -1, np.int64)
    for i, query in enumerate(queries):
        found, found_rows = candidates(query)
        finite = np.isfinite(found)
        found, found_rows = found[finite], found_rows[finite]
        # Rows stand in rising order, so a stable sort gives ties to the lower row.
        best = np.argsort(-found, kind="stable")[:k]
        scores[i, : len(best)], rows[i, : len(best)] = found[best], found_rows[best]
    return scores, rows


def exact_scores(rows: F16, numbers: I64 | None, query: F32) -> F32:
    """Scores [len(numbers)] float32 of the rows of these numbers (None: of all): products summed in float64, in an
    order that depends on D alone."""
    n = len(rows) if numbers is None else len(numbers)
    scores = np.empty(n, np.float32)
    wide = query.astype(np.float64)
    for start in range(0, n, _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        block = widened(rows[start:stop] if numbers is None else rows[numbers[start:stop]]).astype(np.float64)
        block *= wide
        scores[start : start + _BLOCK_ROWS] = block.sum(axis=1)
    return scores


def widened(rows: F16) -> F32:
    """The rows as float32, infinities as NaN: three times as fast as `astype`, which widens number by number.

    Sign, exponent and fraction of a float16 move to their places in a float32, whose exponent is then off by 112.
    """
    bits = rows.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # 0x8FFFE000: the copies of the sign bit that the shift made go
    wide: F32 = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    magnitude = rows.view(np.uint16) & 0x7FFF
    if magnitude.size and magnitude.max() >= 0x7C00:
        wide[magnitude >= 0x7C00] = np.nan
    return wide


def _allowed(n_rows: int, mask: Mask | None) -> I64:
    return np.arange(n_rows) if mask is None else np.flatnonzero(_checked_mask(n_rows, mask))


def _checked_rows(rows: F16) -> F16:
    if rows.dtype != _STORED or rows.ndim != 2:
        raise ValueError(f"rows are {rows.dtype} {rows.shape}, not float16 [N, D]")
    return rows


def _checked_mask(n_rows: int, mask: Mask) -> Mask:
    if mask.dtype != np.bool_ or mask.shape != (n_rows,):
        raise ValueError(f"the mask is {mask.dtype} {mask.shape}, not bool ({n_rows},)")
    return mask


def _checked_queries(queries: F32, rows: F16) -> F32:
    if queries.ndim != 2 or queries.shape[1] != rows.shape[1]:
        raise ValueError(f"queries {queries.shape} do not fit rows {rows.shape}")
    return np.ascontiguousarray(queries, np.float32)
