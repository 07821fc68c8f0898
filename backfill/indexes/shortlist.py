"""Approximate search over many vectors without a graph: sign bits make a shortlist, exact scores rank it.

The sign of each number is one bit of a row (48 bytes for 384 dimensions, a sixteenth of its float16). For unit rows the
share of equal signs estimates the angle (Charikar 2002, with the axes themselves in the place of random planes), so
rows whose signs differ little from the query's are on the list, and only these are scored exactly. The bits are a
function of a row alone: they are made when first needed (0.3 s for a million rows), whatever the division into files,
and a mask applies before anything is ranked. Deliberately absent: files of its own, training, and anything random.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backfill.indexes.scattered import blocks
from backfill.indexes.vectors import F16, F32, I64, Mask

# Rows at a time of which the bits stay in a core's second cache: 4,096 x 48 bytes = 192 KiB.
_BLOCK_ROWS = 4096
# Rows read at a time to take their signs: 768 KiB of 384 numbers.
_READ_ROWS = 1024
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
# Rows that the coarser measure lets through for each row wanted.
_BY_DISTANCE = 4
# One distance in so many tells where about the least of many end.
_SAMPLED = 16


class Shortlist:
    """Sign bits of the rows of several files, numbered through the files in order."""

    def __init__(self, files: Sequence[F16]) -> None:
        """`files` are [N_i, D] float16 with one D. Memory: D / 8 bytes a row, rounded up to 8."""
        self.n_rows = sum(len(rows) for rows in files)
        self._dim = files[0].shape[1] if files else 0
        n_words = -(-self._dim // 64)
        # A row's bits lie together: what is ranked further is gathered by rows.
        self._codes = np.zeros((self.n_rows, 8 * n_words), np.uint8)
        self._searches = 0
        start = 0
        for rows in files:
            for block in blocks(rows, _READ_ROWS):
                self._codes[start : start + len(block)] = _signs(block, 8 * n_words)
                start += len(block)

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
        near = _least(among, _BY_DISTANCE * n)
        rows = near if allowed is None else allowed[near]
        if len(rows) <= n:
            return rows
        sums = self._signed_sums(query, rows)
        best: I64 = rows[sums >= np.partition(sums, len(sums) - n)[len(sums) - n]]
        return best

    def _signed_sums(self, query: F32, rows: I64) -> F32:
        """[len(rows)] sum of the query's numbers where a row's sign is plus, which orders as sign(row) . query does.

        Eight numbers at a time: their 256 sums stand in a table, and a byte of a row's signs picks one.
        """
        eights = np.zeros(8 * self._codes.shape[1], np.float32)
        eights[: self._dim] = query
        # Not matmul: a sum must not depend on how many others are made beside it.
        table = np.einsum("ge,be->gb", eights.reshape(-1, 8), _BITS)
        sums = np.zeros(len(rows), np.float32)
        # Widened once: `take` would widen each column by itself. Nothing is clipped, but nothing checked either.
        columns = self._codes.take(rows, axis=0).T.astype(np.intp, order="C")
        for of_byte, codes in zip(table, columns, strict=True):
            sums += of_byte.take(codes, mode="clip")
        return sums

    def _distances(self, query: F32) -> npt.NDArray[np.int32]:
        """[n_rows] in how many signs each row differs from the query [D].

        FAISS counts three times as fast as numpy does; a process that searches once is spared its import (0.2 s).
        """
        wanted = _signs(query.astype("<f2")[None], self._codes.shape[1])
        self._searches += 1
        if self._searches == 1 and "faiss" not in sys.modules:
            return self._distances_by_numpy(wanted)
        import faiss

        distances = np.empty(self.n_rows, np.int32)
        pointers = (faiss.swig_ptr(array) for array in (wanted, self._codes))
        faiss.hammings(*pointers, 1, self.n_rows, self._codes.shape[1], faiss.swig_ptr(distances))
        return distances

    def _distances_by_numpy(self, wanted: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        distances = np.empty(self.n_rows, np.int32)
        words, wanted_words = self._codes.view(np.uint64), wanted.view(np.uint64)
        for start in range(0, self.n_rows, _BLOCK_ROWS):
            differ = words[start : start + _BLOCK_ROWS] ^ wanted_words
            np.bitwise_count(differ).sum(axis=1, dtype=np.int32, out=distances[start : start + _BLOCK_ROWS])
        return distances


def _least(distances: npt.NDArray[np.int32], n: int) -> I64:
    """The places of the `n` least distances, rising; ties at the cut stay."""
    sample = distances[::_SAMPLED]
    # A quarter more than the sample's share, and some: seldom too few, and if it is, all are looked at.
    place = n // _SAMPLED * 5 // 4 + _SAMPLED
    near = np.flatnonzero(distances <= np.partition(sample, place)[place]) if place < len(sample) else None
    if near is None or len(near) < n:
        near = np.arange(len(distances))
    found = distances[near]
    furthest = np.searchsorted(np.cumsum(np.bincount(found)), n)
    least: I64 = near[found <= furthest]
    return least


def _signs(rows: F16, n_bytes: int) -> npt.NDArray[np.uint8]:
    """[N, n_bytes] the signs of the rows, bits beyond the last number 0."""
    packed = np.packbits(rows.view(np.int16) >= 0, axis=1)
    padded = np.zeros((len(rows), n_bytes), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded
