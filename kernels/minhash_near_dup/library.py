"""MinHash signatures by datasketch, on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from backfill_kernels.minhash_near_dup.reference import U32


def signatures(shingles: U32, offsets: npt.NDArray[np.int64], n_perm: int, seed: int) -> U32:
    """[N, P], equal to the reference's."""
    from datasketch import MinHash

    first = MinHash(n_perm, seed, hashfunc=int, scheme="affine32")
    out = np.empty((len(offsets) - 1, n_perm), np.uint32)
    for n, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        sketch = MinHash(n_perm, seed, hashfunc=int, scheme="affine32", permutations=first.permutations)
        sketch.update_batch(shingles[begin:end].tolist())
        out[n] = sketch.hashvalues
    return out
