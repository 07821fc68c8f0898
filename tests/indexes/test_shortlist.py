"""The shortlist by signs: right where it claims to be exact, and near enough where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backfill.indexes.scattered import blocks
from backfill.indexes.shortlist import Shortlist, _least, _signs
from backfill.indexes.vectors import NumpyIndex, open_vectors, widened, write_vectors


def clustered(n: int, dim: int, seed: int) -> np.ndarray:
    """Unit rows around centres, 20 rows each, as texts around topics are."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(n // 20, 1), dim))
    rows = centres[rng.integers(len(centres), size=n)] + 0.8 * rng.standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f2")


@pytest.mark.parametrize("dim", [1, 17, 64, 100, 384])
def test_distances_are_numbers_of_different_signs(dim: int) -> None:
    rows, query = clustered(70, dim, dim), clustered(1, dim, 99)[0].astype(np.float32)
    expected = ((rows >= 0) != (query.astype("<f2") >= 0)).sum(axis=1)
    for files in ([rows], [rows[:1], rows[1:40], rows[40:40], rows[40:]]):
        shortlist = Shortlist(files)
        assert shortlist._distances(query).tolist() == expected.tolist()
        assert shortlist._distances_by_numpy(_signs(query.astype("<f2")[None], 8 * -(-dim // 64))).tolist() == (
            expected.tolist()
        )


@pytest.mark.parametrize("n", [1, 40, 1_000, 5_000])
@pytest.mark.parametrize("shift", [-60, 0, 60])
def test_the_least_distances_are_those_of_a_full_sort(n: int, shift: int) -> None:
    # The sample that tells about where they end may be better than the rest, or worse.
    distances = np.random.default_rng(n).binomial(384, 0.5, size=5_000).astype(np.int32)
    distances[::16] += shift
    assert _least(distances, n).tolist() == np.flatnonzero(distances <= np.sort(distances)[n - 1]).tolist()


def test_the_list_is_made_by_distance_and_then_by_signed_sums_within_the_mask() -> None:
    rows = clustered(500, 32, 5)
    shortlist, query = Shortlist([rows[:100], rows[100:]]), rows[3].astype(np.float32)
    distances = shortlist._distances(query)
    sums = np.where(rows >= 0, 1.0, 0.0) @ query.astype(np.float64)

    def expected(among: np.ndarray, n: int) -> list[int]:
        near = among[distances[among] <= np.sort(distances[among])[min(4 * n, len(among)) - 1]]
        return near[sums[near] >= np.sort(sums[near])[-n] - 1e-6].tolist()

    assert shortlist.nearest(query, 20).tolist() == expected(np.arange(500), 20)
    mask = np.zeros(500, bool)
    mask[200:260] = True
    assert shortlist.nearest(query, 10, mask).tolist() == expected(np.arange(200, 260), 10)
    assert shortlist.nearest(query, 60, mask).tolist() == list(range(200, 260))
    assert shortlist.nearest(query, 500).tolist() == list(range(500))
    assert shortlist.nearest(query, 5, np.zeros(500, bool)).tolist() == []


def test_ten_nearest_are_on_a_shortlist_of_400() -> None:
    rows = clustered(20_000, 384, 1)
    shortlist, exact = Shortlist([rows]), NumpyIndex(rows)
    found = []
    for noise, row in zip(clustered(30, 384, 2).astype(np.float32), range(100, 20_000, 600), strict=False):
        query = noise + rows[row].astype(np.float32)
        best = exact.search(query[None], 10)[1][0]
        found.append(np.isin(best, shortlist.nearest(query, 400)).mean())
    assert np.mean(found) >= 0.99


def test_no_rows_and_rows_of_a_mapped_file(tmp_path: Path) -> None:
    assert Shortlist([]).nearest(np.zeros(0, np.float32), 3).tolist() == []
    rows = clustered(50, 24, 6)
    write_vectors(rows, tmp_path / "v.f16")
    mapped = open_vectors(tmp_path / "v.f16", 24)
    assert Shortlist([mapped]).nearest(rows[7].astype(np.float32), 1).tolist() == [7]
    assert mapped.tobytes() == rows.tobytes()


def test_widening_is_exact_for_every_float16() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view("<f2").reshape(1, -1)
    expected = every.astype(np.float32)
    expected[np.isinf(expected)] = np.nan
    assert np.array_equal(widened(every), expected, equal_nan=True)


def test_signs_of_a_file_are_those_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.indexes.shortlist._READ_ROWS", 7)
    rows = clustered(50, 24, 3)
    write_vectors(rows, tmp_path / "rows.f16")
    mapped = open_vectors(tmp_path / "rows.f16", 24)
    assert Shortlist([mapped, rows[:9]])._codes.tolist() == Shortlist([rows, rows[:9]])._codes.tolist()
    (tmp_path / "rows.f16").write_bytes(b"")
    with pytest.raises(OSError, match="ends early"):
        list(blocks(mapped, 7))
