"""Vectors over several files as one space: plain scan, FAISS and shortlist rank alike; units may have several rows."""

from __future__ import annotations

import numpy as np
import pytest

from backfill import vector_space
from backfill.vector_space import VectorSpace

DIM = 48


def unit_rows(n: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f2")


def made() -> tuple[VectorSpace, list[np.ndarray], list[np.ndarray]]:
    """Two segments of 150 and 90 units with two rows each (rows of some hidden), and a file without rows."""
    files = [unit_rows(150, 1), unit_rows(150, 2), unit_rows(90, 3), unit_rows(90, 4), unit_rows(0, 5)]
    rng = np.random.default_rng(6)
    units = [rng.permutation(150), np.arange(150), 150 + rng.permutation(90), 150 + np.arange(90), np.zeros(0, int)]
    units[1][[3, 70]] = -1
    return VectorSpace(files, [u.astype(np.int64) for u in units], 240), files, units


def best_by_hand(files: list[np.ndarray], units: list[np.ndarray], query: np.ndarray) -> np.ndarray:
    best = np.full(240, -np.inf)
    for rows, of in zip(files, units, strict=True):
        for row, unit in zip(rows.astype(np.float64), of, strict=True):
            if unit >= 0:
                best[unit] = max(best[unit], row @ query)
    return best


def test_a_unit_scores_as_its_best_row() -> None:
    space, files, units = made()
    query = unit_rows(1, 9)[0].astype(np.float32)
    chosen = np.array([0, 3, 70, 149, 150, 239])
    np.testing.assert_allclose(space.scores(query, chosen), best_by_hand(files, units, query)[chosen], atol=1e-6)
    assert len(space.scores(query, np.zeros(0, np.int64))) == 0
    hidden = VectorSpace([unit_rows(2, 1)], [np.array([0, -1])], 2)
    assert np.isnan(hidden.scores(query, np.array([0, 1]))).tolist() == [False, True]


@pytest.mark.parametrize(("faiss_from", "shortlist_above"), [(1000, 1000), (0, 1000), (0, 0)])
def test_the_best_units_of_a_mask_are_found(
    faiss_from: int, shortlist_above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_space, "FAISS_FROM_ROWS", faiss_from)
    monkeypatch.setattr(vector_space, "SCANNED_BEFORE_IMPORT", 0)
    monkeypatch.setattr(vector_space, "SHORTLIST_ABOVE_ROWS", shortlist_above)
    space, files, units = made()
    for seed in range(8):
        query = unit_rows(1, 20 + seed)[0].astype(np.float32)
        mask = np.random.default_rng(seed).random(240) < 0.6
        best = np.where(mask, best_by_hand(files, units, query), -np.inf)
        assert space.candidates(query, mask, 12).tolist() == np.sort(np.argsort(-best)[:12]).tolist()
    assert space.candidates(query, mask, 240).tolist() == np.flatnonzero(mask).tolist()
    assert space.candidates(query, np.zeros(240, bool), 5).tolist() == []


def test_equal_units_at_the_cut_all_stay_and_damaged_rows_never_show() -> None:
    rows = np.tile(unit_rows(1, 1), (6, 1))
    rows[2] = np.inf
    space = VectorSpace([rows], [np.arange(6)], 6)
    query = rows[0].astype(np.float32)
    assert space.candidates(query, np.ones(6, bool), 2).tolist() == [0, 1, 3, 4, 5]


def test_a_space_without_files_finds_nothing() -> None:
    space = VectorSpace([], [], 3)
    assert space.candidates(np.zeros(DIM, np.float32), np.ones(3, bool), 2).tolist() == []
    assert np.isnan(space.scores(np.zeros(DIM, np.float32), np.arange(3))).all()
