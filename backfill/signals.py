"""Scores of a bundle's documents (or claims) by BM25 and by vectors, over all its segments.

Units are documents, or claims, counted through the segments in order. BM25 gives a dense array; vectors give the best
units under a mask, and exact scores for chosen ones. Deliberately absent: what a mode is made of (`ranking`), and
fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill.errors import BundleError
from backfill.fusion import Scores

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment
    from backfill.indexes.bm25 import Bm25
    from backfill.indexes.vectors import VectorIndex

Mask = npt.NDArray[np.bool_]
Units = npt.NDArray[np.int64]
Space: TypeAlias = Literal["documents", "claims"]

# Below this many rows in all, the plain scan costs less than importing FAISS (about 0.2 s); both agree to the bit.
FAISS_FROM_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class VectorPart:
    """The rows of one vector file: `unit_of_row` [rows] is the unit within the segment, -1 for rows not shown.

    The rows of unit u are row_order[row_indptr[u]:row_indptr[u + 1]].
    """

    index: VectorIndex
    unit_of_row: Units
    start: int
    n_units: int
    row_order: Units
    row_indptr: Units

    @property
    def rows_per_unit(self) -> int:
        """The most rows that one unit has."""
        return int(np.diff(self.row_indptr).max(initial=1))

    def rows_of(self, units: Units) -> tuple[Units, Units]:
        """(position in `units`, row) of every row of the units, which are numbers within the segment."""
        starts, ends = self.row_indptr[units], self.row_indptr[units + 1]
        at = np.repeat(np.arange(len(units)), ends - starts)
        within = np.arange(len(at)) - np.repeat(np.cumsum(ends - starts) - (ends - starts), ends - starts)
        return at, self.row_order[starts[at] + within]


def starts(bundle: Bundle, space: Space) -> Units:
    """[segments + 1] the number of each segment's first unit, and at the end how many there are."""

    def count() -> Units:
        sizes = [len(s.docs if space == "documents" else s.docs.claim_row) for s in bundle.segments]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    return bundle.once(f"starts:{space}", count)


def bm25(
    bundle: Bundle,
    field: str,
    terms: Sequence[str],
    space: Space = "documents",
    k1: float | None = None,
    b: float | None = None,
) -> Scores:
    """[units] scores of one field; 0 where no term stands. `k1` and `b` are the bundle's where None."""
    index, present = bundle.once(f"bm25:{field}:{k1}:{b}", _open_bm25, bundle, field, space, k1, b)
    base = starts(bundle, space)
    total = np.zeros(int(base[-1]), np.float64)
    for number, scores in zip(present, index.scores(terms), strict=True):
        total[base[number] : base[number + 1]] = scores
    return total


def _open_bm25(bundle: Bundle, field: str, space: Space, k1: float | None, b: float | None) -> tuple[Bm25, list[int]]:
    from backfill.indexes.bm25 import Bm25, FieldIndex
    from backfill.indexes.tokenizer import TOKENIZER_VERSION

    info = bundle.manifest.bm25
    if info is None or str(info.tokenizer_version) != str(TOKENIZER_VERSION):
        version = info.tokenizer_version if info else "none"
        raise BundleError(
            f"the bundle's BM25 index was cut by tokenizer {version}, this version has {TOKENIZER_VERSION}",
            hint="merge the bundle anew with this version of backfill",
        )
    base = starts(bundle, space)
    present, fields = [], []
    for number, segment in enumerate(bundle.segments):
        if segment.has(f"bm25:{field}"):
            index = FieldIndex.open(segment.arrays(f"bm25:{field}"))
            if index.n_docs != base[number + 1] - base[number]:
                raise BundleError(f"the BM25 index {field} of segment {segment.name} does not fit its documents")
            present.append(number)
            fields.append(index)
    return Bm25(fields, k1=info.k1 if k1 is None else k1, b=info.b if b is None else b), present


def vector_parts(bundle: Bundle, roles: Sequence[str], space: Space = "documents") -> list[VectorPart]:
    """The opened vector files of the given roles, of all segments."""
    return bundle.once(f"vectors:{','.join(roles)}", _open_vectors, bundle, tuple(roles), space)


