"""Agreement of graders beyond chance: Cohen's kappa of two, Fleiss' kappa of several.

A kappa of grades that never vary is undefined; it is given as 1 where all agree, since chance explains everything and
nothing disagrees. Deliberately absent: confidence intervals of kappa.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def cohen_kappa(a: Sequence[int], b: Sequence[int], *, weighted: bool = False) -> float:
    """Cohen's kappa (1960) of two raters over the same items; `weighted`: quadratic weights (1968), for grades.

    Raises ValueError for lists of different length or of none.
    """
    if len(a) != len(b) or not a:
        raise ValueError("two raters need the same, positive number of items")
    grades = sorted({*a, *b})
    at = {grade: i for i, grade in enumerate(grades)}
    table = np.zeros((len(grades), len(grades)))
    for x, y in zip(a, b, strict=True):
        table[at[x], at[y]] += 1
    table /= len(a)
    values = np.array(grades, np.float64)
    apart = (values[:, None] - values[None, :]) ** 2 if weighted else 1.0 - np.eye(len(grades))
    expected = float((apart * np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
    return 1.0 - float((apart * table).sum()) / expected if expected > 0 else 1.0


def fleiss_kappa(ratings: Sequence[Sequence[int]]) -> float:
    """Fleiss' kappa (1971): `ratings` are items, each with the grades of the same number (two or more) of raters.

    Raises ValueError where items have different numbers of grades.
    """
    n_raters = len(ratings[0]) if ratings else 0
    if n_raters < 2 or any(len(row) != n_raters for row in ratings):
        raise ValueError("every item needs the same number of grades, two or more")
    grades = sorted({grade for row in ratings for grade in row})
    counts = np.array([[row.count(grade) for grade in grades] for row in map(list, ratings)], np.float64)
    per_item = ((counts**2).sum(axis=1) - n_raters) / (n_raters * (n_raters - 1))
    share = counts.sum(axis=0) / counts.sum()
    chance = float((share**2).sum())
    return (float(per_item.mean()) - chance) / (1.0 - chance) if chance < 1.0 else 1.0
