"""All vector files of one kind in a bundle as one space: exact up to 100,000 rows, by index or shortlist above.

Rows are numbered through the files in order; a unit (document or claim, over all segments) has one row, several or
none. Three ways to search give the same ranking of the rows they look at, for every score is the one fixed sum of
`indexes/vectors.py`: a plain scan, FAISS, and the shortlist by signs, which looks at a part of the rows. Deliberately
absent: what the units are (`signals`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill.arrays import release
from backfill.indexes.scattered import ScatteredRows
from backfill.indexes.shortlist import Shortlist
from backfill.indexes.vectors import ExactIndex, exact_scores
from backfill.recent import Recent

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Units: TypeAlias = npt.NDArray[np.int64]

# Below this many rows in all the plain scan is as fast as FAISS, which scores hundreds of candidates again; both agree
# to the bit.
FAISS_FROM_ROWS = 2_000
# The plain scan widens every number to float64 and takes 6 times as long. It goes on until so many rows were scanned,
# which takes as long as importing FAISS (0.2 s): who asks once or twice is spared the import.
SCANNED_BEFORE_IMPORT = 100_000
# Up to this many rows every row is looked at: 10 ms for 100,000 rows of 384 numbers on one core.
SHORTLIST_ABOVE_ROWS = 100_000
# Rows scored exactly: so many for each row wanted, and at least so many.
_LOOKED_AT_PER_ROW, _LOOKED_AT_LEAST = 2, 500
# Rows are read one by one where at most one in this many is wanted; a read costs as much as scoring two rows.
_SCATTERED = 8
# A graph whose nodes are mostly masked leads nowhere: it is asked where at least one row in this many passes.
_ANN_NARROWEST = 5
# Several threads search at once; each asks for scores right after its candidates.
_RECENT_QUERIES = 8


class Ann(Protocol):
    """An approximate index over all rows of a space."""

    def candidates(self, query: F32, n: int, allowed: Mask | None) -> Units:
        """About the `n` best rows among those allowed [rows], rising."""
        ...


class VectorSpace:
    """The rows of several files and the units that they belong to. Searches are thread-safe."""

    def __init__(
        self,
        files: Sequence[F16],
        unit_of_row: Sequence[Units],
        n_units: int,
        ann: Ann | None = None,
        *,
        keep_mapped: bool = False,
    ) -> None:
        """`files` [rows, D] each with its `unit_of_row` [rows], -1 for rows that are not shown; `ann` names candidates
        among all rows. `keep_mapped`: single rows are read where the files are mapped, and count as memory then."""
        self.files = tuple(files)
        self.bounds = np.cumsum([0, *(len(rows) for rows in files)], dtype=np.int64)
        self.unit_of_row: Units = np.concatenate([np.zeros(0, np.int64), *unit_of_row])
        shown = self.unit_of_row >= 0
        self._row_order = np.argsort(self.unit_of_row, kind="stable")[int((~shown).sum()) :]
        sizes = np.bincount(self.unit_of_row[shown], minlength=n_units)
        self._row_indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        # The most rows that one unit has.
        self.rows_per_unit = int(sizes.max(initial=1))
        self._scattered = ScatteredRows(files, keep_mapped=keep_mapped)
        self._all_shown = bool(shown.all())
        self._recent: Recent[tuple[Units, Scores]] = Recent(_RECENT_QUERIES)
        self._joined: F16 | None = None
        self._faiss: ExactIndex | None = None
        self._shortlist: Shortlist | None = None
        self._scanned = 0
        self._ann = ann

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return len(self.unit_of_row)

    def scores(self, query: F32, units: Units) -> Scores:
        """[len(units)] the best row of each unit (rising, distinct) by inner product; NaN where it has none."""
        starts, ends = self._row_indptr[units], self._row_indptr[units + 1]
        at = np.repeat(np.arange(len(units)), ends - starts)
        within = np.arange(len(at)) - np.repeat(np.cumsum(ends - starts) - (ends - starts), ends - starts)
        rows = self._row_order[starts[at] + within]
        best = np.full(len(units), -np.inf)
        by_row = np.argsort(rows, kind="stable")
        scores = self._known_scores(query, rows[by_row])
        np.maximum.at(best, at[by_row], np.where(np.isfinite(scores), scores, -np.inf))
        return np.where(np.isfinite(best), best, np.nan)

    def candidates(self, query: F32, mask: Mask, depth: int) -> Units:
        """The at least `depth` best units among those of `mask` (fewer where fewer pass), rising; ties at the cut stay.

        Above 100,000 rows, the best of those on the shortlist.
        """
        # None: every row. Row -1 (not shown) reads the extra false at the end.
        allowed = None if self._all_shown and mask.all() else np.append(mask, False)[self.unit_of_row]
        n_allowed = self.n_rows if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(depth * self.rows_per_unit, n_allowed)
        if self.n_rows > SHORTLIST_ABOVE_ROWS:
            n = max(_LOOKED_AT_PER_ROW * wanted, _LOOKED_AT_LEAST)
            open_enough = allowed is None or n_allowed * _ANN_NARROWEST >= self.n_rows
            if self._ann is not None and open_enough:
                rows = self._ann.candidates(query, n, allowed)
            else:
                rows = self._short(query, n, allowed)
            scores = self._row_scores(query, rows)
        elif wanted and self._goes_by_faiss():
            rows, scores = self._nearest(query, wanted, allowed)
        else:
            rows = np.arange(self.n_rows) if allowed is None else np.flatnonzero(allowed)
            scores = self._row_scores(query, rows)
        self._recent.put(query.tobytes(), (rows, scores), 1)
        rows, scores = rows[np.isfinite(scores)], scores[np.isfinite(scores)]
        units, place = np.unique(self.unit_of_row[rows], return_inverse=True)
        best = np.full(len(units), -np.inf)
        np.maximum.at(best, place, scores)
        if len(units) > depth:
            units = units[best >= np.partition(best, len(best) - depth)[len(best) - depth]]
        return units

    def _goes_by_faiss(self) -> bool:
        """Not the first searches of a process, which would wait longer for the import than for the plain scan."""
        if self.n_rows < FAISS_FROM_ROWS:
            return False
        self._scanned += self.n_rows
        return self._scanned > max(SCANNED_BEFORE_IMPORT, self.n_rows) or "faiss" in sys.modules

    def _short(self, query: F32, n: int, allowed: Mask | None) -> Units:
        if self._shortlist is None:
            self._shortlist = Shortlist(self.files)
        return self._shortlist.nearest(query, n, allowed)

    def _nearest(self, query: F32, n: int, allowed: Mask | None) -> tuple[Units, Scores]:
        """The `n` best rows and those that tie with the last of them, in rising order, and their scores.

        Many small files are searched as one, for which their rows are copied once: at most 77 MB of 384 numbers.
        """
        if self._faiss is None:
            self._joined = np.concatenate(self.files)
            self._faiss = ExactIndex(self._joined)
            for rows in self.files:
                release(rows)
        n_allowed = self.n_rows if allowed is None else int(np.count_nonzero(allowed))
        k = min(n_allowed, n + 16)
        while True:
            found, numbers = self._faiss.search(query[None], k, allowed)
            if k == n_allowed or found[0, k - 1] < found[0, n - 1] or not np.isfinite(found[0, k - 1]):
                order = np.argsort(numbers[0], kind="stable")
                order = order[numbers[0][order] >= 0]
                return numbers[0][order], found[0][order].astype(np.float64)
            # Rows that tie with the last may have been left out.
            k = min(n_allowed, 2 * k)

    def _known_scores(self, query: F32, rows: Units) -> Scores:
        """As `_row_scores`, but for those that the last search for this query scored already."""
        known = self._recent.get(query.tobytes())
        if known is None or not len(known[0]):
            return self._row_scores(query, rows)
        place = np.minimum(np.searchsorted(known[0], rows), len(known[0]) - 1)
        fresh = known[0][place] != rows
        scores: Scores = known[1][place]
        scores[fresh] = self._row_scores(query, rows[fresh])
        return scores

    def _row_scores(self, query: F32, rows: Units) -> Scores:
        """[len(rows)] scores of rows in rising order."""
        if not len(rows):
            return np.zeros(0, np.float64)
        if self._joined is not None:
            return exact_scores(self._joined, rows, query).astype(np.float64)
        if len(rows) * _SCATTERED <= self.n_rows:
            return exact_scores(self._scattered.take(rows), None, query).astype(np.float64)
        scores = np.empty(len(rows), np.float64)
        cuts = np.searchsorted(rows, self.bounds)
        for number, (low, high) in enumerate(pairwise(cuts.tolist())):
            if high > low:
                numbers = rows[low:high] - self.bounds[number]
                scores[low:high] = exact_scores(self.files[number], numbers, query)
        return scores
