"""Every signal as a matrix over queries and documents, computed once and shared by all configurations.

BM25 and its tokenizer are the product's, over one index of all scopes, as in a bundle. Vectors come from the cache by
text. Matrices are float32 [queries, documents] a group; NaN means that a document lacks the signal. Memory: 4 bytes
a query, document and signal. Deliberately absent: fusion (`rank.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from backfill.chunks import chunks_of
from backfill.errors import UsageError
from backfill.evaluation.collection import Collection
from backfill.evaluation.corpus import Query
from backfill.evaluation.grid import Signal
from backfill.evaluation.reference import StockBm25
from backfill.evaluation.vector_cache import CachedEmbedder
from backfill.indexes.bm25 import Bm25
from backfill.indexes.field import FieldIndex, build_field
from backfill.indexes.tokenizer import tokenize

F32 = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]
# HNSW answers this many rows a query; what it does not return lacks the signal.
HNSW_DEPTH = 200


@dataclass(frozen=True, slots=True)
class _Rows:
    """Units that are scored, and the document of each; one unit may stand for several documents."""

    texts: list[str]
    unit: npt.NDArray[np.int64]
    doc: npt.NDArray[np.int64]


class Scores:
    """Matrices by signal over a collection and a list of queries."""

    def __init__(
        self,
        collection: Collection,
        queries: Sequence[Query],
        passages: CachedEmbedder | None = None,
        query_rows: F32 | None = None,
    ) -> None:
        """`passages` encodes texts, `query_rows` [Q, D] are the queries' vectors; without both, vectors are missing."""
        self.collection = collection
        self.queries = tuple(queries)
        self.groups = collection.groups(queries)
        self.passages = passages
        self._query_rows = query_rows
        self._made: dict[Signal, list[Matrix]] = {}
        self._terms = [tokenize(query.text) for query in queries]

    @property
    def has_vectors(self) -> bool:
        """Whether vector signals can be computed."""
        return self.passages is not None and self._query_rows is not None

    def of(self, signal: Signal) -> list[Matrix]:
        """One matrix [queries, names] a group; BM25 is 0 where no term stands. Weight does not matter here."""
        key = replace(signal, weight=1.0)
        if key not in self._made:
            make = {"stock": self._stock, "bm25": self._bm25, "vector": self._vector, "hnsw": self._hnsw}[signal.kind]
            self._made[key] = make(key)
        return self._made[key]

    @property
    def query_rows(self) -> F32:
        """Vectors [Q, D] of the queries. Raises UsageError where there are none."""
        if self._query_rows is None:
            raise UsageError("this bundle has no encoder, so vector configurations cannot be measured")
        return self._query_rows

    def has_text(self, variant: str) -> bool:
        """Whether any document has a text of the variant."""
        return len(self._rows(variant).unit) > 0

    def n_vectors(self, signal: Signal) -> int:
        """Vectors that a signal stores over all documents; a claim counts once."""
        if signal.kind not in ("vector", "hnsw"):
            return 0
        return sum(len(np.unique(self._rows(variant).unit)) for variant in signal.texts)

    def _stock(self, signal: Signal) -> list[Matrix]:
        matrices = []
        for group in self.groups:
            index = StockBm25([self.collection.texts["verbatim"][doc] for doc in group.docs])
            rows = [index.scores(self.queries[q].text) for q in group.queries]
            matrices.append(np.array(rows, np.float32).reshape(len(rows), len(group.docs)))
        return matrices

    def _bm25(self, signal: Signal) -> list[Matrix]:
        total: list[Matrix] | None = None
        for variant, share in zip(signal.texts, signal.shares or (1.0,) * len(signal.texts), strict=True):
            rows = self._rows(variant)
            index = Bm25([FieldIndex.open(build_field(rows.texts))], signal.k1, signal.b)
            found = [
                np.stack([self._spread(index.scores(self._terms[q])[0].astype(np.float32), rows, 0.0)[group.docs]
                          for q in group.queries])
                for group in self.groups
            ]  # fmt: skip
            found = [share * part for part in found]
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        return total or []

    def _vector(self, signal: Signal) -> list[Matrix]:
        matrices: list[Matrix] = []
        parts = [(rows, self._encode(rows.texts)) for rows in map(self._rows, signal.texts)]
        for group in self.groups:
            best = np.full((len(group.queries), len(group.docs)), -np.inf, np.float32)
            for rows, vectors in parts:
                near = self.query_rows[group.queries] @ vectors.T  # [q, units]
                spread = np.full((len(group.queries), len(self.collection)), -np.inf, np.float32)
                for unit, doc in zip(rows.unit, rows.doc, strict=True):
                    np.maximum(spread[:, doc], near[:, unit], out=spread[:, doc])
                np.maximum(best, spread[:, group.docs], out=best)
            matrices.append(np.where(np.isfinite(best), best, np.nan).astype(np.float32))
        return matrices

    def _hnsw(self, signal: Signal) -> list[Matrix]:
        import faiss

        parts = [(rows, self._encode(rows.texts)) for rows in map(self._rows, signal.texts)]
        units = np.concatenate([rows.unit + start for start, rows in _offsets(parts)])
        docs = np.concatenate([rows.doc for rows, _ in parts])
        vectors = np.ascontiguousarray(np.concatenate([v for _, v in parts]), np.float32)
        faiss.omp_set_num_threads(1)  # a graph built by several threads differs from run to run
        index = faiss.IndexHNSWFlat(vectors.shape[1], signal.m, faiss.METRIC_INNER_PRODUCT)
        index.add(vectors)
        matrices = []
        for group in self.groups:
            inside = np.isin(docs, group.docs)
            selector = faiss.IDSelectorBatch(np.unique(units[inside]))
            params = faiss.SearchParametersHNSW(sel=selector, efSearch=signal.ef)
            depth = min(HNSW_DEPTH, len(vectors))
            near, found = index.search(self.query_rows[group.queries], depth, params=params)
            scores = np.full((len(group.queries), len(self.collection)), np.nan, np.float32)
            docs_of = _docs_of(units, docs)
            for row in range(len(group.queries)):
                for score, unit in zip(near[row], found[row], strict=True):
                    for doc in docs_of.get(int(unit), ()):
                        scores[row, doc] = np.fmax(scores[row, doc], score)
            matrices.append(scores[:, group.docs])
        return matrices

    def _spread(self, unit_scores: F32, rows: _Rows, nothing: float) -> F32:
        """Scores [documents] from scores of units: the best unit of each."""
        spread = np.full(len(self.collection), nothing, np.float32)
        np.maximum.at(spread, rows.doc, unit_scores[rows.unit])
        return spread

    def _encode(self, texts: Sequence[str]) -> F32:
        if self.passages is None:
            raise UsageError("this bundle has no encoder, so vector configurations cannot be measured")
        return self.passages.encode(texts, kind="passage").astype(np.float32)

    def _rows(self, variant: str) -> _Rows:
        """The units of a text variant. An empty text is no unit: a zero vector would score 0, which is a score."""
        if variant == "claims":
            pairs = [(n, int(doc)) for n, (_, docs) in enumerate(self.collection.claims) for doc in docs]
            return _rows([text for text, _ in self.collection.claims], pairs)
        if variant == "chunks":
            pieces: list[str] = []
            pairs = []
            for doc, text in enumerate(self.collection.texts["verbatim"]):
                for piece in chunks_of(text):
                    pairs.append((len(pieces), doc))
                    pieces.append(piece)
            return _rows(pieces, pairs)
        columns = [self.collection.texts[field] for field in variant.split("+")]
        texts = ["\n".join(filter(None, cells)) for cells in zip(*columns, strict=True)]
        return _rows(texts, [(doc, doc) for doc, text in enumerate(texts) if text.strip()])


def _rows(texts: list[str], pairs: Sequence[tuple[int, int]]) -> _Rows:
    table = np.array(pairs, np.int64).reshape(len(pairs), 2)
    return _Rows(texts, table[:, 0].copy(), table[:, 1].copy())


def _offsets(parts: Sequence[tuple[_Rows, F32]]) -> list[tuple[int, _Rows]]:
    starts = np.cumsum([0, *(len(vectors) for _, vectors in parts)])
    return [(int(start), rows) for start, (rows, _) in zip(starts[:-1], parts, strict=True)]


def _docs_of(units: npt.NDArray[np.int64], docs: npt.NDArray[np.int64]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for unit, doc in zip(units, docs, strict=True):
        found.setdefault(int(unit), []).append(int(doc))
    return found
