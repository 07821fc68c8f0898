"""An embedder that asks where a vector may be known before it computes one, and notes what it computed.

What is counted as cut depends on the texts alone, known or not. Deliberately absent: queries, which are encoded anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from backfill.embedders.base import distinct

if TYPE_CHECKING:
    from backfill.embedders.base import Embedder
    from backfill.known_vectors import Known, VectorCache, VectorSource

# What is encoded between two writes to the cache: an interrupted shard loses that much.
_CHUNK_TEXTS = 4_096


class RememberingEmbedder:
    """Implements the Embedder protocol over another one. `encoded` counts the texts that the model had to read."""

    def __init__(
        self, embedder: Embedder, sources: Sequence[VectorSource] = (), cache: VectorCache | None = None
    ) -> None:
        """`sources` are asked in order, the cache first; new vectors go into the cache."""
        self._embedder = embedder
        self._cache = cache
        self._sources = [*([cache] if cache is not None else []), *sources]
        self._truncated = 0
        self.encoded = 0

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._embedder.dim

    def identity(self) -> dict[str, Any]:
        """That of the embedder behind it."""
        return self._embedder.identity()

    def truncated(self) -> int:
        """How many texts were longer than the encoder reads, known ones too."""
        return self._truncated

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """See Embedder."""
        return self._embedder.cut(texts, kind=kind)

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float16]:
        """[N, D] float16 unit rows in the order of `texts`; a blank text gives a zero row."""
        if kind == "query":
            before = self._embedder.truncated()
            rows = self._embedder.encode(texts, kind=kind)
            self._truncated += self._embedder.truncated() - before
            return rows
        unique, places = distinct(texts)
        known: dict[str, Known] = {}
        for source in self._sources:
            missing = [text for text in unique if text.strip() and text not in known]
            known.update(source.find(missing) if missing else {})
        rows = np.zeros((len(unique), self.dim), np.float16)
        for i, text in enumerate(unique):
            if text in known:
                rows[i] = known[text].row
        self._truncated += sum(one.cut or False for one in known.values())
        unsure = [text for text, one in known.items() if one.cut is None]
        self._truncated += sum(self._embedder.cut(unsure, kind=kind)) if unsure else 0
        fresh = [i for i, text in enumerate(unique) if text.strip() and text not in known]
        for start in range(0, len(fresh), _CHUNK_TEXTS):
            chunk = fresh[start : start + _CHUNK_TEXTS]
            rows[chunk] = self._compute([unique[i] for i in chunk])
        return rows[np.array(places, np.int64)]

    def _compute(self, texts: list[str]) -> npt.NDArray[np.float16]:
        before = self._embedder.truncated()
        rows = self._embedder.encode(texts, kind="passage")
        n_cut = self._embedder.truncated() - before
        self._truncated += n_cut
        self.encoded += len(texts)
        if self._cache is not None:
            # Which ones were cut is asked only where it is not plain.
            sure = {0: [False] * len(texts), len(texts): [True] * len(texts)}.get(n_cut)
            self._cache.add(texts, rows, sure or self._embedder.cut(texts, kind="passage"))
        return rows
