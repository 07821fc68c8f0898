"""One field of one segment as BM25 reads it: terms, the documents that hold each, and how often.

Arrays of one field: `vocabulary` (u1, the sorted terms' UTF-8 in a row), `term_offsets` and `indptr` ([V + 1]),
`documents` and `counts` by term then document, `lengths` ([N]), each of the narrowest of its kinds that holds all of
its values (earlier bundles have wide ones). Counts and lengths only, never an IDF, so segments can be copied, merged
and hidden without touching each other.
Deliberately absent: a dictionary of the whole vocabulary; a term is found by binary search in the mapped bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.arrays import file_offset, release
from backfill.errors import BundleError
from backfill.file_ranges import FileRanges, joined_ranges
from backfill.indexes.tokenizer import tokenize

Array = npt.NDArray[Any]

# A process that asks once finds its terms without samples, which take as long as 100 plain lookups to read.
_PLAIN_LOOKUPS = 64
# One term in so many is sampled.
_SAMPLED = 16
# So many terms, of so many bytes, are searched as one run of bytes.
_RUN_TERMS, _RUN_BYTES = 2 * _SAMPLED, 1 << 12
# Terms, too, lie here and there, but letting go of them takes as long as some hundred lookups.
_LOOKUPS_PER_RELEASE = 512

# Narrowest first. Of a segment of 4,000 exchanges a posting takes 3 bytes and a term 8 beside its letters.
_DTYPES: dict[str, tuple[str, ...]] = {
    "vocabulary": ("u1",),
    "term_offsets": ("i4", "i8"),
    "indptr": ("i4", "i8"),
    "documents": ("u2", "i4"),
    "counts": ("u1", "u2", "i4"),
    "lengths": ("u2", "i4"),
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
    return narrowed({**_vocabulary([encoded[i] for i in order]), **_postings(rank, tokens, lengths)})


def narrowed(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a field, each as the kind that its file has; see the module."""
    greatest = {
        "term_offsets": len(arrays["vocabulary"]),
        "indptr": len(arrays["documents"]),
        "documents": len(arrays["lengths"]) - 1,
        **{name: int(arrays[name].max(initial=0)) for name in ("counts", "lengths")},
    }
    return {name: values.astype(kind_for(name, greatest.get(name, 0)), copy=False) for name, values in arrays.items()}


def kind_for(name: str, greatest: int) -> np.dtype[Any]:
    """The kind of an array of a field whose greatest value, or a bound of it, is known."""
    kinds = [np.dtype(kind) for kind in _DTYPES[name]]
    return next((kind for kind in kinds if greatest <= np.iinfo(kind).max), kinds[-1])


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
    return {
        "indptr": indptr,
        "documents": (pairs % max(n_docs, 1)).astype(np.int32),
        "counts": counts,
        "lengths": sizes.copy(),
    }


