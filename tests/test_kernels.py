"""Operations of kernels/: each against plain arithmetic, with odd sizes and poisoned memory."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from backfill_kernels.pool_normalize_quantize import pool_normalize_quantize  # noqa: E402

SHAPES = [(1, 1, 1), (2, 3, 5), (5, 63, 60), (3, 17, 384)]


def plain(embeddings: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros((len(embeddings), embeddings.shape[2]))
    for b in range(len(embeddings)):
        kept = [embeddings[b, t].astype(np.float64) for t in range(embeddings.shape[1]) if mask[b, t]]
        mean = sum(kept) / len(kept) if kept else out[b]
        out[b] = mean / np.linalg.norm(mean) if np.any(mean) else 0.0
    return out


def inputs(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(shape[2])
    embeddings = rng.standard_normal(shape, dtype=np.float32)
    mask = rng.integers(0, 2, shape[:2])
    mask[:, 0] = 1
    # What is masked out may be uninitialised memory.
    embeddings[mask == 0] = np.nan
    return embeddings, mask


@pytest.mark.parametrize("shape", SHAPES)
def test_float16_is_the_rounded_unit_mean(shape: tuple[int, int, int]) -> None:
    embeddings, mask = inputs(shape)
    rows = pool_normalize_quantize(torch.from_numpy(embeddings), torch.from_numpy(mask))
    assert rows.dtype == torch.float16
    np.testing.assert_allclose(rows.numpy(), plain(embeddings, mask), atol=6e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_times_scale_is_the_unit_mean(shape: tuple[int, int, int]) -> None:
    embeddings, mask = inputs(shape)
    codes, scale = pool_normalize_quantize(torch.from_numpy(embeddings), torch.from_numpy(mask), "int8")
    assert codes.dtype == torch.int8
    assert scale.dtype == torch.float32
    error = np.abs(codes.numpy() * scale.numpy()[:, None] - plain(embeddings, mask))
    assert (error <= scale.numpy()[:, None] * 0.501).all()
    assert int(codes.abs().max()) == 127


def test_an_empty_mask_gives_a_zero_row() -> None:
    embeddings = torch.full((2, 4, 3), float("nan"))
    mask = torch.zeros((2, 4), dtype=torch.int64)
    assert pool_normalize_quantize(embeddings, mask).tolist() == [[0, 0, 0], [0, 0, 0]]
    codes, scale = pool_normalize_quantize(embeddings, mask, "int8")
    assert codes.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert scale.tolist() == [0, 0]


def test_half_precision_input_and_bool_masks_are_taken() -> None:
    embeddings = torch.tensor([[[3.0, 4.0], [9.0, 9.0]]], dtype=torch.bfloat16)
    mask = torch.tensor([[True, False]])
    np.testing.assert_allclose(pool_normalize_quantize(embeddings, mask).numpy(), [[0.6, 0.8]], atol=5e-4)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="are not"):
        pool_normalize_quantize(torch.zeros((2, 3, 4)), torch.zeros((2, 4)))