def _open_vectors(bundle: Bundle, roles: Sequence[str], space: Space) -> list[VectorPart]:
    from backfill.indexes.vectors import ExactIndex, NumpyIndex

    if bundle.manifest.encoder is None:
        raise BundleError("the bundle has vectors, but names no encoder for them")
    dim = bundle.manifest.encoder.dim
    base = starts(bundle, space)
    held = [(n, s, role) for n, s in enumerate(bundle.segments) for role in roles if s.has(role)]
    make: Any = ExactIndex if sum(s.files[role].rows for _, s, role in held) >= FAISS_FROM_ROWS else NumpyIndex
    parts = []
    for number, segment, role in held:
        rows = segment.vectors(role, dim)
        units = _unit_of_row(segment, role)
        if len(units) != len(rows):
            raise BundleError(f"{segment.files[role].path} has {len(rows)} vectors for {len(units)} rows")
        start, end = int(base[number]), int(base[number + 1])
        order = np.argsort(units, kind="stable")[int((units < 0).sum()) :]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(units[units >= 0], minlength=end - start))])
        parts.append(VectorPart(make(rows), units, start, end - start, order, indptr.astype(np.int64)))
    return parts


def _unit_of_row(segment: Segment, role: str) -> Units:
    docs = segment.docs
    if role == "vectors:verbatim":
        rows = segment.arrays("vectors:verbatim:rows")["exchange_row"]
        if len(rows) and (rows.min() < 0 or rows.max() >= len(segment.doc_of_row)):
            raise BundleError(f"{segment.files[role].path} points outside the exchanges")
        shown_as: Units = segment.doc_of_row[rows]
        return shown_as
    table = "claims" if role == "vectors:claims" else "objects"
    shown = docs.claim_row if role == "vectors:claims" else docs.object_row
    units = np.full(segment.files[table].rows, -1, np.int64)
    units[shown[shown >= 0]] = np.flatnonzero(shown >= 0)
    return units


def vector_scores(parts: Sequence[VectorPart], query: npt.NDArray[np.float32], units: Units) -> Scores:
    """[len(units)] the best row of each unit (sorted, distinct) by inner product; NaN where it has none."""
    best = np.full(len(units), -np.inf)
    for part in parts:
        low, high = np.searchsorted(units, [part.start, part.start + part.n_units])
        if low == high:
            continue
        at, rows = part.rows_of(units[low:high] - part.start)
        scores = part.index.scores_at(query, rows).astype(np.float64)
        np.maximum.at(best[low:high], at, np.where(np.isfinite(scores), scores, -np.inf))
    return np.where(np.isfinite(best), best, np.nan)


def vector_candidates(parts: Sequence[VectorPart], query: npt.NDArray[np.float32], mask: Mask, depth: int) -> Units:
    """The at least `depth` best units (fewer where fewer pass the mask), sorted by number; ties at the cut stay."""
    found: list[Units] = []
    for part in parts:
        allowed = np.append(mask[part.start : part.start + part.n_units], False)[part.unit_of_row]
        _, rows = _search(part, query, min(depth * part.rows_per_unit, int(allowed.sum())), allowed)
        found.append(part.unit_of_row[rows] + part.start)
    units = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
    scores = vector_scores(parts, query, units)
    kept: Units = units[best_units(scores, np.arange(len(units)), depth)]
    return kept


def best_units(scores: Scores, units: Units, n: int) -> Units:
    """The units of the `n` best scores; ties at the cut stay."""
    if len(units) <= n:
        return units
    kept = scores[units]
    chosen: Units = units[kept >= np.partition(kept, len(kept) - n)[len(kept) - n]]
    return chosen


def _search(
    part: VectorPart, query: npt.NDArray[np.float32], k: int, mask: Mask
) -> tuple[npt.NDArray[np.float32], Units]:
    if k == 0:
        return np.zeros(0, np.float32), np.zeros(0, np.int64)
    scores, rows = part.index.search(query[None], k, mask)
    kept = rows[0] >= 0
    return scores[0][kept], rows[0][kept]
