"""MinHash signatures as plain loops: the specification of the op."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]

EMPTY = 0xFFFFFFFF


def permutations(n_perm: int, seed: int) -> tuple[U32, U32]:
    """Factors (odd, so that each map is a bijection) and offsets [P] of `h -> a * h + b` modulo 2**32.

    Drawn as datasketch 2 draws them for its scheme "affine32", so that signatures are equal to that library's.
    """
    dice = np.random.RandomState(seed)
    factors = dice.randint(0, 1 << 31, n_perm, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return factors, dice.randint(0, 1 << 32, n_perm, dtype=np.uint32)


def mixed(value: int) -> int:
    """The finaliser of MurmurHash3 (32 bits, Austin Appleby, public domain): a bijection that spreads close values."""
    value ^= value >> 16
    value = value * 0x85EBCA6B & EMPTY
    value ^= value >> 13
    value = value * 0xC2B2AE35 & EMPTY
    return value ^ (value >> 16)


def signatures(shingles: U32, offsets: npt.NDArray[np.int64], n_perm: int, seed: int) -> U32:
    """[N, P]: for each set the least value of each permutation over it; EMPTY everywhere for an empty set.

    Broder 1997, "On the resemblance and containment of documents": two signatures agree at a place with the
    probability of the sets' Jaccard similarity.
    """
    factors, terms = (array.tolist() for array in permutations(n_perm, seed))
    out = np.full((len(offsets) - 1, n_perm), EMPTY, np.uint32)
    for n in range(len(offsets) - 1):
        values = [mixed(value) for value in shingles[offsets[n] : offsets[n + 1]].tolist()]
        for p in range(n_perm):
            out[n, p] = min(((factors[p] * value + terms[p]) & EMPTY for value in values), default=EMPTY)
    return out