class FieldIndex:
    """One field of one segment, read from its arrays in place, or from the file that they map."""

    def __init__(self, arrays: Mapping[str, Array], path: Path | None = None) -> None:
        """`path` is the file that the arrays map, if they do."""
        _check(arrays)
        self.arrays = arrays
        # Buffers give plain integers, several times faster than arrays do; a term takes 16 steps to find.
        self._terms = arrays["vocabulary"].data
        self._term_offsets = arrays["term_offsets"].data
        self._indptr = arrays["indptr"].data
        self.lengths: Array = arrays["lengths"]
        self.n_docs = len(self.lengths)
        self.n_terms = len(arrays["indptr"]) - 1
        self.total_length = int(self.lengths.sum(dtype=np.int64))
        self._lookups, self._release_at = 0, _LOOKUPS_PER_RELEASE
        # Postings lie here and there: mapped, a few searches would make all of them count as memory.
        self.ranges: FileRanges | None = None
        self.places: dict[str, int] = {}
        if path is not None and len(arrays["documents"]):
            self.places = {name: file_offset(arrays[name]) for name in ("documents", "counts")}
            self.ranges = FileRanges(path)

    @classmethod
    def open(cls, arrays: Mapping[str, Array], path: Path | None = None) -> FieldIndex:
        """The field over arrays of `build_field`; raises BundleError where they contradict each other."""
        return cls(arrays, path)

    def df(self, term: str) -> int:
        """Documents of this segment that hold the term."""
        return len(self.postings(term)[0])

    def postings(self, term: str) -> tuple[Array, Array]:
        """Documents (rising) that hold the term, and how often each does; both empty for an unknown term.

        Raises BundleError where the postings of this term are damaged; only what is used is looked at, for reading
        all of them would undo the mapping.
        """
        name = encoded(term)
        beginning = beginnings_of(np.frombuffer(name, np.uint8), np.zeros(1, np.int64), np.array([len(name)]))
        documents, counts = read_runs([self], self.runs_of([name], beginning))
        if len(documents) and not (
            sound_postings(documents, counts) and documents[0] >= 0 and documents[-1] < self.n_docs
        ):
            raise damaged(term)
        return documents, counts

    def numbers_of(self, terms: Sequence[bytes], beginnings: npt.NDArray[np.uint64]) -> list[int]:
        """The number of each term (UTF-8, with its `beginnings_of`), -1 for an unknown one."""
        self._lookups += len(terms)
        if self._lookups <= _PLAIN_LOOKUPS:
            return [self._find(term, 0, self.n_terms) for term in terms]
        if self._lookups >= self._release_at:
            self._release_at = self._lookups + _LOOKUPS_PER_RELEASE
            release(self.arrays["vocabulary"])
        # What begins with the same eight bytes lies after the last sample below them and before the first above.
        samples = self._samples
        lows, highs = samples.searchsorted(beginnings, "left"), samples.searchsorted(beginnings, "right")
        return [
            self._find(term, max(low - 1, 0) * _SAMPLED, min(high * _SAMPLED, self.n_terms))
            for term, low, high in zip(terms, lows.tolist(), highs.tolist(), strict=True)
        ]

    def runs_of(self, terms: Sequence[bytes], beginnings: npt.NDArray[np.uint64]) -> list[tuple[int, int]]:
        """Where the postings of each term begin and end; (0, 0) for an unknown one. Terms as `numbers_of` takes them.

        Raises BundleError where that lies outside the postings.
        """
        indptr, n_postings = self._indptr, len(self.arrays["documents"])
        numbers = self.numbers_of(terms, beginnings)
        runs = [(indptr[number], indptr[number + 1]) if number >= 0 else (0, 0) for number in numbers]
        for start, end in runs:
            if not 0 <= start <= end <= n_postings:
                raise BundleError(
                    "a BM25 index points outside its postings", hint="backfill verify names damaged files"
                )
        return runs

    @cached_property
    def _samples(self) -> npt.NDArray[np.uint64]:
        """[V / 16] the first eight bytes of every 16th term as a number, which C code searches: 0.5 bytes a term."""
        offsets = np.asarray(self._term_offsets)
        starts = offsets[:-1:_SAMPLED]
        samples = beginnings_of(np.asarray(self._terms), starts, offsets[1::_SAMPLED] - starts)
        release(self.arrays["vocabulary"])
        return samples

    def _find(self, term: bytes, low: int, high: int) -> int:
        """The number of a term among those from `low` to before `high`, -1 where it is none of them.

        The last few are searched as bytes: that takes less time than four steps, and most often finds nothing.
        """
        offsets = self._term_offsets
        while high - low > _RUN_TERMS:
            middle = (low + high) // 2
            low, high = (middle, high) if self._term(middle) <= term else (low, middle)
        first, end = offsets[low], offsets[high]
        if end - first > _RUN_BYTES:
            # Only a stranger's vocabulary has such terms; looking for all places of one in them would not end.
            return next((number for number in range(low, high) if self._term(number) == term), -1)
        run = self._terms[first:end].tobytes()
        at = run.find(term)
        if at < 0:
            return -1
        bounds = offsets[low : high + 1].tolist()
        while at >= 0:
            number = bisect_left(bounds, first + at)
            if bounds[number : number + 2] == [first + at, first + at + len(term)]:
                return low + number
            at = run.find(term, at + 1)
        return -1

    def _term(self, number: int) -> bytes:
        return self._terms[self._term_offsets[number] : self._term_offsets[number + 1]].tobytes()


def read_runs(fields: Sequence[FieldIndex], runs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """The documents and the counts of runs of postings, each of the field at its place, one after another.

    None of it is looked at. Raises BundleError where a file cannot be read.
    """
    if not runs:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    return _read_runs(fields, runs, "documents"), _read_runs(fields, runs, "counts")


def _read_runs(fields: Sequence[FieldIndex], runs: Sequence[tuple[int, int]], name: str) -> Array:
    kinds = [field.arrays[name].dtype for field in fields]
    files = [field.ranges for field in fields if field.ranges is not None]
    if len(files) < len(fields):
        return np.concatenate([field.arrays[name][slice(*run)] for field, run in zip(fields, runs, strict=True)])
    widths = [kind.itemsize for kind in kinds]
    starts = [field.places[name] + width * run[0] for field, width, run in zip(fields, widths, runs, strict=True)]
    sizes = [width * (end - start) for width, (start, end) in zip(widths, runs, strict=True)]
    try:
        data = joined_ranges(files, starts, sizes)
    except OSError as error:
        raise BundleError(f"cannot read the postings of a BM25 index: {error.strerror}") from error
    if len(set(kinds)) == 1:
        return np.frombuffer(data, kinds[0])
    befores = accumulate(sizes, initial=0)
    cuts = zip(kinds, sizes, befores, strict=False)
    return np.concatenate([np.frombuffer(data[at : at + size], kind) for kind, size, at in cuts])


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


def encoded(term: str) -> bytes:
    """A term as the vocabulary holds it."""
    return term.encode("utf-8", "surrogatepass")


def damaged(term: str) -> BundleError:
    """The error of a term whose postings cannot be true."""
    return BundleError(f"the BM25 postings of {term[:40]!r} are damaged")


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
