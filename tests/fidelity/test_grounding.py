"""Asking for the beginnings of words gives what a search in the split and lowered text gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.fidelity.grounding import Words, flat_words, is_grounded, share_in

PIECES = st.sampled_from(
    ["retry", "Timeout", "retryTimeout", "HTTPError2Code", "a1B", "_", "-", " ", "\n", "/src/", ".", "é", "İ", "K",
     "straße", "日本", "x", "Xy", "fixed", "fixes", "5432"]
)  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=3), st.data())
def test_the_beginning_of_a_word_is_found_where_the_flat_text_has_it(texts: list[str], data: st.DataObject) -> None:
    flat = flat_words(texts)
    words = Words(texts)
    for word in flat.split():
        end = data.draw(st.integers(1, len(word)))
        assert words.begins(word[:end])
    start = data.draw(st.text("abcdefgimortuxy1235é日", min_size=1, max_size=6))
    assert words.begins(start) is (f" {start}" in flat)
    inside = data.draw(st.sampled_from(["timeout", "imeout", "error", "code", "rror2", "etryt", "src", "fix"]))
    assert words.begins(inside) is (f" {inside}" in flat)


@pytest.mark.parametrize(
    ("start", "there"),
    [("retr", True), ("timeo", True), ("retryt", False), ("imeout", False), ("client", True), ("lient", False)],
)
def test_compound_names_are_split_before_capitals(start: str, there: bool) -> None:
    assert Words(["retryTimeout in http_client"]).begins(start) is there


def test_a_summary_in_other_words_than_its_source_is_not_grounded() -> None:
    source = Words(["The proxy cut the upload after thirty seconds, so the limit was raised."])
    assert is_grounded("The upload was cut by the proxy after seconds.", source)
    assert not is_grounded("Quantum lattices improve throughput generally.", source)
    assert is_grounded("Fixed it.", source)
    assert share_in(["proxy", "lattice"], source) == 0.5
