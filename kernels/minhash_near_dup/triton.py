"""MinHash signatures in Triton: each set's shingles are read once, all permutations of them held in registers.

A program owns one set and a block of permutations; a shingle of 4 bytes costs P multiplications and minima, so that
arithmetic, not memory, is the limit. Integers wrap around modulo 2**32, so the values are the reference's to the bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl
from backfill_kernels.minhash_near_dup.reference import U32, permutations

_BLOCK_S = 64
_BLOCK_P = 128


@triton.jit
def _least(
    shingles,  # [S] uint32 in an int32 tensor
    offsets,  # [N + 1] int64
    factors,  # [P] uint32 in an int32 tensor
    terms,  # [P] uint32 in an int32 tensor
    out,  # [N, P] uint32 in an int32 tensor
    n_perm,
    BLOCK_S: tl.constexpr,  # noqa: N803 - constants of the kernel
    BLOCK_P: tl.constexpr,  # noqa: N803
):
    n = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    begin = tl.load(offsets + n)
    size = (tl.load(offsets + n + 1) - begin).to(tl.int32)
    a = tl.load(factors + p, mask=p < n_perm, other=0).to(tl.uint32, bitcast=True)
    b = tl.load(terms + p, mask=p < n_perm, other=0).to(tl.uint32, bitcast=True)
    least = tl.full((BLOCK_P,), 0xFFFFFFFF, tl.uint32)
    for first in range(0, size, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        h = tl.load(shingles + begin + s, mask=s < size, other=0).to(tl.uint32, bitcast=True)
        h = h ^ (h >> 16)
        h = h * tl.full((BLOCK_S,), 0x85EBCA6B, tl.uint32)
        h = h ^ (h >> 13)
        h = h * tl.full((BLOCK_S,), 0xC2B2AE35, tl.uint32)
        h = h ^ (h >> 16)
        permuted = h[:, None] * a[None, :] + b[None, :]
        permuted = tl.where((s < size)[:, None], permuted, tl.full((BLOCK_S, BLOCK_P), 0xFFFFFFFF, tl.uint32))
        least = tl.minimum(least, tl.min(permuted, axis=0))
    tl.store(out + n * n_perm + p, least.to(tl.int32, bitcast=True), mask=p < n_perm)


def signatures(shingles: U32, offsets: npt.NDArray[np.int64], n_perm: int, seed: int, device: str = "cuda") -> U32:
    """[N, P], equal to the reference's."""

    def there(values: U32) -> torch.Tensor:
        return torch.from_numpy(values.view(np.int32)).to(device)

    n_sets = len(offsets) - 1
    out = torch.empty((n_sets, n_perm), dtype=torch.int32, device=device)
    if n_sets and n_perm:
        _least[(n_sets, triton.cdiv(n_perm, _BLOCK_P))](
            there(np.ascontiguousarray(shingles)),
            torch.from_numpy(np.ascontiguousarray(offsets)).to(device),
            *map(there, permutations(n_perm, seed)),
            out,
            n_perm,
            BLOCK_S=_BLOCK_S,
            BLOCK_P=_BLOCK_P,
        )
    result: U32 = out.cpu().numpy().view(np.uint32)
    return result
