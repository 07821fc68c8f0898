"""Paired comparisons of per-query values: effect, interval, tests, and what could have been seen at all.

Queries are the units and are resampled as if independent; where they share a conversation, intervals are somewhat too
narrow, which the report says. Deliberately absent: tests of unpaired samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

F64 = npt.NDArray[np.float64]

RESAMPLES = 4_000
SEED = 20_260_313
ALPHA = 0.05
POWER = 0.8
# Non-inferiority margin in MRR: the loss that the source of the method (arXiv 2603.13017) reports as small
# (0.717 distilled against 0.745 for the best verbatim configuration).
MARGIN = 0.03


@dataclass(frozen=True, slots=True)
class Paired:
    """`delta` is mean(a - b) over n queries, `ci95` its bootstrap interval, `d` Cohen's d of the differences.

    `p` is of the paired t test, `p_wilcoxon` of the signed-rank test, `p_noninferior` one-sided against
    delta <= -margin. `mde` is the smallest difference that n queries with this spread show with 80% power.
    """

    n: int
    delta: float
    ci95: tuple[float, float]
    p: float
    p_wilcoxon: float
    d: float
    mde: float
    margin: float
    p_noninferior: float

    @property
    def noninferior(self) -> bool:
        """Whether a loss of `margin` or more is ruled out at 5%."""
        return self.p_noninferior < ALPHA


def paired(a: F64, b: F64, *, margin: float = MARGIN, resamples: int = RESAMPLES) -> Paired:
    """Compares a with b [Q], query by query. Raises ValueError where they differ in length or are empty."""
    return paired_all([(a, b)], margin=margin, resamples=resamples)[0]


def paired_all(pairs: Sequence[tuple[F64, F64]], *, margin: float = MARGIN, resamples: int = RESAMPLES) -> list[Paired]:
    """The same for several pairs over the same queries, with the same resamples: one product of matrices."""
    if not pairs:
        return []
    if any(len(a) != len(b) or not len(a) or len(a) != len(pairs[0][0]) for a, b in pairs):
        raise ValueError("pairs need the same, positive number of queries on both sides")
    differences = np.stack([a - b for a, b in pairs])  # [P, Q]
    means = _bootstrap_means(differences, resamples)  # [P, B]
    low, high = np.percentile(means, [2.5, 97.5], axis=1)
    return [_compared(row, (float(low[i]), float(high[i])), margin) for i, row in enumerate(differences)]


def _bootstrap_means(differences: F64, resamples: int) -> F64:
    n = differences.shape[1]
    draws = np.random.default_rng(SEED).multinomial(n, np.full(n, 1.0 / n), size=resamples)  # [B, Q]
    means: F64 = differences @ draws.T / n
    return means


def _compared(difference: F64, ci95: tuple[float, float], margin: float) -> Paired:
    n, delta = len(difference), float(difference.mean())
    spread = float(difference.std(ddof=1)) if n > 1 else 0.0
    error = spread / math.sqrt(n)
    if error == 0.0:
        same = 1.0 if delta == 0.0 else 0.0
        return Paired(n, delta, ci95, same, same, 0.0, 0.0, margin, 0.0 if delta > -margin else 1.0)
    return Paired(
        n=n,
        delta=delta,
        ci95=ci95,
        p=float(2.0 * stats.t.sf(abs(delta / error), n - 1)),
        p_wilcoxon=_wilcoxon(difference),
        d=delta / spread,
        mde=smallest_detectable(spread, n),
        margin=margin,
        p_noninferior=float(stats.t.sf((delta + margin) / error, n - 1)),
    )


def smallest_detectable(spread: float, n: int) -> float:
    """(z(1 - alpha / 2) + z(power)) x sd / sqrt(n): 2.80 standard errors at 5% two-sided and 80% power."""
    return float((stats.norm.ppf(1.0 - ALPHA / 2.0) + stats.norm.ppf(POWER)) * spread / math.sqrt(n))


def _wilcoxon(difference: F64) -> float:
    # Zeros are spread over both signs (Pratt 1959): dropping them would forget the queries that did not change.
    return float(stats.wilcoxon(difference, zero_method="pratt", method="approx").pvalue)


def bonferroni(p: Sequence[float]) -> list[float]:
    """p values times their number, at most 1."""
    return [min(1.0, value * len(p)) for value in p]


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values (Holm 1979), in the order given."""
    adjusted = [0.0] * len(p)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - rank) * p[at]))
        adjusted[at] = highest
    return adjusted


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided exact p value of McNemar's test from the discordant counts: binomial with probability 1/2."""
    return 1.0 if gained + lost == 0 else float(stats.binomtest(gained, gained + lost, 0.5).pvalue)


@dataclass(frozen=True, slots=True)
class Choice:
    """What choosing on one half and reporting on the other gives, over repeated splits.

    `reported` is the mean value of the chosen candidate on the unseen half, `baseline` that of the baseline there;
    `low` and `high` hold the middle 95% of their differences; `chosen` counts how often each candidate won.
    """

    reported: float
    baseline: float
    low: float
    high: float
    chosen: tuple[tuple[str, int], ...]


def choose_by_halves(values: Mapping[str, F64], baseline: F64, *, splits: int = 200, seed: int = SEED) -> Choice:
    """Chooses the best of `values` on a random half of the queries and reports it on the other, `splits` times."""
    names = list(values)
    matrix = np.stack([values[name] for name in names])  # [C, Q]
    n = matrix.shape[1]
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(names, 0)
    reported, reference = [], []
    for _ in range(splits):
        order = rng.permutation(n)
        seen, unseen = order[: n // 2], order[n // 2 :]
        best = int(matrix[:, seen].mean(axis=1).argmax())
        counts[names[best]] += 1
        reported.append(float(matrix[best, unseen].mean()))
        reference.append(float(baseline[unseen].mean()))
    differences = np.array(reported) - np.array(reference)
    low, high = np.percentile(differences, [2.5, 97.5])
    chosen = tuple(sorted(((k, v) for k, v in counts.items() if v), key=lambda item: (-item[1], item[0])))
    return Choice(float(np.mean(reported)), float(np.mean(reference)), float(low), float(high), chosen)
