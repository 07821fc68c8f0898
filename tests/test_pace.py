"""Rates from event lines: five minutes and overall, pauses left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.pace import Pace
from backfill.worker_log import Event


def event(at: float, kind: str, stage: str = "distill", **stats: int) -> Event:
    return Event(at, kind, "a", "host", 1, stage, 1, "", dict(stats))


def rates(events: list[Event], now: float) -> tuple[dict[str, float], dict[str, float]]:
    pace = Pace()
    pace.add(events)
    return pace.rates(now)


def test_a_young_run_is_measured_since_it_began() -> None:
    lines = [event(1000, "take"), event(1010, "done", n=20, tokens_in=900, tokens_out=100)]
    assert rates(lines, now=1010) == ({"m5": 2.0, "overall": 2.0}, {"m5": 100.0, "overall": 100.0})
    assert rates(lines, now=1020)[0] == {"m5": 1.0, "overall": 2.0}


def test_five_minutes_forget_and_overall_does_not() -> None:
    lines = [event(0, "take"), event(100, "done", n=100)]
    lines += [event(at, "answers", n=1) for at in range(200, 1000, 100)]
    lines += [event(1000, "done", n=300)]
    assert rates(lines, now=1000)[0] == {"m5": 1.0, "overall": 0.4}


def test_a_pause_between_two_rounds_counts_as_five_minutes() -> None:
    before = [event(0, "take"), event(100, "done", n=100)]
    after = [event(86_400, "take"), event(86_500, "done", n=100)]
    assert rates(before + after, now=86_500)[0] == {"m5": 1.0, "overall": 0.4}


def test_other_stages_and_what_is_said_of_others_do_not_count() -> None:
    about = Event(500, "stuck", "b", "host", 2, "distill", 7, "", {}, about="a")
    lines = [
        event(0, "done", "scan", n=5),
        event(10, "take"),
        event(20, "done", n=10),
        about,
        event(900, "take", "embed"),
    ]
    assert rates(lines, now=20)[0] == {"m5": 1.0, "overall": 1.0}
    assert rates([], now=1) == ({"m5": 0.0, "overall": 0.0}, {"m5": 0.0, "overall": 0.0})


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 9)), min_size=1, max_size=30), st.integers(0, 30))
def test_feeding_by_parts_is_feeding_at_once(rows: list[tuple[float, int]], cut: int) -> None:
    lines = [event(at, "done", n=n) for at, n in sorted(rows)]
    pace = Pace()
    pace.add(lines[:cut])
    pace.add(lines[cut:])
    now = lines[-1].at
    assert pace.rates(now) == rates(lines, now)


def test_a_line_older_than_the_one_before_takes_no_time_back() -> None:
    lines = [event(100, "take"), event(200, "done", n=50), event(150, "done", n=50)]
    assert rates(lines, now=200)[0]["overall"] == pytest.approx(1.0)
