"""Rows of an automaton applied to logits in plain torch: the specification of the op."""

from __future__ import annotations

import torch


def apply(logits: torch.Tensor, table: torch.Tensor, states: torch.Tensor, rows: torch.Tensor) -> None:
    """Sets what a state forbids to -inf, in place: see `automaton_mask` for shapes."""
    vocabulary = logits.shape[1]
    bits = torch.arange(32, dtype=torch.int32, device=table.device)
    for state, row in zip(states.tolist(), rows.tolist(), strict=True):
        if state < 0:
            continue
        allowed = (table[state, :, None] >> bits) & 1  # [W, 32]
        logits[row].masked_fill_(allowed.reshape(-1)[:vocabulary] == 0, float("-inf"))
