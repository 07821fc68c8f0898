"""Vectors of verbatim text among the pieces of a merge, found by the hash of their text.

A run embeds them beside its objects, a bundle keeps them beside its exchanges; the hash of the text joins the two, so
nothing is embedded for a merge. In memory are 16 bytes a vector; the vectors stay in their files until a segment is
written. Deliberately absent: which of two vectors for one text stays (`merged`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backfill.pieces import Piece


class VerbatimVectors:
    """The verbatim vectors of pieces; none where there are no pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        found = [(piece, piece.vectors("verbatim")) for piece in pieces]
        self._pieces = [piece for piece, matrix in found if matrix is not None]
        self._matrices = [matrix for _, matrix in found if matrix is not None]
        self._hashes = [piece.text_hashes() for piece in self._pieces]
        keys = [piece.text_keys("verbatim") for piece in self._pieces]
        self._starts = np.cumsum([0, *map(len, keys)])
        joined = np.concatenate([np.zeros(0, np.uint64), *keys])
        self._order = np.argsort(joined, kind="stable")
        self._keys = joined[self._order]

    def find(self, key: bytes) -> bytes | None:
        """The vector of a text by its hash, of several the bytewise greatest; None where there is none."""
        first = np.uint64(int.from_bytes(key[:8], "little"))
        low, high = np.searchsorted(self._keys, first), np.searchsorted(self._keys, first, side="right")
        return max((data for at in self._order[low:high].tolist() if (data := self._at(key, at))), default=None)

    def _at(self, key: bytes, at: int) -> bytes:
        number = int(np.searchsorted(self._starts, at, side="right")) - 1
        row = at - int(self._starts[number])
        if self._hashes[number][row].tobytes() != key:
            return b""
        self._pieces[number].compare_vectors("verbatim")
        data: bytes = self._matrices[number][row].tobytes()
        return data
