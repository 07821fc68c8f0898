"""Approximate search over many vectors without a graph: sign bits make a shortlist, exact scores rank it.

The sign of each number is one bit of a row (48 bytes for 384 dimensions, a sixteenth of its float16). For unit rows the
share of equal signs estimates the angle (Charikar 2002, with the axes themselves in the place of random planes), so
rows whose signs differ little from the query's are on the list, and only these are scored exactly. The bits are a
function of a row alone: they are made when first needed (0.3 s for a million rows), whatever the division into files,
and a mask applies before anything is ranked. Deliberately absent: files of its own, training, and anything random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backfill.arrays import release
from backfill.indexes.vectors import F16, F32, I64, Mask

# Words of 64 signs for as many rows at a time as stay in a core's second cache: 16,384 x 8 bytes = 128 KiB.
_BLOCK_ROWS = 16_384
# Rows that the coarser measure lets through for each row wanted.
_BY_DISTANCE = 4


class Shortlist:
    """Sign bits of the rows of several files, numbered through the files in order."""

    def __init__(self, files: Sequence[F16]) -> None:
        """`files` are [N_i, D] float16 with one D. Memory: D / 8 bytes a row, rounded up to 8."""
        self.n_rows = sum(len(rows) for rows in files)
        self._dim = files[0].shape[1] if files else 0
        n_words = -(-self._dim // 64)
        self._words = np.zeros((n_words, self.n_rows), np.uint64)
        start = 0
        for rows in files:
            for at in range(0, len(rows), _BLOCK_ROWS):
                block = rows[at : at + _BLOCK_ROWS]
                self._words[:, start + at : start + at + len(block)] = _signs(block, n_words).T
            release(rows)
            start += len(rows)

    def nearest(self, query: F32, n: int, mask: Mask | None = None) -> I64:
        """The at least `n` rows (fewer where fewer pass the mask) that are nearest by their signs, in rising order.

        Four times as many whose signs differ least from the query's are ranked by the sum of the query's numbers, each
        with the row's sign, which estimates the inner product better; ties at either cut stay. `mask` is [n_rows].
        """
        allowed = None if mask is None else np.flatnonzero(mask)
        n_allowed = self.n_rows if allowed is None else len(allowed)
        if n >= n_allowed:
            return np.arange(self.n_rows) if allowed is None else allowed
        distances = self._distances(query)
        among = distances if allowed is None else distances[allowed]
        counts = np.bincount(among, minlength=self._dim + 1)
        furthest = int(np.searchsorted(np.cumsum(counts), _BY_DISTANCE * n))
        near = np.flatnonzero(among <= furthest)
        rows = near if allowed is None else allowed[near]
        if len(rows) <= n:
            return rows
        sums = self._signed_sums(query, rows)
        best: I64 = rows[sums >= np.partition(sums, len(sums) - n)[len(sums) - n]]
        return best

    def _signed_sums(self, query: F32, rows: I64) -> F32:
        """[len(rows)] sum of the query's numbers where a row's sign is plus, which orders as sign(row) . query does."""
        packed = np.ascontiguousarray(self._words[:, rows].T).view(np.uint8)
        signs = np.unpackbits(packed, axis=1, count=self._dim).astype(np.float32)
        # Not matmul: a row's sum must not depend on its neighbours.
        sums: F32 = np.einsum("nd,d->n", signs, query)
        return sums

    def _distances(self, query: F32) -> npt.NDArray[np.uint16]:
        """[n_rows] in how many signs each row differs from the query [D]."""
        wanted = _signs(query.astype("<f2")[None], len(self._words))[0]
        distances = np.zeros(self.n_rows, np.uint16)
        differ = np.empty(_BLOCK_ROWS, np.uint64)
        for start in range(0, self.n_rows, _BLOCK_ROWS):
            here = distances[start : start + _BLOCK_ROWS]
            for word, signs in zip(self._words, wanted, strict=True):
                np.bitwise_xor(word[start : start + _BLOCK_ROWS], signs, out=differ[: len(here)])
                here += np.bitwise_count(differ[: len(here)])
        return distances


def _signs(rows: F16, n_words: int) -> npt.NDArray[np.uint64]:
    """[N, n_words] the signs of the rows, bits beyond the last number 0."""
    packed = np.packbits(rows.view(np.int16) >= 0, axis=1)
    padded = np.zeros((len(rows), 8 * n_words), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
