"""The best of many scores without sorting them all, and lists of units as one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.signals import best_above_zero, distinct


@pytest.mark.parametrize("n_scores", [0, 1, 300, 5_000])
@pytest.mark.parametrize("n", [1, 7, 200, 5_000])
@pytest.mark.parametrize("shape", ["spread", "ties", "mostly zero", "sample of the worst", "sample of the best"])
def test_the_best_are_those_of_a_full_sort(n_scores: int, n: int, shape: str) -> None:
    dice = np.random.default_rng(n_scores + n)
    scores = dice.exponential(size=n_scores)
    if shape == "ties":
        scores = np.floor(scores)
    elif shape == "mostly zero":
        scores[dice.random(n_scores) < 0.98] = 0.0
    elif shape.startswith("sample"):
        scores[::16] += -scores[::16] if shape.endswith("worst") else 100.0
    above = np.flatnonzero(scores > 0)
    cut = np.sort(scores[above])[::-1][min(n, len(above)) - 1] if len(above) else 0.0
    assert best_above_zero(scores, n).tolist() == above[scores[above] >= cut].tolist()


@given(st.lists(st.lists(st.integers(0, 30), max_size=9), max_size=4))
def test_units_of_several_lists_stand_once_and_rise(lists: list[list[int]]) -> None:
    found = distinct([np.array(some, np.int64) for some in lists])
    assert found.tolist() == sorted({unit for some in lists for unit in some})
    assert found.dtype == np.int64
