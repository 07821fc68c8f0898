"""Tests and intervals against scipy, published values and cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from backfill.evaluation.statistics import (
    bonferroni,
    choose_by_halves,
    holm,
    mcnemar_exact,
    paired,
    paired_all,
    smallest_detectable,
)

rng = np.random.default_rng(3)
A = rng.beta(2, 3, 240)
B = np.clip(A - 0.04 + rng.normal(0, 0.15, 240), 0, 1)


def test_p_values_are_those_of_scipy():
    found = paired(A, B)
    assert found.p == pytest.approx(stats.ttest_rel(A, B).pvalue)
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(A, B, zero_method="pratt", method="approx").pvalue)
    assert found.delta == pytest.approx((A - B).mean())
    assert found.d == pytest.approx((A - B).mean() / (A - B).std(ddof=1))


def test_the_interval_is_that_of_an_outside_bootstrap():
    low, high = paired(A, B).ci95
    outside = stats.bootstrap((A - B,), np.mean, n_resamples=8000, method="percentile", random_state=1)
    assert low == pytest.approx(outside.confidence_interval.low, abs=0.003)
    assert high == pytest.approx(outside.confidence_interval.high, abs=0.003)


def test_non_inferiority_is_a_one_sided_test_against_the_margin():
    expected = stats.ttest_1samp(B - A, -0.1, alternative="greater").pvalue
    found = paired(B, A, margin=0.1)
    assert found.p_noninferior == pytest.approx(expected)
    assert found.noninferior
    assert not paired(B, A, margin=0.01).noninferior


def test_no_significance_is_no_equivalence_in_a_small_sample():
    a, b = np.array([0.9, 0.1, 0.5, 0.4]), np.array([0.8, 0.3, 0.5, 0.1])
    found = paired(a, b)
    assert found.p > 0.05
    assert not found.noninferior
    assert found.mde > abs(found.delta)


def test_the_smallest_detectable_difference_is_found_with_the_power_it_states():
    n, spread = 100, 0.3
    effect = smallest_detectable(spread, n)
    draws = np.random.default_rng(5).normal(effect, spread, (2000, n))
    found = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_equal_values_differ_in_nothing():
    found = paired(A, A)
    assert (found.delta, found.p, found.d, found.mde) == (0.0, 1.0, 0.0, 0.0)
    assert found.noninferior


def test_different_lengths_are_refused():
    with pytest.raises(ValueError, match="same, positive number"):
        paired_all([(A, B[:5])])


def test_holm_and_bonferroni_on_the_textbook_case():
    # Holm (1979): p of .01, .04, .03, .005 give .03, .06, .06, .02.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert bonferroni([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16, 0.12, 1.0])
    assert holm([]) == []


@pytest.mark.parametrize(("gained", "lost", "p"), [(7, 0, 0.015625), (0, 0, 1.0), (5, 5, 1.0), (10, 1, 0.01171875)])
def test_mcnemar_on_published_counts(gained: int, lost: int, p: float):
    # 117 -> 124 of 132 useful answers with no loss is 7 against 0: p = .0156.
    assert mcnemar_exact(gained, lost) == pytest.approx(p)


def test_a_choice_is_reported_on_queries_that_did_not_choose():
    # Pure noise: the best of twenty on one half is no better than any on the other.
    noise = {f"n{i}": np.random.default_rng(i).random(200) for i in range(20)}
    choice = choose_by_halves(noise, np.full(200, 0.5), splits=300)
    best_seen = max(values.mean() for values in noise.values())
    assert choice.reported < best_seen
    assert choice.reported == pytest.approx(np.mean([v.mean() for v in noise.values()]), abs=0.02)
    assert sum(times for _, times in choice.chosen) == 300
