"""Rows beyond the budget come back from the file as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill import rows as table_rows
from backfill.rows import canonical_order
from backfill.spill import exchange_rows, joined, occurrence_rows
from tests.random_rows import row_sets


@settings(max_examples=30, deadline=None)
@given(row_sets(), st.sampled_from([1, 1500, 1 << 20]))
def test_rows_come_back_in_order(sets: dict[str, list], budget: int) -> None:
    rows = sets["exchanges"] * 3
    spilled = exchange_rows(budget)
    spilled.extend(rows)
    assert (len(spilled), list(spilled)) == (len(rows), rows)
    assert spilled == rows
    assert [spilled[-i] for i in range(1, len(rows) + 1)] == rows[::-1]
    assert spilled[1:3] == rows[1:3]
    assert list(spilled.settled()) == rows
    with pytest.raises(IndexError):
        spilled[len(rows)]


def test_what_fits_stays_a_list() -> None:
    assert exchange_rows().settled() == []
    assert isinstance(exchange_rows().settled(), list)


@settings(max_examples=30, deadline=None)
@given(row_sets(), st.sampled_from([1, 2, 7]))
def test_rows_that_lie_elsewhere_have_the_order_of_a_list(sets: dict[str, list], run_rows: int) -> None:
    for name, spilled in (("exchanges", exchange_rows(1)), ("occurrences", occurrence_rows(1))):
        rows = sets[name] * 2 + sets[name][:3]
        spilled.extend(rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_rows, "RUN_ROWS", run_rows)
            order = canonical_order(name, spilled)
        assert [spilled[at] for at in order] == [rows[at] for at in canonical_order(name, rows)]


def test_parts_are_joined_in_order() -> None:
    whole = [[], [1, 2], [3]]
    assert list(joined(whole, occurrence_rows())) == [1, 2, 3]
    assert joined([[4]], occurrence_rows()) == [4]
