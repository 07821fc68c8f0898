"""Mean pooling, L2 normalisation and quantisation of token embeddings in one op.

Files: reference.py is the specification in plain torch, triton.py does it in one pass over memory on a GPU.
`pool_normalize_quantize` is the public function; it picks the path by where the tensors lie.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, overload

import torch
from backfill_kernels.pool_normalize_quantize import reference

__all__ = ["pool_normalize_quantize"]


@overload
def pool_normalize_quantize(
    embeddings: torch.Tensor, mask: torch.Tensor, output: Literal["float16"] = "float16"
) -> torch.Tensor: ...


@overload
def pool_normalize_quantize(
    embeddings: torch.Tensor, mask: torch.Tensor, output: Literal["int8"]
) -> tuple[torch.Tensor, torch.Tensor]: ...


def pool_normalize_quantize(
    embeddings: torch.Tensor, mask: torch.Tensor, output: Literal["float16", "int8"] = "float16"
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Token embeddings [B, T, D] (f2, bf16, f4) and mask [B, T] (bool or integer) to one vector a row.

    "float16" gives unit rows [B, D] float16; "int8" gives codes [B, D] int8 and scale [B] float32. An empty mask row
    gives a zero row. On CUDA the last bits may differ from the reference. Raises ValueError where the shapes do not
    fit each other.
    """
    if embeddings.ndim != 3 or mask.shape != embeddings.shape[:2]:
        raise ValueError(f"embeddings {tuple(embeddings.shape)} and mask {tuple(mask.shape)} are not [B, T, D], [B, T]")
    if embeddings.is_cuda and find_spec("triton") is not None:
        from backfill_kernels.pool_normalize_quantize import triton

        if embeddings.shape[2] <= triton.MAX_DIM:
            rows, scales = triton.pool(embeddings, mask, int8=output == "int8")
            return rows if output == "float16" else (rows, scales)
    unit = reference.pool_normalize(embeddings, mask)
    return reference.to_float16(unit) if output == "float16" else reference.to_int8(unit)
