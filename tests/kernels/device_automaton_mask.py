"""automaton_mask in Triton against its reference, bit for bit: odd vocabularies, free rows, NaN, poisoned tables."""

from __future__ import annotations

import pytest
from backfill_kernels.automaton_mask import reference
from backfill_kernels.automaton_mask import triton as kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import DEVICE, torch

BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def check(logits: torch.Tensor, table: torch.Tensor, states: list[int], rows: list[int]) -> torch.Tensor:
    """Compares as integers, so that NaN and -0.0 count too; returns the masked logits."""
    ours, wanted = logits.clone(), logits.clone()
    names = (torch.tensor(values, dtype=torch.int32, device=DEVICE) for values in (states, rows))
    states_, rows_ = names
    kernel.apply(ours, table, states_, rows_)
    reference.apply(wanted, table, states_, rows_)
    assert torch.equal(ours.view(BITS[logits.dtype]), wanted.view(BITS[logits.dtype]))
    return ours


def made(
    n_rows: int, vocabulary: int, n_states: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    logits = torch.randn((n_rows, vocabulary), generator=dice).to(dtype)
    if logits.numel():
        logits.view(-1)[:: max(1, logits.numel() // 7)] = float("nan")
        logits.view(-1)[-1] = -0.0
    table = torch.randint(-(2**31), 2**31, (n_states, (vocabulary + 31) // 32), generator=dice, dtype=torch.int64)
    return logits.to(DEVICE), table.to(torch.int32).to(DEVICE)


SIZES = [1, 31, 32, 33, 255, 8191, 8192, 8193, 151_936]
HALVES = [(33, torch.float16), (49_153, torch.float16), (33, torch.bfloat16), (8193, torch.bfloat16)]


@pytest.mark.parametrize(("vocabulary", "dtype"), [*((n, torch.float32) for n in SIZES), *HALVES], ids=str)
def test_logits_are_those_of_the_reference(vocabulary: int, dtype: torch.dtype) -> None:
    logits, table = made(5, vocabulary, 3, dtype, vocabulary)
    masked = check(logits, table, [0, 2, -1, 2, 1], [0, 1, 2, 3, 4])
    assert torch.equal(masked[2].nan_to_num(5.0), logits[2].nan_to_num(5.0)), "a free row is left alone"


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_any_batch_fits(data: st.DataObject) -> None:
    vocabulary, n_rows, n_states = (data.draw(st.integers(1, top)) for top in (300, 6, 5))
    logits, table = made(n_rows, vocabulary, n_states, torch.float32, data.draw(st.integers(0, 99)))
    names = data.draw(st.lists(st.tuples(st.integers(-1, n_states - 1), st.integers(0, n_rows - 1)), max_size=9))
    check(logits, table, [state for state, _ in names], [row for _, row in names])


def test_rows_are_named_in_any_order_and_others_are_left_alone() -> None:
    logits, table = made(4, 70, 2, torch.float32, 3)
    table[0], table[1] = 0, -1
    masked = check(logits, table, [1, 0], [3, 1])
    assert torch.equal(masked[[0, 2, 3]].nan_to_num(5.0), logits[[0, 2, 3]].nan_to_num(5.0))
    assert torch.all(masked[1] == float("-inf"))


def test_an_empty_batch_and_an_empty_vocabulary_do_nothing() -> None:
    logits, table = made(3, 40, 2, torch.float32, 1)
    check(logits, table, [], [])
    check(logits[:, :0], table, [0, 1, 1], [0, 1, 2])


def test_a_state_beyond_the_table_forbids_everything() -> None:
    logits, table = made(1, 64, 2, torch.float32, 1)
    table.fill_(-1)
    kernel.apply(logits, table, *(torch.tensor([n], device=DEVICE) for n in (2, 0)))
    assert torch.all(logits == float("-inf"))


def test_rows_of_a_wider_table_and_of_wider_logits_are_taken() -> None:
    logits, table = made(3, 90, 4, torch.float32, 9)
    wide = torch.full((3, 200), float("nan"), device=DEVICE)
    wide[:, :90] = logits
    stored = torch.zeros((4, 11), dtype=torch.int32, device=DEVICE)
    stored[:, :3] = table
    states, rows = (torch.tensor(values, dtype=torch.int64, device=DEVICE) for values in ([3, 0, 1], [0, 1, 2]))
    kernel.apply(wide[:, :90], stored[:, :3], states, rows)
    wanted = logits.clone()
    reference.apply(wanted, table, states, rows)
    assert torch.equal(wide[:, :90].nan_to_num(5.0), wanted.nan_to_num(5.0))
    assert torch.all(wide[:, 90:].isnan()), "nothing beyond the vocabulary is written"
