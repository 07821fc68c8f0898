"""Exact vector search: FAISS and numpy give one answer, and the file is mapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backfill.errors import BundleError
from backfill.indexes.vectors import ExactIndex, NumpyIndex, VectorIndex, open_vectors

BOTH = pytest.mark.parametrize("make", [ExactIndex, NumpyIndex])
Make = Callable[[np.ndarray], VectorIndex]


def unit_rows(n: int, dim: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f2")


@BOTH
def test_the_best_rows_come_first(make: Make) -> None:
    rows = np.array([[1, 0], [0, 1], [0.6, 0.8]], "<f2")
    scores, found = make(rows).search(np.array([[0, 1], [1, 0]], np.float32), 2)
    assert found.tolist() == [[1, 2], [0, 2]]
    np.testing.assert_allclose(scores, [[1, 0.8], [1, 0.6]], atol=1e-3)


@BOTH
def test_ties_go_to_the_lower_row(make: Make) -> None:
    rows = np.tile(np.array([[0.6, 0.8], [1, 0]], "<f2"), (200, 1))
    _, found = make(rows).search(np.array([[0, 1]], np.float32), 5)
    assert found.tolist() == [[0, 2, 4, 6, 8]]


@BOTH
def test_a_mask_is_applied_before_ranking(make: Make) -> None:
    rows, mask = unit_rows(100, 8), np.zeros(100, bool)
    mask[[3, 50, 99]] = True
    scores, found = make(rows).search(rows[:2].astype(np.float32), 5, mask)
    assert [sorted(row) for row in found.tolist()] == [[-1, -1, 3, 50, 99]] * 2
    assert np.isneginf(scores[:, 3:]).all()
    assert make(rows).search(rows[:1].astype(np.float32), 2, np.zeros(100, bool))[1].tolist() == [[-1, -1]]


@BOTH
def test_fewer_rows_than_asked_for_and_none_at_all(make: Make) -> None:
    assert make(unit_rows(2, 4)).search(np.ones((1, 4), np.float32), 4)[1][0, 2:].tolist() == [-1, -1]
    empty = make(np.empty((0, 4), "<f2"))
    assert empty.search(np.ones((1, 4), np.float32), 3)[1].tolist() == [[-1, -1, -1]]
    assert len(empty.scores_all(np.ones(4, np.float32))) == empty.n_rows == 0


@BOTH
def test_damaged_numbers_are_never_returned(make: Make) -> None:
    rows = unit_rows(20, 4)
    rows[3] = np.nan
    _, found = make(rows).search(rows[:1].astype(np.float32), 20)
    assert sorted(found[0].tolist()) == [-1, *(i for i in range(20) if i != 3)]


@BOTH
def test_shapes_and_types_that_do_not_fit_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        make(unit_rows(3, 4)).search(np.ones((1, 5), np.float32), 1)
    with pytest.raises(ValueError, match="mask"):
        make(unit_rows(3, 4)).search(np.ones((1, 4), np.float32), 1, np.ones(2, bool))
    with pytest.raises(ValueError, match="not float16"):
        make(np.ones((3, 4), np.float32))


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (63, 60), (1000, 384), (5000, 17)])
def test_faiss_and_numpy_agree_to_the_bit(n: int, dim: int) -> None:
    rows = unit_rows(n, dim, seed=n)
    # Duplicates and near duplicates, as short answers make them.
    rows[n // 2 :] = rows[: n - n // 2]
    queries = unit_rows(5, dim, seed=1).astype(np.float32)
    mask = np.random.default_rng(2).random(n) < 0.5
    for chosen in (None, mask):
        for k in (1, 10, n):
            one, two = ExactIndex(rows).search(queries, k, chosen), NumpyIndex(rows).search(queries, k, chosen)
            assert one[0].tobytes() == two[0].tobytes()
            assert one[1].tobytes() == two[1].tobytes()
    np.testing.assert_allclose(
        ExactIndex(rows).scores_all(queries[0]), NumpyIndex(rows).scores_all(queries[0]), atol=1e-6
    )


def test_a_file_is_mapped_and_read_in_place(tmp_path: Path) -> None:
    rows = unit_rows(50, 8)
    (tmp_path / "v.f16").write_bytes(rows.tobytes())
    mapped = open_vectors(tmp_path / "v.f16", 8, 50)
    index = ExactIndex(mapped)
    assert not index._index.codes.is_owned
    assert index.search(rows[7:8].astype(np.float32), 1)[1].tolist() == [[7]]


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.f16").write_bytes(b"0" * 24)
    assert open_vectors(tmp_path / "v.f16", 4).shape == (3, 4)
    for dim, n_rows in [(5, None), (4, 2), (0, None)]:
        with pytest.raises(BundleError, match=r"v\.f16"):
            open_vectors(tmp_path / "v.f16", dim, n_rows)
    with pytest.raises(BundleError, match="cannot read"):
        open_vectors(tmp_path / "gone.f16", 4)
    (tmp_path / "empty.f16").write_bytes(b"")
    assert open_vectors(tmp_path / "empty.f16", 4, 0).shape == (0, 4)


@BOTH
def test_chosen_rows_score_as_in_a_search(make: Make) -> None:
    rows = unit_rows(60, 16, seed=3)
    index, query = make(rows), rows[7].astype(np.float32)
    scores, found = index.search(query[None], 60)
    assert index.scores_at(query, found[0]).tolist() == scores[0].tolist()
    assert len(index.scores_at(query, np.zeros(0, np.int64))) == 0
