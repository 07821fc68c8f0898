"""MinHash signatures of sets of shingles, for finding near copies.

Files: reference.py is the specification as loops, library.py the CPU path (datasketch), triton.py the GPU's; all three
give the same bytes. `signatures` is the public function. Deliberately absent: shingling, and what is done with
signatures.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["signatures"]


def signatures(
    shingles: npt.NDArray[np.uint32],
    offsets: npt.NDArray[np.int64],
    *,
    n_perm: int = 128,
    seed: int = 1,
    device: Literal["cpu", "cuda"] = "cpu",
) -> npt.NDArray[np.uint32]:
    """Signatures [N, P] uint32 of N sets: set n holds the hashes `shingles[offsets[n]:offsets[n + 1]]`.

    `shingles` [S] uint32 may repeat; an empty set has 2**32 - 1 everywhere. The values depend on the sets, `n_perm`
    and `seed` alone, not on the device. Raises ValueError where the offsets do not cut `shingles` into runs.
    """
    whole = offsets.ndim == 1 and len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(shingles)
    if not whole or np.any(np.diff(offsets) < 0):
        raise ValueError(f"offsets do not rise from 0 to the {len(shingles)} shingles")
    if device == "cuda" and find_spec("triton") is not None:
        from backfill_kernels.minhash_near_dup import triton

        return triton.signatures(shingles, offsets, n_perm, seed)
    from backfill_kernels.minhash_near_dup import library

    return library.signatures(shingles, offsets, n_perm, seed)
