"""Scores of a bundle's documents (or claims) by BM25 and by vectors, over all its segments.

Units are documents, or claims, counted through the segments in order. BM25 gives a dense array; vectors give the best
units under a mask, and exact scores for chosen ones. Deliberately absent: what a mode is made of (`ranking`), and
fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill.errors import BundleError
from backfill.fusion import Scores

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment
    from backfill.indexes.bm25 import Bm25
    from backfill.vector_space import VectorSpace

# One score in so many tells where about the best of many begin.
_SAMPLED = 16

Mask = npt.NDArray[np.bool_]
Units = npt.NDArray[np.int64]
Space: TypeAlias = Literal["documents", "claims"]


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
    if len(present) == len(bundle.segments):
        return index.total(terms)
    base = starts(bundle, space)
    total = np.zeros(int(base[-1]), np.float64)
    for number, scores in zip(present, index.scores(terms), strict=True):
        total[base[number] : base[number + 1]] = scores
    return total


def _open_bm25(bundle: Bundle, field: str, space: Space, k1: float | None, b: float | None) -> tuple[Bm25, list[int]]:
    from backfill.indexes.bm25 import Bm25
    from backfill.indexes.field import FieldIndex
    from backfill.indexes.tokenizer import TOKENIZER_VERSION
    from backfill.joined_words import open_joined

    info = bundle.manifest.bm25
    if info is None or str(info.tokenizer_version) != str(TOKENIZER_VERSION):
        version = info.tokenizer_version if info else "none"
        raise BundleError(
            f"the bundle's BM25 index was cut by tokenizer {version}, this version has {TOKENIZER_VERSION}",
            hint="merge the bundle anew with this version of backfill",
        )
    base = starts(bundle, space)
    k1, b = info.k1 if k1 is None else k1, info.b if b is None else b
    joined = open_joined(bundle, field)
    if joined is not None and joined.n_docs == base[-1]:
        return Bm25([joined], k1=k1, b=b), list(range(len(bundle.segments)))
    present, fields = [], []
    for number, segment in enumerate(bundle.segments):
        if segment.has(f"bm25:{field}"):
            path = None if bundle.keep_mapped else segment.path(f"bm25:{field}")
            index = FieldIndex.open(segment.arrays(f"bm25:{field}"), path)
            if index.n_docs != base[number + 1] - base[number]:
                raise BundleError(f"the BM25 index {field} of segment {segment.name} does not fit its documents")
            present.append(number)
            fields.append(index)
    return Bm25(fields, k1=k1, b=b), present


def vector_space(bundle: Bundle, roles: Sequence[str], space: Space = "documents") -> VectorSpace:
    """The vector files of the given roles, of all segments. Raises BundleError where they do not fit their rows."""
    return bundle.once(f"vectors:{','.join(roles)}", _open_vectors, bundle, tuple(roles), space)


def _open_vectors(bundle: Bundle, roles: Sequence[str], space: Space) -> VectorSpace:
    from backfill.ann_files import open_ann
    from backfill.vector_space import SHORTLIST_ABOVE_ROWS, VectorSpace

    if bundle.manifest.encoder is None:
        raise BundleError("the bundle has vectors, but names no encoder for them")
    base = starts(bundle, space)
    files, units_of = [], []
    for number, segment in enumerate(bundle.segments):
        for role in (role for role in roles if segment.has(role)):
            rows = segment.vectors(role, bundle.manifest.encoder.dim)
            units = _unit_of_row(segment, role)
            if len(units) != len(rows):
                raise BundleError(f"{segment.files[role].path} has {len(rows)} vectors for {len(units)} rows")
            files.append(rows)
            units_of.append(np.where(units >= 0, units + base[number], -1))
    many = sum(map(len, files)) > SHORTLIST_ABOVE_ROWS
    ann = open_ann(bundle, roles) if many else None
    return VectorSpace(files, units_of, int(base[-1]), ann, keep_mapped=bundle.keep_mapped)


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


def best_units(scores: Scores, units: Units, n: int) -> Units:
    """The units of the `n` best scores; ties at the cut stay."""
    if len(units) <= n:
        return units
    kept = scores[units]
    chosen: Units = units[kept >= np.partition(kept, len(kept) - n)[len(kept) - n]]
    return chosen


def best_above_zero(scores: Scores, n: int) -> Units:
    """`best_units` of all units that score above 0, without sorting most of them."""
    some = scores[::_SAMPLED]
    # A quarter more than the sample's share, and some: seldom too few, and if it is, all are looked at.
    place = len(some) - (n // _SAMPLED * 5 // 4 + _SAMPLED)
    floor = np.partition(some, place)[place] if place > 0 else 0.0
    if floor > 0:
        units = np.flatnonzero(scores >= floor)
        if len(units) >= n:
            return best_units(scores, units, n)
    return best_units(scores, np.flatnonzero(scores > 0), n)


def distinct(several: Sequence[Units]) -> Units:
    """All units of several lists, rising and each once; a third of the time that `np.unique` takes for few."""
    units = np.sort(np.concatenate([np.zeros(0, np.int64), *several]))
    kept = np.ones(len(units), np.bool_)
    np.not_equal(units[1:], units[:-1], out=kept[1:])
    return units[kept]
