"""Rows beyond the budget come back from the file as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.spill import ExchangeRows
from tests.random_rows import row_sets


@settings(max_examples=30, deadline=None)
@given(row_sets(), st.sampled_from([1, 1500, 1 << 20]))
def test_rows_come_back_in_order(sets: dict[str, list], budget: int) -> None:
    rows = sets["exchanges"] * 3
    spilled = ExchangeRows(budget)
    spilled.extend(rows)
    assert (len(spilled), list(spilled)) == (len(rows), rows)
    assert spilled == rows
    assert [spilled[-i] for i in range(1, len(rows) + 1)] == rows[::-1]
    assert spilled[1:3] == rows[1:3]
    assert list(spilled.settled()) == rows
    with pytest.raises(IndexError):
        spilled[len(rows)]


def test_what_fits_stays_a_list() -> None:
    assert ExchangeRows().settled() == []
    assert isinstance(ExchangeRows().settled(), list)
