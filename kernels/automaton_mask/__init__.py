"""Token masks of automaton states, gathered by state and applied to logits where both lie.

Files: reference.py is the specification in plain torch, triton.py does it in one launch on a GPU. `automaton_mask` is
the public function; it picks the path by where the logits lie. Deliberately absent: the automaton; a state is a number
of a row.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from backfill_kernels.automaton_mask import reference

__all__ = ["automaton_mask"]


def automaton_mask(
    logits: torch.Tensor, table: torch.Tensor, states: torch.Tensor, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """Sets logits [M, V] (f2, bf16, f4) to -inf in place where a state's row of `table` forbids the token.

    `table` [S, W] int32 has a bit a token (bit i of word w: token 32 * w + i; 1: allowed), W >= V / 32. `states` [N]
    integers name the row of the table for logits row `rows` [N] (by default n for n, then N is M); a negative state
    leaves its logits as they are. All tensors lie on one device. Returns `logits`. Raises ValueError where shapes do
    not fit, and on the CPU IndexError on a state beyond the table, which on CUDA forbids every token.
    """
    if logits.ndim != 2 or table.ndim != 2 or table.dtype != torch.int32 or 32 * table.shape[1] < logits.shape[1]:
        raise ValueError(
            f"logits {tuple(logits.shape)} and table {tuple(table.shape)} {table.dtype} are not [M, V], [S, >= V / 32] "
            "of int32"
        )
    if rows is None:
        rows = torch.arange(len(logits), dtype=torch.int32, device=logits.device)
    if states.ndim != 1 or states.shape != rows.shape:
        raise ValueError(f"{tuple(states.shape)} states do not fit {tuple(rows.shape)} rows of logits")
    dense = logits.stride(1) == 1 and table.stride(1) == 1 and states.is_contiguous() and rows.is_contiguous()
    if logits.is_cuda and dense and find_spec("triton") is not None:
        from backfill_kernels.automaton_mask import triton

        triton.apply(logits, table, states, rows)
    else:
        reference.apply(logits, table, states, rows)
    return logits
