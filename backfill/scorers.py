"""The signals of a search as one kind of thing: each names its best units, and scores any units it is asked about.

Deliberately absent: which signals a mode is made of, and how they are joined (`ranking`).
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.claim_index import ClaimIndex
from backfill.fusion import Scores
from backfill.signals import Mask, Units, best_above_zero, distinct
from backfill.vector_space import VectorSpace

# Claims looked at for each document wanted: a document has two on average.
_CLAIMS_PER_DOCUMENT = 2


class Scorer(Protocol):
    """One signal over the units of a search; `floor` is the score that means "not found", None where there is none."""

    @property
    def floor(self) -> float | None:
        """0 for signals by words, None for vectors."""
        ...

    def candidates(self, depth: int) -> Units:
        """The at least `depth` best units that pass the mask, rising and distinct; fewer where fewer are found."""
        ...

    def scores(self, units: Units) -> Scores:
        """[len(units)] scores of units in rising order; NaN where a unit lacks the signal."""
        ...


class ByWords(msgspec.Struct, frozen=True):
    """BM25: `all_scores` [units], 0 where no term stands or the mask is false."""

    all_scores: Scores
    floor: float | None = 0.0

    def candidates(self, depth: int) -> Units:
        """See Scorer."""
        return best_above_zero(self.all_scores, depth)

    def scores(self, units: Units) -> Scores:
        """See Scorer."""
        return self.all_scores[units]


class ByVector(msgspec.Struct, frozen=True):
    """Vectors of the units themselves; a unit with several rows scores as its best."""

    space: VectorSpace
    query: npt.NDArray[np.float32]
    mask: Mask
    floor: float | None = None

    def candidates(self, depth: int) -> Units:
        """See Scorer."""
        return self.space.candidates(self.query, self.mask, depth)

    def scores(self, units: Units) -> Scores:
        """See Scorer."""
        return self.space.scores(self.query, units)


class ByClaimVector(msgspec.Struct, frozen=True):
    """Vectors of claims; a document scores as its best claim. `claims` [C]: those that count; `mask`: the documents."""

    space: VectorSpace
    query: npt.NDArray[np.float32]
    index: ClaimIndex
    claims: Mask
    mask: Mask
    floor: float | None = None

    def candidates(self, depth: int) -> Units:
        """See Scorer."""
        allowed = self.claims & self.index.any_doc(self.mask)
        near = self.space.candidates(self.query, allowed, depth * _CLAIMS_PER_DOCUMENT)
        docs = np.unique(self.index.pairs(near)[1])
        return docs[self.mask[docs]]

    def scores(self, units: Units) -> Scores:
        """See Scorer."""
        at, claims = self.index.pairs_of_docs(units)
        counted = self.claims[claims]
        at, claims = at[counted], claims[counted]
        distinct, place = np.unique(claims, return_inverse=True)
        of_claim = self.space.scores(self.query, distinct)
        best = np.full(len(units), -np.inf)
        np.maximum.at(best, at, np.nan_to_num(of_claim, nan=-np.inf)[place])
        return np.where(np.isfinite(best), best, np.nan)


class ByNearest(msgspec.Struct, frozen=True):
    """Several vector signals as one: a unit scores as the best of them, so that one near claim or part is enough."""

    signals: tuple[Scorer, ...]
    floor: float | None = None

    def candidates(self, depth: int) -> Units:
        """See Scorer."""
        return distinct([signal.candidates(depth) for signal in self.signals])

    def scores(self, units: Units) -> Scores:
        """See Scorer."""
        best: Scores = np.fmax.reduce([signal.scores(units) for signal in self.signals])
        return best


def claim_words(index: ClaimIndex, of_claim: Scores, claims: Mask, mask: Mask) -> ByWords:
    """BM25 of claims [C] as a signal of documents: each scores as its best claim that counts."""
    found = np.flatnonzero((of_claim > 0) & claims)
    at, docs = index.pairs(found)
    scores = np.zeros(len(mask), np.float64)
    np.maximum.at(scores, docs, of_claim[found][at])
    scores[~mask] = 0.0
    return ByWords(scores)
