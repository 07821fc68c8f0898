"""BM25 over one field of several segments, with statistics summed when it opens.

Deliberately absent: the files of a field (`field`), and leaving out terms that cannot lift a row among the best. Up to
100,000 rows adding up all postings costs as much as finding out which of them matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.arrays import release
from backfill.indexes.field import FieldIndex, beginnings_of, damaged, encoded, read_runs, sound_postings
from backfill.recent import Recent

Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Of the terms asked for last, 12 bytes for each row that holds one, and the objects around them: 2.6 million rows.
MAX_RECENT_BYTES = 32 << 20
_ENTRY_BYTES = 512
# Of a term that so many rows hold, all rows are kept: that takes less room, and adding up a run is fast.
_COMMON = 0.4


class Postings(msgspec.Struct, frozen=True):
    """tf / (tf + norm) of the rows (i4, rising, of all segments) that hold a term; of all rows where `rows` is None.

    `df` rows hold it.
    """

    df: int
    rows: npt.NDArray[np.int32] | None
    gain: Scores

    def add_to(self, total: Scores, factor: float) -> None:
        """Adds the gains, times a factor, to [rows of all segments]."""
        if self.rows is None:
            # What holds no such term gets 0.0, which changes no bit of a sum that is not negative.
            total += self.gain * factor
        elif self.df:
            # Rows are distinct; of all ways to add to them the fastest.
            np.add.at(total, self.rows, self.gain * factor)


class Bm25:
    """Scores of one field over all segments of a bundle: the same to the bit, however the rows are cut."""

    def __init__(self, fields: Sequence[FieldIndex], k1: float = 1.5, b: float = 0.75) -> None:
        """`fields` holds the same field of each segment, in the bundle's order."""
        self.fields = tuple(fields)
        self.k1, self.b = k1, b
        self.n_docs = sum(field.n_docs for field in self.fields)
        self.total_length = sum(field.total_length for field in self.fields)
        sizes = [field.n_docs for field in self.fields]
        self._recent: Recent[Postings] = Recent(MAX_RECENT_BYTES)
        self._starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64)[: len(sizes)]
        self._sizes = np.array(sizes, np.int64)

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
        weights = sorted(Counter(terms).items())
        found = self._postings([term for term, _ in weights])
        for term, weight in weights:
            found[term].add_to(total, weight * self.idf(found[term].df))
        return total

    def _postings(self, terms: Sequence[str]) -> dict[str, Postings]:
        found: dict[str, Postings] = {}
        fresh: list[str] = []
        for term in terms:
            known = self._recent.get(term)
            if known is None:
                fresh.append(term)
            else:
                found[term] = known
        if not fresh:
            return found
        for term, postings in zip(fresh, self._read(fresh), strict=True):
            found[term] = postings
            n_bytes = postings.gain.nbytes + (0 if postings.rows is None else postings.rows.nbytes)
            self._recent.put(term, postings, n_bytes + _ENTRY_BYTES)
        return found

    def _read(self, terms: Sequence[str]) -> list[Postings]:
        """What all segments hold of each term, as one; the postings of all terms are read and weighed at once."""
        held = self._held(terms)
        fields = [self.fields[segment] for _, segment, _ in held]
        documents, counts = read_runs(fields, [run for *_, run in held])
        segments = np.array([segment for _, segment, _ in held], np.int64)
        sizes = np.array([end - start for *_, (start, end) in held], np.int64)
        past = np.cumsum(sizes)
        # Rising in each segment and between its first and last row: rising overall, once both ends are in place.
        inside = (documents[past - sizes] >= 0) & (documents[past - 1] < self._sizes[segments])
        rows = documents + np.repeat(self._starts[segments].astype(np.int32), sizes)
        tf = counts.astype(np.float64)
        gain = self._norms.take(rows, mode="clip")
        gain += tf
        np.divide(tf, gain, out=gain)
        # Runs stand in order of their terms.
        ends = np.searchsorted([number for number, *_ in held], np.arange(len(terms) + 1))
        found = []
        for term, (first, last) in zip(terms, pairwise(ends.tolist()), strict=True):
            span = slice(int(past[first] - sizes[first]), int(past[last - 1])) if first < last else slice(0, 0)
            if first < last and not (inside[first:last].all() and sound_postings(rows[span], counts[span])):
                raise damaged(term)
            found.append(self._kept(rows[span], gain[span]))
        return found

    def _held(self, terms: Sequence[str]) -> list[tuple[int, int, tuple[int, int]]]:
        """(number in `terms`, segment, run of its postings) for each segment that holds a term, in this order."""
        names = [encoded(term) for term in terms]
        lengths = np.array([len(name) for name in names])
        beginnings = beginnings_of(np.frombuffer(b"".join(names), np.uint8), np.cumsum(lengths) - lengths, lengths)
        runs = [field.runs_of(names, beginnings) for field in self.fields]
        return [
            (at, segment, of_field[at])
            for at in range(len(terms))
            for segment, of_field in enumerate(runs)
            if of_field[at][0] < of_field[at][1]
        ]

    def _kept(self, rows: Array, gain: Scores) -> Postings:
        """Postings that hold nothing but themselves, though many were read at once."""
        if len(rows) < _COMMON * self.n_docs:
            return Postings(len(rows), rows.astype(np.int32), gain.copy())
        every = np.zeros(self.n_docs)
        every[rows] = gain
        return Postings(len(rows), None, every)

    @cached_property
    def _norms(self) -> Scores:
        """[rows of all segments] k1 * (1 - b + b * length / mean length): 8 bytes a row, made by the first search."""
        mean_length = self.total_length / self.n_docs if self.total_length else 1.0
        lengths = np.concatenate([np.zeros(0, np.int32), *(field.lengths for field in self.fields)])
        for field in self.fields:
            release(field.lengths)
        norms: Scores = self.k1 * (1.0 - self.b + self.b * lengths / mean_length)
        return norms

    def search(
        self, terms: Sequence[str], k: int, masks: Sequence[Mask] | None = None
    ) -> tuple[Scores, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The at most k best rows: scores falling, segment numbers and row numbers; ties by segment, then row.

        A row that holds none of the terms is not retrieved.
        """
        flat = self.total(terms)
        if masks:
            flat[~np.concatenate(masks)] = 0.0
        hits = np.flatnonzero(flat > 0)
        if 0 < k < len(hits):
            # Keep every row that ties with the k-th best, so that the cut below is by position and repeatable.
            floor = np.partition(flat[hits], len(hits) - k)[len(hits) - k]
            hits = hits[flat[hits] >= floor]
        best = hits[np.argsort(-flat[hits], kind="stable")][: max(k, 0)]
        segments = np.searchsorted(self._starts, best, side="right") - 1
        return flat[best], segments.astype(np.int64), best - self._starts[segments]
