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
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill.arrays import release
from backfill.errors import BundleError
from backfill.indexes.tokenizer import tokenize
from backfill.recent import Recent

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_Gains: TypeAlias = tuple[npt.NDArray[np.int64], Scores]

# Rows and gains of the terms asked for last, 16 bytes for each row that holds one: a million rows. Of more terms it is
# remembered where they stand: two views a segment, 10 KB for 24 segments.
MAX_RECENT_BYTES = 16 << 20
MAX_RECENT_TERMS = 1024

# A process that asks once finds its terms without their beginnings, which take as long as 300 plain lookups to read.
_PLAIN_LOOKUPS = 64

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
        number = self._find(_encoded(term), 0, self.n_terms)
        documents, counts = self._slice(number)
        if len(documents) and not (
            sound_postings(documents, counts) and documents[0] >= 0 and documents[-1] < self.n_docs
        ):
            raise _damaged(term)
        return documents, counts

    def slices_of(self, terms: Sequence[bytes], beginnings: npt.NDArray[np.uint64]) -> list[tuple[Array, Array]]:
        """What `postings` gives for each term (UTF-8, with its `beginnings_of`), but nothing of it is looked at."""
        self._lookups += len(terms)
        if self._lookups > _PLAIN_LOOKUPS:
            # The bounds are all that a search by the eight first bytes leaves to compare.
            bounds = zip(
                np.searchsorted(self._beginnings, beginnings, "left").tolist(),
                np.searchsorted(self._beginnings, beginnings, "right").tolist(),
                strict=True,
            )
            numbers = [self._find(term, low, high) for term, (low, high) in zip(terms, bounds, strict=True)]
        else:
            numbers = [self._find(term, 0, self.n_terms) for term in terms]
        return [self._slice(number) for number in numbers]

    def _slice(self, number: int) -> tuple[Array, Array]:
        if number < 0:
            return self._documents[:0], self._counts[:0]
        start, end = self._indptr[number], self._indptr[number + 1]
        documents = self._documents[start:end]
        if start < 0 or len(documents) != end - start:
            raise _damaged(bytes(self._term(number)).decode(errors="replace"))
        return documents, self._counts[start:end]

    @cached_property
    def _beginnings(self) -> npt.NDArray[np.uint64]:
        """[V] the first eight bytes of each term as a number: in the order of the terms, which C code searches."""
        offsets = np.asarray(self._term_offsets)
        return beginnings_of(np.asarray(self._terms), offsets[:-1], np.diff(offsets))

    def _term(self, number: int) -> bytes:
        return self._terms[self._term_offsets[number] : self._term_offsets[number + 1]].tobytes()

    def _find(self, term: bytes, low: int, high: int) -> int:
        """The number of a term among those from `low` to before `high`, -1 where it is none of them."""
        while low < high:
            middle = (low + high) // 2
            here = self._term(middle)
            if here == term:
                return middle
            low, high = (middle + 1, high) if here < term else (low, middle)
        return -1


def beginnings_of(terms: Array, starts: Array, lengths: Array) -> npt.NDArray[np.uint64]:
    """[V] the first eight bytes of each term in `terms` [bytes] u1, zeros after its end, as a big-endian number."""
    places = np.arange(8)
    padded = np.append(terms, np.zeros(8, np.uint8))
    first = padded.take(np.minimum(starts[:, None] + places, len(padded) - 1))
    first[places >= lengths[:, None]] = 0
    beginnings: npt.NDArray[np.uint64] = first.view(">u8").ravel().astype(np.uint64)
    return beginnings


def sound_postings(documents: npt.NDArray[Any], counts: Array) -> bool:
    """Whether documents rise and every count is at least 1; neither is empty."""
    return bool((documents[1:] > documents[:-1]).all()) and int(counts.min()) > 0


