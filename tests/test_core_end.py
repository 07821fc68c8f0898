"""Ends that the bound on words cut off: what goes, what stays."""

from __future__ import annotations

import json

import pytest
from exchanges import make_exchange
from hypothesis import given
from hypothesis import strategies as st

from backfill.core_end import closed
from backfill.extractive import candidates
from backfill.fidelity.grounding import Words
from backfill.schema import Rejection, expand
from backfill.wire import MAX_CORE_WORDS

OPENING = "The reviewer of the change found that sessions which cross midnight"
SEEN = Words(
    [f"{OPENING} are two sessions, for the id holds a date, as `check_date.py` says in src/dates. Sessions break."]
)


def core(tail: str) -> str:
    """A core of exactly as many words as the bound lets through, `tail` standing last."""
    lead = OPENING.split()
    room = MAX_CORE_WORDS - len(tail.split())
    return " ".join((lead + ["date"] * room)[:room] + tail.split())


def ending(tail: str) -> str:
    """What is left of the tail after the last filling word."""
    made = closed(core(tail), SEEN)
    return made.rpartition(" date")[2].strip()


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("were being treated as twoparateessions.", "were being treated."),
        ("cross midnight.", "cross midnight."),
        ("holds the id in check_date.py.", "holds the id in check_date.py."),
        ("holds the id, as `check_date.py`.", "holds the id, as `check_date.py`."),
        ("sessions break. This matchesthenolint.", "sessions break."),
        ("sessions break. We need to ensure that-shadow-ops-!", "sessions break. We need to ensure."),
        ("sessions break (content checks.", "sessions break (content."),
        ("found that the registryMu.", "found."),
        ("does not address.", ""),
    ],
)
def test_a_word_that_the_text_lacks_goes_and_so_does_what_led_up_to_it(tail: str, left: str) -> None:
    assert ending(tail).lstrip(".") == left


def test_a_core_below_the_bound_is_as_it_was() -> None:
    text = "The change makes twoparateessions of the"
    assert closed(text, SEEN) == text


def test_a_core_beyond_the_bound_was_not_cut_by_it() -> None:
    text = " ".join([*OPENING.split(), *["date"] * MAX_CORE_WORDS, "for the nightly deployments."])
    assert closed(text, SEEN) == text


def test_a_cut_answer_becomes_an_object_without_the_glued_word() -> None:
    row = make_exchange(
        "The reviewer found a bug where sessions that cross midnight get two ids, why does that happen here?",
        "The id holds the date, so sessions that cross midnight were being treated as two separate sessions. Fixed.",
    )
    said = (
        "The reviewer found a bug where sessions that cross midnight get two ids, the id holds the date, "
        "so sessions were treated as twoparateessions."
    )
    assert len(said.split()) == MAX_CORE_WORDS
    wire = json.dumps({"c": said, "x": 0, "r": ["concept:session_ids"]})
    made = expand(wire, row, candidates(row), (), generation=0, fingerprint="f")
    assert not isinstance(made, Rejection)
    assert made.exchange_core.endswith("so sessions were treated.")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1), min_size=20, max_size=30))
def test_nothing_is_added_but_a_mark(words: list[str]) -> None:
    text = " ".join(words)
    made = closed(text, SEEN)
    assert text.startswith((made.removesuffix("."), made))
