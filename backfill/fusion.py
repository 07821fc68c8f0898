"""Turns several signals over the same candidates into one score.

Min-max keeps how far apart a signal's scores lie, which ranks throw away; capping at a percentile ties the very top.
On both retrieval sets that were tried, min-max .5 + .5 kept BM25's strength and added the vectors'; reciprocal rank
fusion stays an option. Deliberately absent: learned weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]


def minmax(signals: Sequence[Scores], weights: Sequence[float], floors: Sequence[float | None] | None = None) -> Scores:
    """[C] weighted sum of the signals [C], each stretched to 0..1 over the candidates.

    NaN means that a candidate lacks the signal, which counts as 0. A floor, where given, is the signal's least
    possible score and is used instead of the least seen (BM25: 0, no word in common). A signal that gives all the
    same score tells nothing apart: 1 where it is above its floor, or has none.
    """
    total = np.zeros(len(signals[0]), np.float64)
    for signal, weight, floor in zip(signals, weights, floors or [None] * len(signals), strict=True):
        present = np.isfinite(signal)
        if not present.any():
            continue
        high = float(signal[present].max())
        low = float(signal[present].min()) if floor is None else floor
        if high > low:
            scaled = (signal[present] - low) / (high - low)
        else:
            scaled = np.full(int(present.sum()), 1.0 if floor is None else 0.0)
        total[present] += weight * scaled
    return total


def rrf(
    signals: Sequence[Scores], weights: Sequence[float], floors: Sequence[float | None] | None = None, k: int = 60
) -> Scores:
    """[C] reciprocal rank fusion (Cormack, Clarke and Buettcher 2009): sum of weight / (k + rank).

    Ranks count from 1; equal scores share the better rank, unlike in the paper, so that the order of the input never
    decides. A missing signal (NaN), or one at its floor, adds nothing.
    """
    total = np.zeros(len(signals[0]), np.float64)
    for signal, weight, floor in zip(signals, weights, floors or [None] * len(signals), strict=True):
        present = np.isfinite(signal)
        if floor is not None:
            present &= np.where(present, signal, floor) > floor
        scores = signal[present]
        falling = -np.sort(-scores)
        ranks = np.searchsorted(-falling, -scores, side="left") + 1
        total[present] += weight / (k + ranks)
    return total
