"""Labels: names of rows by number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backfill.labels import Labels


@given(st.lists(st.lists(st.sampled_from(["a", "b", "", "ä/b"]), max_size=4), max_size=12))
def test_rows_are_found_by_any_of_their_names(cells: list[list[str]]):
    labels = Labels.of(cells)
    assert len(labels) == len(cells)
    assert len(set(labels.names)) == len(labels.names)
    for name in ("a", "ä/b", "none"):
        assert labels.rows_with(lambda n, name=name: n == name).tolist() == [name in cell for cell in cells]
    assert labels.rows_with(lambda _: True).tolist() == [bool(cell) for cell in cells]
