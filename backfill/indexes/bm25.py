"""BM25 over one field of several segments, with statistics summed when it opens.

A segment's field index holds counts and lengths only, never an IDF, so segments can be copied, merged and hidden
without touching each other. Arrays of one field: `vocabulary` (u1, the sorted terms' UTF-8 in a row),
`term_offsets` (i8, [V + 1]), `indptr` (i8, [V + 1]), `documents` (i4) and `counts` (u2, or i4 where one is larger)
by term then document, `lengths` (i4, [N]). Deliberately absent: a dictionary of the whole vocabulary; a term is
found by binary search in the mapped bytes.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.arrays import release
from backfill.errors import BundleError
from backfill.indexes.tokenizer import tokenize
from backfill.recent import Recent

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Where a term stands is remembered, not what stands there: two views a segment, 10 KB for 24 segments.
MAX_RECENT_TERMS = 1024

# A process that asks once finds its terms without signposts; reading these takes as long as 200 plain lookups.
_PLAIN_LOOKUPS, _SIGNPOST_TERMS = 64, 16

# All arrays of a field lie in one mapped file. Letting go of 24 files takes 0.1 ms, and reading again 1 ms.
_SEARCHES_PER_RELEASE = 8

_DTYPES: dict[str, tuple[str, ...]] = {
    "vocabulary": ("u1",),
    "term_offsets": ("i8",),
    "indptr": ("i8",),
    "documents": ("i4",),
    "counts": ("u2", "i4"),
    "lengths": ("i4",),
}


def build_field(docs: Iterable[str]) -> dict[str, Array]:
    """The arrays of one field over texts in the order of their rows; equal texts give equal arrays.

    Memory: about 40 bytes a token while it sorts. Raises OverflowError above 2^31 - 1 tokens of one text.
    """
    # Numbers in order of first appearance, given out without a line of Python for each token.
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    tokens, lengths = array("i"), array("i")
    for text in docs:
        terms = tokenize(text)
        lengths.append(len(terms))
        tokens.extend(map(numbers.__getitem__, terms))
    encoded = [term.encode() for term in numbers]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    rank = np.empty(len(encoded), np.int64)
    rank[order] = np.arange(len(encoded))
    return {**_vocabulary([encoded[i] for i in order]), **_postings(rank, tokens, lengths)}


def _vocabulary(terms: list[bytes]) -> dict[str, Array]:
    offsets = np.zeros(len(terms) + 1, np.int64)
    np.cumsum([len(term) for term in terms], out=offsets[1:])
    return {"vocabulary": np.frombuffer(b"".join(terms), np.uint8), "term_offsets": offsets}


def _postings(rank: npt.NDArray[np.int64], tokens: array[int], lengths: array[int]) -> dict[str, Array]:
    n_docs = len(lengths)
    sizes = np.frombuffer(lengths, np.int32) if n_docs else np.empty(0, np.int32)
    flat = np.frombuffer(tokens, np.int32) if len(tokens) else np.empty(0, np.int32)
    keys = rank[flat] * n_docs + np.repeat(np.arange(n_docs, dtype=np.int64), sizes)
    pairs, counts = np.unique(keys, return_counts=True)
    indptr = np.zeros(len(rank) + 1, np.int64)
    np.cumsum(np.bincount(pairs // max(n_docs, 1), minlength=len(rank)), out=indptr[1:])
    narrow = np.uint16 if not len(counts) or counts.max() < 1 << 16 else np.int32
    return {
        "indptr": indptr,
        "documents": (pairs % max(n_docs, 1)).astype(np.int32),
        "counts": counts.astype(narrow),
        "lengths": sizes.copy(),
    }


class FieldIndex:
    """One field of one segment, read from its arrays in place."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        _check(arrays)
        # Buffers give plain integers, several times faster than arrays do; a term takes 16 steps to find.
        self._terms = arrays["vocabulary"].data
        self._term_offsets = arrays["term_offsets"].data
        self._indptr = arrays["indptr"].data
        self._documents = arrays["documents"]
        self._counts = arrays["counts"]
        self.lengths: npt.NDArray[np.int32] = arrays["lengths"]
        self.n_docs = len(self.lengths)
        self.n_terms = len(self._indptr) - 1
        self.total_length = int(self.lengths.sum(dtype=np.int64))
        self._lookups = 0

    @classmethod
    def open(cls, arrays: Mapping[str, Array]) -> FieldIndex:
        """The field over arrays of `build_field`; raises BundleError where they contradict each other."""
        return cls(arrays)

    def df(self, term: str) -> int:
        """Documents of this segment that hold the term."""
        return len(self.postings(term)[0])

    def postings(self, term: str) -> tuple[npt.NDArray[np.int32], Array]:
        """Documents (i4, rising) that hold the term, and how often each does; both empty for an unknown term.

        Raises BundleError where the postings of this term are damaged; only what is used is looked at, for reading
        all of them would undo the mapping.
        """
        documents, counts = self.slice_of(term)
        if len(documents) and not sound_postings(documents, counts):
            raise _damaged(term)
        return documents, counts

    def slice_of(self, term: str) -> tuple[npt.NDArray[np.int32], Array]:
        """What `postings` gives, of which only the first and the last document are looked at."""
        number = self._find(term.encode("utf-8", "surrogatepass"))
        if number < 0:
            return self._documents[:0], self._counts[:0]
        start, end = self._indptr[number], self._indptr[number + 1]
        documents, counts = self._documents[start:end], self._counts[start:end]
        if len(documents) != end - start or start < 0:
            raise _damaged(term)
        if len(documents) and (documents[0] < 0 or documents[-1] >= self.n_docs):
            raise _damaged(term)
        return documents, counts

    @cached_property
    def _signposts(self) -> list[bytes]:
        """Every sixteenth term, which C code searches: 4 KB for a thousand terms."""
        terms, offsets = self._terms, self._term_offsets
        return [terms[offsets[i] : offsets[i + 1]].tobytes() for i in range(0, self.n_terms, _SIGNPOST_TERMS)]

    def _find(self, term: bytes) -> int:
        terms, offsets = self._terms, self._term_offsets
        low, high = 0, self.n_terms
        self._lookups += 1
        if self._lookups > _PLAIN_LOOKUPS:
            at = bisect_right(self._signposts, term)
            low, high = max(at - 1, 0) * _SIGNPOST_TERMS, min(at * _SIGNPOST_TERMS, high)
        while low < high:
            middle = (low + high) // 2
            here = terms[offsets[middle] : offsets[middle + 1]].tobytes()
            if here == term:
                return middle
            low, high = (middle + 1, high) if here < term else (low, middle)
        return -1


