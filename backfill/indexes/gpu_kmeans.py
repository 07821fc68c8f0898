"""Centres of an IVF index by torch, where a GPU is there but faiss-gpu is not: the part of training that takes long.

Spherical k-means as FAISS trains IVF over inner products (rows go to the centre with the greatest product, centres are
means of length 1, ten rounds), but started from rows at equal distances, not from random ones. Products are made a tile
at a time: tile x k x 4 bytes. torch is imported inside, so that search does without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backfill.indexes.vectors import F32

ROUNDS = 10
# 65,536 centres: 2.1 GB of products a tile.
_TILE_ROWS = 8192


def centres(rows: F32, k: int, device: str = "cuda", rounds: int = ROUNDS) -> F32:
    """[k, D] float32 unit centres of rows [N, D]. Centres that get no row take the rows that fit worst.

    Raises ValueError where there are fewer rows than centres.
    """
    import torch

    if not 0 < k <= len(rows):
        raise ValueError(f"{k} centres of {len(rows)} rows")
    points = torch.from_numpy(rows).to(device)
    starts = torch.from_numpy(np.linspace(0, len(rows) - 1, k).astype(np.int64)).to(device)
    found = _unit(points[starts])
    for _ in range(rounds):
        sums = torch.zeros_like(found)
        counts = torch.zeros(k, device=device)
        fits = []
        for tile in points.split(_TILE_ROWS):
            best, owner = (tile @ found.T).max(dim=1)
            sums.index_add_(0, owner, tile)
            counts.index_add_(0, owner, torch.ones_like(best))
            fits.append(best)
        empty = torch.nonzero(counts == 0).flatten()
        sums[empty] = points[torch.cat(fits).topk(len(empty), largest=False).indices]
        found = _unit(sums)
    result: F32 = found.cpu().numpy()
    return result


def _unit(rows: Any) -> Any:
    import torch

    return torch.nn.functional.normalize(rows, dim=1)


def is_there() -> bool:
    """Whether torch is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
