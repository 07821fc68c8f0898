"""The references of automaton_mask and minhash_near_dup against plain arithmetic, through the public functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("datasketch", reason="datasketch is not installed")
from backfill_kernels.automaton_mask import automaton_mask  # noqa: E402
from backfill_kernels.minhash_near_dup import signatures  # noqa: E402


def table_of(allowed: list[set[int]], words: int) -> torch.Tensor:
    """Rows with a bit for every token that is allowed: bit i of word w is token 32 * w + i."""
    rows = [[sum(1 << i for i in range(32) if 32 * w + i in one) for w in range(words)] for one in allowed]
    return torch.tensor(rows, dtype=torch.int64).to(torch.int32)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_token_survives_exactly_where_its_state_allows_it(data: st.DataObject) -> None:
    vocabulary = data.draw(st.integers(1, 70))
    allowed = data.draw(st.lists(st.sets(st.integers(0, vocabulary - 1)), min_size=1, max_size=4))
    states = data.draw(st.lists(st.integers(-1, len(allowed) - 1), max_size=5))
    logits = torch.randn(len(states), vocabulary)
    masked = automaton_mask(logits.clone(), table_of(allowed, 3), torch.tensor(states, dtype=torch.int64))
    for row, state in enumerate(states):
        for token in range(vocabulary):
            kept = state < 0 or token in allowed[state]
            assert masked[row, token] == (logits[row, token] if kept else float("-inf"))


def test_what_does_not_fit_a_mask_is_refused() -> None:
    table, states = torch.zeros((2, 1), dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match="are not"):
        automaton_mask(torch.zeros(1, 33), table, states)
    with pytest.raises(ValueError, match="are not"):
        automaton_mask(torch.zeros(1, 32), table.long(), states)
    with pytest.raises(ValueError, match="do not fit"):
        automaton_mask(torch.zeros(2, 32), table, states)
    with pytest.raises(IndexError):
        automaton_mask(torch.zeros(1, 32), table, states + 2)


def test_signatures_agree_as_often_as_sets_are_alike() -> None:
    dice = np.random.default_rng(1)
    common = dice.integers(0, 1 << 32, 800, dtype=np.uint32)
    own = dice.integers(0, 1 << 32, 200, dtype=np.uint32)
    one, other = np.concatenate([common, own[:100]]), np.concatenate([common, own[100:]])
    rows = signatures(np.concatenate([one, other]), np.array([0, 900, 1800]), n_perm=1024)
    # Jaccard 800 / 1000; the deviation of 1,024 draws is .0125.
    assert abs(float((rows[0] == rows[1]).mean()) - 0.8) < 0.05


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 2, 1, 3]])
def test_offsets_that_do_not_cut_the_shingles_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="do not rise"):
        signatures(np.zeros(3, np.uint32), np.array(offsets, np.int64))
