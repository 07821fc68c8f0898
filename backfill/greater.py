"""Texts that have several vectors among the pieces of a merge, and the bytewise greatest of each.

Encoders of one model on different processors differ in last bits, and of two vectors for one text the greater stays.
Memory: about 40 bytes a vector while they are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from backfill.compose import F16
from backfill.pieces import Piece
from backfill.union import text_hash


class GreaterVectors:
    """The greatest vector of each text that has several, by the first bytes of the text's hash."""

    def __init__(self, best: Mapping[int, bytes], parts: Sequence[str]) -> None:
        self._best = best
        self._keys = np.array(sorted(best), np.uint64)
        self._parts = parts

    def __len__(self) -> int:
        return len(self._best)

    def changes(self, piece: Piece) -> bool:
        """Whether a vector of the piece has to give way."""
        for part in self._parts if self._best else ():
            keys = piece.text_keys(part)
            for row in np.flatnonzero(np.isin(keys, self._keys)):
                matrix = piece.vectors(part)
                if matrix is None or matrix[row].tobytes() != self._best[int(keys[row])]:
                    return True
        return False

    def of(self, key: bytes, data: bytes) -> bytes:
        """The vector of a text by its hash, of which `data` is one."""
        return max(data, self._best.get(int.from_bytes(key[:8], "little"), b""))

    def put(self, matrix: F16, texts: Sequence[str]) -> None:
        """Replaces the rows [N, D] of N texts that have to give way."""
        for i, text in enumerate(texts):
            data = matrix[i].tobytes()
            best = self.of(text_hash(text), data)
            if best != data:
                matrix[i] = np.frombuffer(best, "<f2")


def greater_vectors(pieces: Sequence[Piece], parts: Sequence[str]) -> GreaterVectors:
    """Compares the vectors of every text that several rows have. Raises BundleError for a damaged file of them."""
    runs = [(piece, part) for piece in pieces for part in parts if piece.vectors(part) is not None]
    keys = [piece.text_keys(part) for piece, part in runs]
    starts = np.cumsum([0, *map(len, keys)])
    key = np.concatenate([np.empty(0, np.uint64), *keys])
    del keys
    order = np.argsort(key, kind="stable")
    key = key[order]
    best: dict[int, bytes] = {}

    def run_of(at: int) -> int:
        return int(np.searchsorted(starts, at, side="right")) - 1

    def data(at: int) -> bytes:
        run = run_of(at)
        piece, part = runs[run]
        vector: bytes = piece.vectors(part)[at - int(starts[run])].tobytes()
        return vector

    for i in np.flatnonzero(key[1:] == key[:-1]):
        a, b = data(int(order[i])), data(int(order[i + 1]))
        if a != b:
            for at in (order[i], order[i + 1]):
                piece, part = runs[run_of(int(at))]
                piece.compare_vectors(part)
            k = int(key[i])
            best[k] = max(a, b, best.get(k, b""))
    return GreaterVectors(best, parts)