def sound_postings(documents: npt.NDArray[Any], counts: Array) -> bool:
    """Whether documents rise and every count is at least 1; neither is empty."""
    return bool((documents[1:] > documents[:-1]).all()) and int(counts.min()) > 0


def _damaged(term: str) -> BundleError:
    return BundleError(f"the BM25 postings of {term[:40]!r} are damaged")


class Bm25:
    """Scores of one field over all segments of a bundle: the same to the bit, however the rows are cut."""

    def __init__(self, fields: Sequence[FieldIndex], k1: float = 1.5, b: float = 0.75) -> None:
        """`fields` holds the same field of each segment, in the bundle's order."""
        self.fields = tuple(fields)
        self.k1, self.b = k1, b
        self.n_docs = sum(field.n_docs for field in self.fields)
        self.total_length = sum(field.total_length for field in self.fields)
        sizes = [field.n_docs for field in self.fields]
        self._searches = 0
        self._found: Recent[list[tuple[Array, Array]]] = Recent(MAX_RECENT_TERMS)
        self._starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64)[: len(sizes)]

    def idf(self, df: int) -> float:
        """ln(1 + (N - df + 0.5) / (df + 0.5)), as Lucene has it: never negative."""
        return math.log(1.0 + (self.n_docs - df + 0.5) / (df + 0.5))

    def scores(self, terms: Sequence[str], masks: Sequence[Mask] | None = None) -> list[Scores]:
        """Per segment a score [N] float64 for each row; 0 where no term stands or the segment's mask is false.

        BM25 (Robertson and Zaragoza 2009) without the constant factor k1 + 1, as in Lucene 8 and later; a term that
        the query repeats weighs as often. Terms are added in sorted order, each from sums over all segments, so
        that the same row gets the same bits in any division into segments.
        """
        total = self._total(terms)
        scores = [total[start : start + field.n_docs] for start, field in zip(self._starts, self.fields, strict=True)]
        for score, mask in zip(scores, masks or (), strict=bool(masks)):
            score[~mask] = 0.0
        return scores

    def _total(self, terms: Sequence[str]) -> Scores:
        """[rows of all segments] as `scores`; each term is one run over the postings of all segments."""
        total = np.zeros(self.n_docs)
        for term, weight in sorted(Counter(terms).items()):
            documents, counts = self._postings(term)
            if not len(documents):
                continue
            tf = counts.astype(np.float64)
            gain = self._norms.take(documents)
            gain += tf
            np.divide(tf, gain, out=gain)
            gain *= weight * self.idf(len(documents))
            total[documents] += gain
        self._searches += 1
        if self._searches % _SEARCHES_PER_RELEASE == 0:
            for field in self.fields:
                release(field.lengths)
        return total

    def _postings(self, term: str) -> tuple[npt.NDArray[np.int64], Array]:
        """Rows of all segments, rising, that hold the term, and how often each does."""
        found = self._found.get(term)
        if found is None:
            found = [field.slice_of(term) for field in self.fields]
            self._found.put(term, found, 1)
        sizes = [len(documents) for documents, _ in found]
        if not any(sizes):
            return np.zeros(0, np.int64), np.zeros(0, np.uint16)
        documents = np.concatenate([documents for documents, _ in found], dtype=np.int64)
        documents += np.repeat(self._starts, sizes)
        counts = np.concatenate([counts for _, counts in found])
        if not sound_postings(documents, counts):
            raise _damaged(term)
        return documents, counts

    @cached_property
    def _norms(self) -> Scores:
        """[rows of all segments] k1 * (1 - b + b * length / mean length): 8 bytes a row, made by the first search."""
        mean_length = self.total_length / self.n_docs if self.total_length else 1.0
        lengths = np.concatenate([np.zeros(0, np.int32), *(field.lengths for field in self.fields)])
        norms: Scores = self.k1 * (1.0 - self.b + self.b * lengths / mean_length)
        return norms

    def search(
        self, terms: Sequence[str], k: int, masks: Sequence[Mask] | None = None
    ) -> tuple[Scores, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The at most k best rows: scores falling, segment numbers and row numbers; ties by segment, then row.

        A row that holds none of the terms is not retrieved.
        """
        per_segment = self.scores(terms, masks)
        segment_of = np.repeat(np.arange(len(per_segment)), [len(s) for s in per_segment])
        rows = np.concatenate([np.arange(len(s)) for s in per_segment]) if per_segment else np.empty(0, np.int64)
        flat = np.concatenate(per_segment) if per_segment else np.empty(0)
        hits = np.flatnonzero(flat > 0)
        if 0 < k < len(hits):
            # Keep every row that ties with the k-th best, so that the cut below is by position and repeatable.
            floor = np.partition(flat[hits], len(hits) - k)[len(hits) - k]
            hits = hits[flat[hits] >= floor]
        best = hits[np.argsort(-flat[hits], kind="stable")][: max(k, 0)]
        return flat[best], segment_of[best].astype(np.int64), rows[best]


def _check(arrays: Mapping[str, Array]) -> None:
    for name, kinds in _DTYPES.items():
        if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype not in [np.dtype(k) for k in kinds]:
            raise BundleError(f"the BM25 index has no proper array {name!r}")
    offsets, indptr = arrays["term_offsets"], arrays["indptr"]
    if (
        len(offsets) != len(indptr)
        or len(offsets) == 0
        or int(offsets[-1]) != len(arrays["vocabulary"])
        or int(indptr[-1]) != len(arrays["documents"])
        or len(arrays["counts"]) != len(arrays["documents"])
        or (len(arrays["lengths"]) and int(arrays["lengths"].min()) < 0)
    ):
        raise BundleError("the arrays of the BM25 index contradict each other")
