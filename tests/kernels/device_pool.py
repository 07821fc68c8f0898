"""pool_normalize_quantize in Triton against its reference: odd sizes, ties, empty masks, poisoned memory."""

from __future__ import annotations

import pytest
from backfill_kernels.pool_normalize_quantize import reference
from backfill_kernels.pool_normalize_quantize import triton as kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from on_device import DEVICE, poisoned, torch

pytestmark = pytest.mark.usefixtures("poisoned")
assert poisoned
SHAPES = [(1, 1, 1), (2, 3, 5), (5, 63, 60), (3, 17, 384), (2, 9, 1025), (1, 2, kernel.MAX_DIM), (4, 1, 7)]
HALVES = [(SHAPES[2], torch.float16), (SHAPES[3], torch.bfloat16)]


def inputs(shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(sum(shape))
    embeddings = torch.randn(shape, generator=dice).to(dtype)
    mask = torch.randint(0, 2, shape[:2], generator=dice)
    # What is masked out may be uninitialised memory.
    embeddings[mask == 0] = float("nan")
    return embeddings.to(DEVICE), mask.to(DEVICE)


def check(embeddings: torch.Tensor, mask: torch.Tensor) -> None:
    unit = reference.pool_normalize(embeddings, mask)
    rows, _ = kernel.pool(embeddings, mask, int8=False)
    assert rows.dtype == torch.float16
    assert rows.shape == unit.shape
    # Sums run in another order: a value next to a border may round to the neighbour.
    torch.testing.assert_close(rows.float(), unit.half().float(), atol=1e-6, rtol=2**-10)
    codes, scale = kernel.pool(embeddings, mask, int8=True)
    wanted, wanted_scale = reference.to_int8(unit)
    assert codes.dtype == torch.int8
    torch.testing.assert_close(scale, wanted_scale, atol=1e-9, rtol=1e-5)
    assert int((codes.int() - wanted.int()).abs().max() if codes.numel() else 0) <= 1


@pytest.mark.parametrize(("shape", "dtype"), [*((shape, torch.float32) for shape in SHAPES), *HALVES], ids=str)
def test_rows_are_those_of_the_reference(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    check(*inputs(shape, dtype))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.integers(1, 70), st.integers(1, 150))
def test_any_size_fits(n_rows: int, n_tokens: int, dim: int) -> None:
    check(*inputs((n_rows, n_tokens, dim)))


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (0, 0, 5)], ids=str)
def test_nothing_gives_zero_rows_or_none(shape: tuple[int, int, int]) -> None:
    embeddings = torch.zeros(shape, device=DEVICE)
    mask = torch.zeros(shape[:2], dtype=torch.int64, device=DEVICE)
    rows, _ = kernel.pool(embeddings, mask, int8=False)
    codes, scale = kernel.pool(embeddings, mask, int8=True)
    assert rows.shape == codes.shape == (shape[0], shape[2])
    assert not rows.any()
    assert not codes.any()
    assert scale.tolist() == [0.0] * shape[0]


def test_an_empty_mask_row_is_zero_beside_full_ones() -> None:
    embeddings = torch.full((3, 4, 6), float("nan"), device=DEVICE)
    mask = torch.zeros((3, 4), dtype=torch.bool, device=DEVICE)
    embeddings[1], mask[1] = 2.0, True
    rows, _ = kernel.pool(embeddings, mask, int8=False)
    codes, scale = kernel.pool(embeddings, mask, int8=True)
    assert rows[[0, 2]].tolist() == [[0.0] * 6] * 2
    assert rows[1].tolist() == torch.full((6,), 6**-0.5).half().tolist()
    assert codes.tolist() == [[0] * 6, [127] * 6, [0] * 6]
    assert scale.tolist()[::2] == [0.0, 0.0]


def test_codes_between_two_round_to_the_even_one() -> None:
    # Multiples of half a step below the greatest: 127, then n + 1/2 for n = 0, 1, 2, -1, -2.
    row = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5])
    codes, scale = kernel.pool(
        row[None, None].to(DEVICE), torch.ones((1, 1), dtype=torch.int32, device=DEVICE), int8=True
    )
    # The norm is no power of two, so a tie may have moved by one rounding; the middle of the range must not.
    assert codes[0, 0].item() == 127
    assert (codes[0].cpu() - torch.tensor([127, 0, 2, 2, 0, -2])).abs().max() <= 1
    torch.testing.assert_close(codes[0].cpu() * scale.cpu(), row / row.norm(), atol=scale.item() * 0.51, rtol=0)


def test_rows_that_do_not_lie_densely_are_taken() -> None:
    embeddings, mask = inputs((4, 10, 12))
    wide = torch.full((4, 20, 24), float("nan"), device=DEVICE)
    wide[:, ::2, ::2], spread = embeddings, torch.zeros((4, 20), dtype=torch.int64, device=DEVICE)
    spread[:, ::2] = mask
    check(wide[:, ::2, ::2], spread[:, ::2])
    check(embeddings.transpose(1, 2).contiguous().transpose(1, 2), mask)
