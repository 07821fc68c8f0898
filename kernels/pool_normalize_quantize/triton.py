"""Masked mean pooling, L2 normalisation and rounding in one pass over memory, in Triton.

A program owns one row: it reads the kept token embeddings once, holds the sum of D numbers in registers, and writes the
rounded row. Read are B * T_kept * D elements and the mask, written D bytes or halves a row. Sums run in another order
than the reference's, so last bits may differ. Deliberately absent: rows split over programs; a batch has more rows
than a GPU has multiprocessors, or the encoder before it is what takes the time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Numbers of one row that fit into registers beside a tile: 64 KiB of float32 with 8 warps.
MAX_DIM = 8192
_TILE = 4096
# 1.5 * 2**23: adding and taking it away rounds a float32 below 2**22 to the nearest integer, ties to even, as
# torch.round does; Triton's own rounding functions differ between back ends.
_ROUNDER = tl.constexpr(12582912.0)


@triton.jit
def _pool_rows(
    embeddings,  # [B, T, D] f2, bf16 or f4
    mask,  # [B, T] integers
    rows,  # [B, D] float16 or int8
    scales,  # [B] float32, written where INT8
    n_tokens,
    dim,
    embeddings_row,
    embeddings_token,
    mask_row,
    mask_token,
    INT8: tl.constexpr,  # noqa: N803 - constants of a kernel
    BLOCK_T: tl.constexpr,  # noqa: N803
    BLOCK_D: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    total = tl.zeros((BLOCK_D,), tl.float32)
    count = 0
    for first in range(0, n_tokens, BLOCK_T):
        t = first + tl.arange(0, BLOCK_T)
        kept = tl.load(mask + row * mask_row + t * mask_token, mask=t < n_tokens, other=0) != 0
        places = embeddings + row * embeddings_row + t[:, None].to(tl.int64) * embeddings_token + d[None, :]
        tile = tl.load(places, mask=kept[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32)
        total += tl.sum(tile, axis=0)
        count += tl.sum(kept.to(tl.int32), axis=0)
    mean = total / tl.maximum(count, 1).to(tl.float32)
    unit = mean / tl.maximum(tl.sqrt(tl.sum(mean * mean, axis=0)), 1e-12)
    if INT8:
        scale = tl.max(tl.abs(unit), axis=0) / 127.0
        codes = unit / tl.where(scale > 0, scale, 1.0)
        codes = tl.minimum(tl.maximum((codes + _ROUNDER) - _ROUNDER, -127.0), 127.0)
        tl.store(rows + row * dim + d, codes.to(tl.int8), mask=d < dim)
        tl.store(scales + row, scale)
    else:
        tl.store(rows + row * dim + d, unit.to(tl.float16), mask=d < dim)


def pool(embeddings: torch.Tensor, mask: torch.Tensor, *, int8: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [B, D] float16, or int8 with `int8`, and scale [B] float32 (not written without `int8`).

    Embeddings are [B, T, D] with D at most MAX_DIM, mask [B, T] bool or integer, both on one device.
    """
    n_rows, n_tokens, dim = embeddings.shape
    if embeddings.stride(2) != 1:
        embeddings = embeddings.contiguous()
    if mask.dtype == torch.bool:
        mask = mask.view(torch.uint8)
    rows = torch.empty((n_rows, dim), dtype=torch.int8 if int8 else torch.float16, device=embeddings.device)
    scales = torch.empty(n_rows, dtype=torch.float32, device=embeddings.device)
    if n_rows == 0 or dim == 0:
        return rows, scales.zero_()
    block_d = triton.next_power_of_2(dim)
    _pool_rows[(n_rows,)](
        embeddings,
        mask,
        rows,
        scales,
        n_tokens,
        dim,
        embeddings.stride(0),
        embeddings.stride(1),
        mask.stride(0),
        mask.stride(1),
        INT8=int8,
        BLOCK_T=max(1, _TILE // block_d),
        BLOCK_D=block_d,
        num_warps=8 if block_d > 1024 else 4,
    )
    return rows, scales
