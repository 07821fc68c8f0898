"""The exponent k of cost = c * size^k, by least squares in log space, with its 95% interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t


@dataclass(frozen=True, slots=True)
class Fit:
    """An exponent, the ends of its 95% interval, and how many points it rests on."""

    exponent: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f}, {self.n} points)"


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """Fits (size, cost) points, all positive. The interval is Student's t with n - 2 degrees of freedom: it holds the
    scatter of the runs and the bend of the curve alike.

    Raises ValueError for fewer than three points, one size alone, or a value that is not positive.
    """
    if len(points) < 3 or len({size for size, _ in points}) < 2:
        raise ValueError("an exponent with an interval wants three points of two sizes")
    if any(size <= 0 or cost <= 0 for size, cost in points):
        raise ValueError("sizes and costs must be positive")
    xs, ys = [math.log(size) for size, _ in points], [math.log(cost) for _, cost in points]
    n = len(points)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    s_xx = sum((x - mean_x) ** 2 for x in xs)
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / s_xx
    left = sum((y - mean_y - exponent * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    half = float(t.ppf(0.975, n - 2)) * math.sqrt(left / (n - 2) / s_xx)
    return Fit(exponent, exponent - half, exponent + half, n)
