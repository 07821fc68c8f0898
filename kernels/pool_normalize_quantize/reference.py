"""Masked mean pooling, L2 normalisation and rounding in plain torch: the specification of the op."""

from __future__ import annotations

import torch


def pool_normalize(embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Unit rows [B, D] float32: the mean of the token embeddings [B, T, D] where mask [B, T] is not zero.

    A row whose mask is empty, or whose mean is zero, gives a zero row. What stands at masked places is never read
    into the result, not even as NaN. Mean pooling as in Sentence-BERT (arXiv 1908.10084), section 3.
    """
    keep = mask.bool().unsqueeze(-1)  # [B, T, 1]
    total = embeddings.float().masked_fill(~keep, 0.0).sum(dim=1)  # [B, D]
    mean = total / keep.sum(dim=1).clamp(min=1)  # [B, D]
    return mean / torch.linalg.vector_norm(mean, dim=1, keepdim=True).clamp(min=1e-12)


def to_float16(unit: torch.Tensor) -> torch.Tensor:
    """[B, D] float16, rounded to nearest even."""
    return unit.half()


def to_int8(unit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [B, D] int8 in -127..127 and scale [B] float32 with codes * scale ~ unit; a zero row has scale 0."""
    scale = unit.abs().amax(dim=1) / 127.0  # [B]
    step = torch.where(scale > 0, scale, torch.ones_like(scale)).unsqueeze(-1)
    return torch.round(unit / step).clamp(-127, 127).to(torch.int8), scale
