"""Rows of an automaton gathered by state and applied to logits, one launch for a batch, in Triton.

A program owns a block of one row's logits: it reads the block's bits by the row's state and stores -inf where they are
zero. Rows of few states are read again and again, so they come from the cache; written are at most N * V logits, read
none. Packing is that of vLLM and xgrammar: bit i of word w stands for token 32 * w + i.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 8192


@triton.jit
def _mask_rows(
    logits,  # [M, V] f2, bf16 or f4
    table,  # [S, W] int32
    states,  # [N] integers
    rows,  # [N] integers
    n_states,
    n_words,
    vocabulary,
    logits_row,
    table_row,
    BLOCK: tl.constexpr,  # noqa: N803 - a constant of the kernel
):
    n = tl.program_id(0)
    first = tl.program_id(1) * BLOCK
    state = tl.load(states + n).to(tl.int64)
    row = tl.load(rows + n).to(tl.int64)
    word = first // 32 + tl.arange(0, BLOCK // 32)
    # Bounds instead of a scalar condition: the interpreter turns a spread int1 into an integer.
    readable = tl.where((state >= 0) & (state < n_states), n_words, 0)
    packed = tl.load(table + state * table_row + word, mask=word < readable, other=0)
    allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
    token = first + tl.arange(0, BLOCK)
    writable = tl.where(state >= 0, vocabulary, 0)
    forbidden = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < writable)
    tl.store(logits + row * logits_row + token, float("-inf"), mask=forbidden)


def apply(logits: torch.Tensor, table: torch.Tensor, states: torch.Tensor, rows: torch.Tensor) -> None:
    """As the reference; a state beyond the table forbids every token, for a launch cannot raise."""
    if len(states) == 0 or logits.shape[1] == 0:
        return
    _mask_rows[(len(states), triton.cdiv(logits.shape[1], _BLOCK))](
        logits,
        table,
        states,
        rows,
        table.shape[0],
        table.shape[1],
        logits.shape[1],
        logits.stride(0),
        table.stride(0),
        BLOCK=_BLOCK,
    )