def _encoded(term: str) -> bytes:
    return term.encode("utf-8", "surrogatepass")


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
        self._recent: Recent[_Gains] = Recent(MAX_RECENT_BYTES)
        self._places: Recent[list[tuple[Array, Array]]] = Recent(MAX_RECENT_TERMS)
        self._starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64)[: len(sizes)]
        self._ends = self._starts + np.array(sizes, np.int64)

    def idf(self, df: int) -> float:
        """ln(1 + (N - df + 0.5) / (df + 0.5)), as Lucene has it: never negative."""
        return math.log(1.0 + (self.n_docs - df + 0.5) / (df + 0.5))

    def scores(self, terms: Sequence[str], masks: Sequence[Mask] | None = None) -> list[Scores]:
        """Per segment a score [N] float64 for each row; 0 where no term stands or the segment's mask is false.

        BM25 (Robertson and Zaragoza 2009) without the constant factor k1 + 1, as in Lucene 8 and later; a term that
        the query repeats weighs as often. Terms are added in sorted order, each from sums over all segments, so
        that the same row gets the same bits in any division into segments.
        """
        total = self.total(terms)
        scores = [total[start : start + field.n_docs] for start, field in zip(self._starts, self.fields, strict=True)]
        for score, mask in zip(scores, masks or (), strict=bool(masks)):
            score[~mask] = 0.0
        return scores

    def total(self, terms: Sequence[str]) -> Scores:
        """[rows of all segments] as `scores`; each term is one run over the postings of all segments."""
        total = np.zeros(self.n_docs)
        counted = sorted(Counter(terms).items())
        gains = self._gains([term for term, _ in counted])
        for term, weight in counted:
            rows, gain = gains[term]
            if len(rows):
                total[rows] += gain * (weight * self.idf(len(rows)))
        self._searches += 1
        if self._searches % _SEARCHES_PER_RELEASE == 0:
            for field in self.fields:
                release(field.lengths)
        return total

    def _gains(self, terms: Sequence[str]) -> dict[str, _Gains]:
        """Per term the rows of all segments, rising, that hold it, and tf / (tf + norm) of each."""
        found: dict[str, _Gains] = {}
        fresh: list[str] = []
        for term in terms:
            gains = self._recent.get(term)
            if gains is None:
                fresh.append(term)
            else:
                found[term] = gains
        for term, slices in self._slices(fresh).items():
            gains = found[term] = self._gains_of(term, slices)
            self._recent.put(term, gains, 16 * len(gains[0]))
        return found

    def _slices(self, terms: Sequence[str]) -> dict[str, list[tuple[Array, Array]]]:
        """Per term what each segment holds of it."""
        found: dict[str, list[tuple[Array, Array]]] = {}
        fresh: list[str] = []
        for term in terms:
            slices = self._places.get(term)
            if slices is None:
                fresh.append(term)
            else:
                found[term] = slices
        if not fresh:
            return found
        encoded = [_encoded(term) for term in fresh]
        lengths = np.array([len(term) for term in encoded])
        beginnings = beginnings_of(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths)
        by_field = [field.slices_of(encoded, beginnings) for field in self.fields]
        for at, term in enumerate(fresh):
            found[term] = [slices[at] for slices in by_field]
            self._places.put(term, found[term], 1)
        return found

    def _gains_of(self, term: str, slices: Sequence[tuple[Array, Array]]) -> _Gains:
        sizes = np.array([len(documents) for documents, _ in slices], np.int64)
        held = np.flatnonzero(sizes)
        if not len(held):
            return np.zeros(0, np.int64), np.zeros(0)
        rows = np.concatenate([slices[at][0] for at in held.tolist()], dtype=np.int64)
        counts = np.concatenate([slices[at][1] for at in held.tolist()])
        past = np.cumsum(sizes[held])
        first = past - sizes[held]
        # Rising in each segment and between its first and last row: rising overall, once both ends are in place.
        inside = (rows[first] >= 0) & (rows[past - 1] < (self._ends - self._starts)[held])
        rows += np.repeat(self._starts[held], sizes[held])
        if not (inside.all() and sound_postings(rows, counts)):
            raise _damaged(term)
        tf = counts.astype(np.float64)
        gain = self._norms.take(rows)
        gain += tf
        return rows, np.divide(tf, gain, out=gain)

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
