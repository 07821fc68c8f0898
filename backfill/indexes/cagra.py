"""HNSW whose links a GPU finds by cuVS (CAGRA, arXiv 2308.15136) through faiss-gpu-cuvs, searched on the CPU.

Minutes instead of hours for millions of rows. The rows of the index are float32, four times the bytes of the 8-bit
codes that `ann` otherwise takes. Deliberately absent: searching on a GPU. No machine of this project's tests has one:
they run this with a stand-in for the GPU's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backfill.indexes.vectors import F16

# At the lowest level HNSW keeps twice its M; cuVS prunes to it from twice as many.
_M = 32
_GRAPH_DEGREE, _BEFORE_PRUNING = 2 * _M, 4 * _M


def is_there() -> bool:
    """Whether FAISS is built with cuVS and sees a GPU."""
    import faiss

    return hasattr(faiss, "GpuIndexCagra") and getattr(faiss, "get_num_gpus", lambda: 0)() > 0


def build(files: Sequence[F16]) -> Any:
    """An HNSW index over the rows of all files, numbered through them in order; N x D x 4 bytes of GPU memory."""
    import faiss

    rows = np.concatenate([np.asarray(matrix, np.float32) for matrix in files])
    config = faiss.GpuIndexCagraConfig()
    config.graph_degree, config.intermediate_graph_degree = _GRAPH_DEGREE, _BEFORE_PRUNING
    dim = rows.shape[1]
    on_gpu = faiss.GpuIndexCagra(faiss.StandardGpuResources(), dim, faiss.METRIC_INNER_PRODUCT, config)
    on_gpu.train(rows)
    index = faiss.IndexHNSWCagra(dim, _M, faiss.METRIC_INNER_PRODUCT)
    on_gpu.copyTo(index)
    return index
