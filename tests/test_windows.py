"""Windows of a session: greedy, and stable as the session grows."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.ids import digest_fields
from backfill.types import Occurrence
from backfill.windows import LEAD_EXCHANGES, MAX_EXCHANGES, MAX_TOKENS, Span, cut_session, sessions_of
from tests.test_visibility import PLACE


def place(number: int, *, n_records: int | None = None, growth: int = 0, **changes: object) -> Occurrence:
    """The exchange that is opened by record `number`; `growth` tells readings of one that was still open apart."""
    xid = digest_fields([str(number).encode(), str(growth).encode()])
    made = replace(
        PLACE, anchor=f"u{number:03d}", exchange_id=xid, byte_start=number * 100, byte_end=number * 100 + 99,
        n_records=n_records if n_records is not None else number * 2 + 2 + growth, started_at=number * 1_000_000,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def cut(places: list[Occurrence], sizes: dict[bytes, int] | int = 100) -> list[Span]:
    tokens = {p.exchange_id: sizes for p in places} if isinstance(sizes, int) else sizes
    return cut_session("s", "a.jsonl", places, tokens)


def test_a_window_holds_what_fits_and_is_never_empty() -> None:
    places = [place(n) for n in range(6)]
    sizes = dict(zip((p.exchange_id for p in places), (700, 400, 200, 5000, 100, 1100), strict=True))
    assert [[p.anchor for p in span.places] for span in cut(places, sizes)] == [
        ["u000", "u001"],
        ["u002"],
        ["u003"],
        ["u004", "u005"],
    ]


def test_many_short_exchanges_are_bounded_by_number() -> None:
    assert [len(span.places) for span in cut([place(n) for n in range(30)], 1)] == [MAX_EXCHANGES, MAX_EXCHANGES, 6]


def test_the_lead_is_the_end_of_the_window_before() -> None:
    first, second = cut([place(n) for n in range(4)], MAX_TOKENS // 3)
    assert (first.lead, [p.anchor for p in second.lead]) == ((), ["u001", "u002"][:LEAD_EXCHANGES])


def test_the_order_of_records_decides_in_one_file_or_many() -> None:
    late = place(0, n_records=90, source="b.jsonl")
    early = place(7, n_records=3)
    assert [p.anchor for p in cut([late, early])[0].places] == ["u007", "u000"]


def test_a_session_in_two_units_is_two() -> None:
    assert set(sessions_of([("a.jsonl", place(0)), ("copy.jsonl", place(0))])) == {
        ("a.jsonl", "s"),
        ("copy.jsonl", "s"),
    }


def test_an_exchange_that_outgrew_its_window_leaves_it_and_the_closed_one_counts_as_newer() -> None:
    before, open_ = place(0), place(1)
    grown = place(1, growth=1)
    sizes = {before.exchange_id: 1000, open_.exchange_id: 100, grown.exchange_id: 900}
    (early,) = cut([before, open_], sizes)
    late, last = cut([before, open_, grown], sizes)
    assert [p.exchange_id for p in early.places] == [before.exchange_id, open_.exchange_id]
    assert [p.exchange_id for p in late.places] == [before.exchange_id]
    assert (early.window, late.window, last.window) == (0, 0, 1)
    assert late.reading > early.reading


def test_a_better_reader_counts_as_newer() -> None:
    (old,), (new,) = cut([place(0)]), cut([place(0, scan_version=2, n_records=1)])
    assert new.reading > old.reading


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=40), st.data())
def test_windows_before_the_last_never_change_as_a_session_grows(weights: list[int], data: st.DataObject) -> None:
    places = [place(n) for n in range(len(weights))]
    sizes = {p.exchange_id: weight for p, weight in zip(places, weights, strict=True)}
    cut_at = data.draw(st.integers(1, len(places)))
    # The last exchange of the first reading was still open: it was shorter then.
    open_ = place(cut_at - 1, growth=-1)
    sizes[open_.exchange_id] = data.draw(st.integers(1, weights[cut_at - 1]))
    first = [*places[: cut_at - 1], open_]
    early, late = cut(first, sizes), cut([*first, *places[cut_at - 1 :]], sizes)
    assert late == cut(places, sizes)
    assert late[: len(early) - 1] == early[:-1]
    changed = late[len(early) - 1]
    assert changed.digest == early[-1].digest or changed.reading > early[-1].reading
