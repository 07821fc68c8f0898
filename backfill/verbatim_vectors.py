"""Vectors of verbatim text among the pieces of a merge, found by the hash of their text.

A run embeds them beside its objects, a bundle keeps them beside its exchanges; the hash of the text joins the two, so
nothing is embedded for a merge. In memory are 16 bytes a vector; the vectors stay in their files until a segment is
written. Deliberately absent: which of two vectors for one text stays (`merged`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backfill.chunks import verbatim_chunks
from backfill.pieces import Piece
from backfill.union import Union, text_hash


class VerbatimVectors:
    """The verbatim vectors of pieces; none where there are no pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        found = [(piece, piece.vectors("verbatim")) for piece in pieces]
        self._pieces = [piece for piece, matrix in found if matrix is not None]
        self._matrices = [matrix for _, matrix in found if matrix is not None]
        self._hashes = [piece.text_hashes() for piece in self._pieces]
        keys = [piece.text_keys("verbatim") for piece in self._pieces]
        starts = np.cumsum([0, *map(len, keys)])
        joined = np.concatenate([np.zeros(0, np.uint64), *keys])
        self._order = np.argsort(joined, kind="stable")
        self._keys = joined[self._order]
        self._starts = starts

    def give(self, union: Union) -> None:
        """Puts the vectors of the union's exchanges, as far as there are any, among its vectors."""
        if not len(self._keys):
            return
        wanted = {text_hash(text) for row in union.exchanges.values() for text in verbatim_chunks(row)}
        for key in wanted:
            first = int.from_bytes(key[:8], "little")
            low = np.searchsorted(self._keys, np.uint64(first))
            high = np.searchsorted(self._keys, np.uint64(first), side="right")
            for at in self._order[low:high].tolist():
                self._take(union, key, at)

    def _take(self, union: Union, key: bytes, at: int) -> None:
        number = int(np.searchsorted(self._starts, at, side="right")) - 1
        row = at - int(self._starts[number])
        if self._hashes[number][row].tobytes() != key:
            return
        self._pieces[number].compare_vectors("verbatim")
        data = self._matrices[number][row].tobytes()
        union.vectors[key] = max(data, union.vectors.get(key, b""))
