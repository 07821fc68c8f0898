"""Turns several signals over the same candidates into one score.

Min-max keeps how far apart a signal's scores lie, which ranks throw away; capping at a percentile ties the very top.
It counts from a fixed score where there is one (no shared word, no nearness), else how many candidates there are would
decide what a score is worth: from the 200th best cosine instead of 0, .565 MRR for .594 on entire_cli.
On both retrieval sets that were tried, min-max .5 + .5 kept BM25's strength and added the vectors'; the others stay
options. Deliberately absent: learned weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]

FUSIONS = ("weighted", "combmnz", "rrf")
NORMALIZATIONS = ("minmax", "p95", "zscore")
# Below so many results a percentile is a matter of chance, and the published code takes the maximum.
_PERCENTILE_FROM = 10


class Signal(msgspec.Struct, frozen=True):
    """One signal's scores [C] over the candidates; NaN where a candidate lacks it.

    `floor` is its least possible score and means that the signal did not find the candidate (BM25: 0, no word in
    common), None where it has none. `found` [C] marks the candidates in its own list of the best; None: all it scores.
    `zero` is the score that says nothing, of a signal without a floor (cosines: about 0); None: the least there is.
    """

    scores: Scores
    weight: float = 1.0
    floor: float | None = None
    found: npt.NDArray[np.bool_] | None = None
    zero: float | None = None

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """[C] true where the candidate has the signal."""
        return np.isfinite(self.scores)


def fuse(signals: Sequence[Signal], *, fusion: str, normalization: str = "minmax", rrf_k: int = 60) -> Scores:
    """[C] the fused scores; `fusion` is one of FUSIONS, `normalization` (not used by rrf) one of NORMALIZATIONS."""
    if fusion == "rrf":
        return rrf(signals, rrf_k)
    return combmnz(signals, normalization) if fusion == "combmnz" else weighted(signals, normalization)


def normalize(signal: Signal, normalization: str) -> Scores:
    """[C] the signal on a common scale; what a candidate lacks counts as the least.

    minmax: stretched to 0..1 over the candidates, from the floor or the zero where there is one (what lies below the
    zero is 0), unless none lies above it; a signal that gives all the same tells nothing apart: 1 where it is above its
    floor, or has none. p95: divided by the 95th percentile of the scores
    above 0, by their maximum below 10 results, and capped at 1 (the published default). zscore: in standard deviations
    from the mean.
    """
    out = np.zeros(len(signal.scores), np.float64)
    present = signal.present
    scores = signal.scores[present]
    if not len(scores):
        return out
    if normalization == "zscore":
        deviation = float(scores.std())
        scaled = (scores - scores.mean()) / deviation if deviation > 0 else np.zeros(len(scores))
        out[:] = scaled.min()
    elif normalization == "p95":
        positive = scores[scores > 0]
        top = float(np.percentile(positive, 95) if len(positive) >= _PERCENTILE_FROM else positive.max(initial=0.0))
        scaled = np.clip(scores / top, 0.0, 1.0) if top > 0 else np.zeros(len(scores))
    else:
        high = float(scores.max())
        low = float(scores.min()) if signal.floor is None else signal.floor
        if signal.floor is None and signal.zero is not None and high > signal.zero:
            low = signal.zero
        if high > low:
            scaled = np.maximum((scores - low) / (high - low), 0.0)
        else:
            scaled = np.full(len(scores), 1.0 if signal.floor is None else 0.0)
    out[present] = scaled
    return out


def weighted(signals: Sequence[Signal], normalization: str = "minmax") -> Scores:
    """[C] weighted sum of the normalised signals (CombSUM, Fox and Shaw 1994, with weights)."""
    total = np.zeros(len(signals[0].scores), np.float64)
    for signal in signals:
        total += signal.weight * normalize(signal, normalization)
    return total


def combmnz(signals: Sequence[Signal], normalization: str = "minmax") -> Scores:
    """[C] the weighted sum times the number of signals that found the candidate (CombMNZ, Fox and Shaw 1994)."""
    found = np.zeros(len(signals[0].scores), np.float64)
    for signal in signals:
        found += _found(signal)
    return weighted(signals, normalization) * found


def rrf(signals: Sequence[Signal], k: int = 60) -> Scores:
    """[C] reciprocal rank fusion (Cormack, Clarke and Buettcher 2009): sum of weight / (k + rank).

    Ranks count from 1; equal scores share the better rank, unlike in the paper, so that the order of the input never
    decides. A missing signal, or one at its floor, adds nothing.
    """
    total = np.zeros(len(signals[0].scores), np.float64)
    for signal in signals:
        ranked = signal.present & (np.nan_to_num(signal.scores, nan=-np.inf) > _floor(signal))
        scores = signal.scores[ranked]
        falling = -np.sort(-scores)
        ranks = np.searchsorted(-falling, -scores, side="left") + 1
        total[ranked] += signal.weight / (k + ranks)
    return total


def lift_sessions(scores: Scores, sessions: npt.NDArray[np.uint64], prior: float) -> Scores:
    """[C] each score plus `prior` times the best score of its session: one good exchange speaks for the others."""
    if prior == 0.0 or not len(scores):
        return scores
    _, number = np.unique(sessions, return_inverse=True)
    best = np.full(int(number.max()) + 1, -np.inf)
    np.maximum.at(best, number, scores)
    lifted: Scores = scores + prior * best[number]
    return lifted


def _floor(signal: Signal) -> float:
    return -np.inf if signal.floor is None else signal.floor


def _found(signal: Signal) -> npt.NDArray[np.bool_]:
    above: npt.NDArray[np.bool_] = signal.present & (np.nan_to_num(signal.scores, nan=-np.inf) > _floor(signal))
    return above if signal.found is None else above & signal.found
