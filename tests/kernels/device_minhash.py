"""minhash_near_dup in Triton against its reference and against datasketch, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from backfill_kernels.minhash_near_dup import library, reference
from backfill_kernels.minhash_near_dup import triton as kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from on_device import DEVICE, poisoned

pytestmark = pytest.mark.usefixtures("poisoned")
assert poisoned


def packed(sets: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    flat = np.array([value for one in sets for value in one], np.uint32)
    return flat, np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)


def check(sets: list[list[int]], n_perm: int, seed: int = 1) -> np.ndarray:
    shingles, offsets = packed(sets)
    ours = kernel.signatures(shingles, offsets, n_perm, seed, DEVICE)
    assert ours.dtype == np.uint32
    np.testing.assert_array_equal(ours, reference.signatures(shingles, offsets, n_perm, seed))
    np.testing.assert_array_equal(ours, library.signatures(shingles, offsets, n_perm, seed))
    return ours


@pytest.mark.parametrize(("size", "n_perm"), [(1, 1), (63, 63), (64, 126), (65, 128), (200, 129), (7, 256)])
def test_signatures_are_those_of_the_reference(size: int, n_perm: int) -> None:
    dice = np.random.default_rng(size)
    check([dice.integers(0, 1 << 32, n).tolist() for n in (size, 0, 3)], n_perm, seed=n_perm)


def test_greatest_and_least_values_wrap_around() -> None:
    check([[0], [0xFFFFFFFF], [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]], 128)


def test_repetition_and_order_change_nothing() -> None:
    once = check([[5, 9, 7]], 128)
    np.testing.assert_array_equal(once, check([[7, 7, 5, 9, 9, 5]], 128))


def test_no_sets_and_empty_sets() -> None:
    assert check([], 16).shape == (0, 16)
    assert check([[], []], 16).tolist() == [[reference.EMPTY] * 16] * 2


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=80), max_size=5), st.integers(1, 140))
def test_any_sets_fit(sets: list[list[int]], n_perm: int) -> None:
    check(sets, n_perm)
