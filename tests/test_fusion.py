"""Fusion: the stated values, and laws over random signals."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.fusion import minmax, rrf

NAN = float("nan")
scores = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20).map(lambda v: np.array(v, np.float64))


def test_minmax_stretches_each_signal_to_0_and_1_and_weighs_it():
    words = np.array([0.0, 2.0, 4.0])
    near = np.array([0.9, 0.1, 0.5])
    assert minmax([words, near], [0.5, 0.5]).tolist() == [0.5, 0.25, 0.75]
    assert minmax([words, near], [1.0, 0.0]).tolist() == [0.0, 0.5, 1.0]


def test_minmax_counts_a_missing_signal_as_nothing():
    fused = minmax([np.array([NAN, 2.0, 4.0]), np.array([1.0, 0.0, NAN])], [0.5, 0.5])
    assert fused.tolist() == [0.5, 0.0, 0.5]


def test_minmax_floor_keeps_what_all_candidates_have():
    assert minmax([np.array([3.0, 4.0])], [1.0], [0.0]).tolist() == [0.75, 1.0]
    assert minmax([np.array([3.0, 4.0])], [1.0], [None]).tolist() == [0.0, 1.0]


def test_minmax_of_a_signal_without_difference():
    assert minmax([np.array([2.0, 2.0])], [0.5], [0.0]).tolist() == [0.5, 0.5]
    assert minmax([np.array([2.0, 2.0])], [0.5]).tolist() == [0.5, 0.5]
    assert minmax([np.array([0.0, 0.0])], [0.5], [0.0]).tolist() == [0.0, 0.0]
    assert minmax([np.array([NAN, NAN])], [0.5]).tolist() == [0.0, 0.0]


def test_rrf_adds_reciprocal_ranks_and_ties_share_the_better_one():
    fused = rrf([np.array([9.0, 5.0, 5.0, 1.0])], [1.0], k=60)
    assert fused.tolist() == [1 / 61, 1 / 62, 1 / 62, 1 / 64]


def test_rrf_ignores_missing_signals_and_those_at_the_floor():
    fused = rrf([np.array([0.0, 2.0]), np.array([NAN, 0.3])], [1.0, 2.0], [0.0, None])
    assert fused.tolist() == [0.0, 1 / 61 + 2 / 61]


@settings(max_examples=60, deadline=None)
@given(scores, st.floats(0.001, 1000), st.floats(-50, 50))
def test_minmax_does_not_depend_on_a_signals_scale_or_origin(signal, scale, shift):
    distinct = np.unique(np.round(signal, 2))
    fused = minmax([distinct], [1.0])
    np.testing.assert_allclose(minmax([distinct * scale + shift], [1.0]), fused, atol=1e-6)
    assert ((fused >= 0) & (fused <= 1)).all()


@settings(max_examples=60, deadline=None)
@given(scores, st.randoms(use_true_random=False))
def test_both_commute_with_the_order_of_the_candidates(signal, random):
    order = list(range(len(signal)))
    random.shuffle(order)
    for fuse in (minmax, rrf):
        np.testing.assert_array_equal(fuse([signal], [0.7])[order], fuse([signal[order]], [0.7]))


@settings(max_examples=60, deadline=None)
@given(scores)
def test_one_signal_alone_keeps_its_order(signal):
    for fuse in (minmax, rrf):
        fused = fuse([signal], [1.0])
        for i in range(len(signal)):
            better = signal > signal[i]
            assert (fused[better] >= fused[i]).all()
