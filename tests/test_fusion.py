"""Fusion: the stated values, and laws over random signals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.fusion import (
    FUSIONS,
    NORMALIZATIONS,
    Scores,
    Signal,
    combmnz,
    fuse,
    lift_sessions,
    normalize,
    rrf,
    weighted,
)

NAN = float("nan")
scores = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20).map(lambda v: np.array(v, np.float64))
KINDS = [("rrf", "minmax"), *((kind, norm) for kind in ("weighted", "combmnz") for norm in NORMALIZATIONS)]


def of(*values: float, weight: float = 1.0, floor: float | None = None) -> Signal:
    return Signal(np.array(values, np.float64), weight, floor)


def test_minmax_stretches_each_signal_to_0_and_1_and_weighs_it():
    words, near = [0.0, 2.0, 4.0], [0.9, 0.1, 0.5]
    assert weighted([of(*words, weight=0.5), of(*near, weight=0.5)]).tolist() == [0.5, 0.25, 0.75]
    assert weighted([of(*words), of(*near, weight=0.0)]).tolist() == [0.0, 0.5, 1.0]


def test_what_a_candidate_lacks_counts_as_nothing():
    fused = weighted([of(NAN, 2.0, 4.0, weight=0.5), of(1.0, 0.0, NAN, weight=0.5)])
    assert fused.tolist() == [0.5, 0.0, 0.5]
    assert normalize(of(NAN, NAN), "zscore").tolist() == [0.0, 0.0]


def test_minmax_floor_keeps_what_all_candidates_have():
    assert normalize(of(3.0, 4.0, floor=0.0), "minmax").tolist() == [0.75, 1.0]
    assert normalize(of(3.0, 4.0), "minmax").tolist() == [0.0, 1.0]


def test_minmax_counts_from_the_zero_whatever_else_is_a_candidate():
    def near(*values: float) -> Signal:
        return Signal(np.array(values, np.float64), zero=0.2)

    assert normalize(near(0.6, 0.4, 0.1), "minmax").tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert normalize(near(0.6, 0.4), "minmax").tolist() == pytest.approx([1.0, 0.5])
    # Where none is above it, they are still told apart.
    assert normalize(near(0.1, 0.0, -0.1), "minmax").tolist() == pytest.approx([1.0, 0.5, 0.0])
    floored = Signal(np.array([3.0, 4.0]), floor=0.0, zero=3.5)
    assert normalize(floored, "minmax").tolist() == [0.75, 1.0]


def test_minmax_of_a_signal_without_difference():
    assert normalize(of(2.0, 2.0, floor=0.0), "minmax").tolist() == [1.0, 1.0]
    assert normalize(of(2.0, 2.0), "minmax").tolist() == [1.0, 1.0]
    assert normalize(of(0.0, 0.0, floor=0.0), "minmax").tolist() == [0.0, 0.0]


def test_p95_divides_by_the_maximum_of_few_results_and_by_the_percentile_of_many():
    assert normalize(of(1.0, 2.0, 4.0, 0.0, -1.0), "p95").tolist() == [0.25, 0.5, 1.0, 0.0, 0.0]
    many = normalize(of(*range(1, 102)), "p95")
    # The 95th percentile of 1..101 is 96: what lies above it is tied at 1.
    assert many[:96].tolist() == [n / 96 for n in range(1, 97)]
    assert many[96:].tolist() == [1.0] * 5
    assert normalize(of(-3.0, -1.0), "p95").tolist() == [0.0, 0.0]


def test_zscore_counts_deviations_and_gives_the_least_to_what_is_missing():
    assert normalize(of(1.0, 3.0, NAN), "zscore").tolist() == [-1.0, 1.0, -1.0]
    assert normalize(of(2.0, 2.0), "zscore").tolist() == [0.0, 0.0]


def test_combmnz_multiplies_by_the_number_of_signals_that_found_it():
    words, near = of(0.0, 2.0, 4.0, floor=0.0), of(0.0, 1.0, NAN)
    # Found by: near alone, both, words alone.
    assert combmnz([words, near]).tolist() == [0.0, (0.5 + 1.0) * 2, 1.0]


def test_combmnz_counts_a_signals_own_list_alone():
    listed = Signal(np.array([1.0, 2.0]), found=np.array([False, True]))
    assert combmnz([listed, of(1.0, 2.0, floor=0.0)]).tolist() == [0.5, 4.0]


def test_rrf_adds_reciprocal_ranks_and_ties_share_the_better_one():
    assert rrf([of(9.0, 5.0, 5.0, 1.0)], k=60).tolist() == [1 / 61, 1 / 62, 1 / 62, 1 / 64]
    assert rrf([of(9.0, 5.0)], k=1).tolist() == [1 / 2, 1 / 3]


def test_rrf_ignores_missing_signals_and_those_at_the_floor():
    assert rrf([of(0.0, 2.0, floor=0.0), of(NAN, 0.3, weight=2.0)]).tolist() == [0.0, 1 / 61 + 2 / 61]


def test_a_session_lifts_its_other_exchanges():
    sessions = np.array([7, 9, 7, 9], np.uint64)
    lifted = lift_sessions(np.array([1.0, 0.2, 0.1, 0.3]), sessions, 0.5)
    assert lifted.tolist() == [1.5, 0.2 + 0.15, 0.6, 0.3 + 0.15]
    plain = np.array([1.0])
    assert lift_sessions(plain, sessions[:1], 0.0) is plain
    assert len(lift_sessions(np.zeros(0), np.zeros(0, np.uint64), 0.6)) == 0


def test_fuse_picks_by_name():
    pair = [of(1.0, 2.0, floor=0.0), of(0.1, 0.3)]
    assert FUSIONS == ("weighted", "combmnz", "rrf")
    assert fuse(pair, fusion="rrf", rrf_k=5).tolist() == rrf(pair, 5).tolist()
    assert fuse(pair, fusion="combmnz", normalization="p95").tolist() == combmnz(pair, "p95").tolist()
    assert fuse(pair, fusion="weighted", normalization="zscore").tolist() == weighted(pair, "zscore").tolist()


@settings(max_examples=60, deadline=None)
@given(scores, st.floats(0.001, 1000), st.floats(-50, 50))
def test_minmax_does_not_depend_on_a_signals_scale_or_origin(signal: Scores, scale: float, shift: float):
    distinct = np.unique(np.round(signal, 2))
    fused = weighted([Signal(distinct)])
    np.testing.assert_allclose(weighted([Signal(distinct * scale + shift)]), fused, atol=1e-6)
    assert ((fused >= 0) & (fused <= 1)).all()


@pytest.mark.parametrize(("fusion", "normalization"), KINDS)
@settings(max_examples=30, deadline=None)
@given(scores, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_does_not_matter(fusion: str, normalization: str, signal: Scores, random):
    order = list(range(len(signal)))
    random.shuffle(order)
    straight = fuse([Signal(signal, 0.7)], fusion=fusion, normalization=normalization)
    shuffled = fuse([Signal(signal[order], 0.7)], fusion=fusion, normalization=normalization)
    np.testing.assert_allclose(straight[order], shuffled, atol=1e-9)


@pytest.mark.parametrize(("fusion", "normalization"), KINDS)
@settings(max_examples=30, deadline=None)
@given(scores)
def test_one_signal_alone_keeps_its_order(fusion: str, normalization: str, signal: Scores):
    fused = fuse([Signal(signal)], fusion=fusion, normalization=normalization)
    for i in range(len(signal)):
        better = signal > signal[i]
        assert (fused[better] >= fused[i] - 1e-12).all()
