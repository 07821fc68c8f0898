"""Claims that a later one replaces, and which claims of a window show."""

from __future__ import annotations

from dataclasses import replace

from backfill import visibility as vis
from backfill.ids import claim_id
from backfill.superseded import derive_superseded, subject_of
from backfill.types import Claim, ClaimKind, Occurrence, Superseded
from tests.test_visibility import PLACE

FIRST, SECOND, THIRD = b"1" * 16, b"2" * 16, b"3" * 16
PLACES: dict[bytes, list[Occurrence]] = {
    xid: [replace(PLACE, exchange_id=xid, started_at=day * 86_400_000_000)]
    for day, xid in enumerate((FIRST, SECOND, THIRD), 20_000)
}


def claim(text: str, xid: bytes = FIRST, kind: ClaimKind = "config", **changes: object) -> Claim:
    made = Claim(claim_id(text, kind, 1, [xid]), (xid,), "s", 0, text, kind, 1, "llm", 0, "f", "a.jsonl", 1)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_setting_that_changed_twice_is_a_chain() -> None:
    one = claim("RETRY_TIMEOUT_S was raised from 5 to 30 in src/net/client.py", FIRST)
    two = claim("set RETRY_TIMEOUT_S to 60 s", SECOND)
    three = claim("RETRY_TIMEOUT_S is 45 s now", THIRD)
    marks = derive_superseded([three, one, two], PLACES)
    assert set(marks) == {Superseded(one.claim_id, two.claim_id), Superseded(two.claim_id, three.claim_id)}


def test_words_must_be_equal_beside_the_values() -> None:
    old = claim("The nightly export runs at 02:30 on db-1", FIRST, "fact")
    new = claim("The nightly export runs at 04:00 on db-1", SECOND, "fact")
    alike = claim("The nightly import runs at 05:00 on db-1", THIRD, "fact")
    assert derive_superseded([old, new, alike], PLACES) == [Superseded(old.claim_id, new.claim_id)]


def test_contradictions_are_not_joined_by_likeness() -> None:
    yes = claim("The worker retries 3 times after a lost connection", FIRST, "fact")
    no = claim("The worker never retries after a lost connection", SECOND, "fact")
    assert derive_superseded([yes, no], PLACES) == []


def test_the_same_value_again_replaces_nothing() -> None:
    assert derive_superseded([claim("pool_size = 40", FIRST), claim("pool_size is 40", SECOND)], PLACES) == []


def test_kind_project_and_time_keep_claims_apart() -> None:
    old, new = claim("pool_size = 40", FIRST), claim("pool_size = 50", SECOND)
    assert derive_superseded([old, replace(new, kind="fact")], PLACES) == []
    elsewhere = {**PLACES, SECOND: [replace(PLACES[SECOND][0], project="other")]}
    assert derive_superseded([old, new], elsewhere) == []
    undated = {**PLACES, SECOND: [replace(PLACES[SECOND][0], started_at=None)]}
    assert derive_superseded([old, new], undated) == []
    together = {**PLACES, SECOND: [replace(PLACES[SECOND][0], started_at=PLACES[FIRST][0].started_at)]}
    assert derive_superseded([old, new], together) == []


def test_the_subject_of_other_kinds_keeps_the_order_of_words() -> None:
    assert subject_of(claim("build 1.2.3 waits for tests", kind="status")) == (("build", "waits", "tests"), ("1.2.3",))


def test_a_later_reading_of_a_window_hides_the_earlier_whatever_its_tier() -> None:
    early, late = claim("pool_size = 40", reading=1), claim("pool_size = 50", tier="extractive", reading=2)
    assert vis.visible_claims([early, late], {FIRST}, set()) == [late]


def test_per_window_tier_goes_before_generation_and_generation_before_fingerprint() -> None:
    low = claim("a = 1", tier="extractive", generation=9)
    old, new = claim("b = 1", fingerprint="z"), claim("c = 1", generation=1, fingerprint="a")
    assert vis.visible_claims([low, old, new], {FIRST}, set()) == [new]
    assert vis.visible_claims([low, replace(old, window=1), new], {FIRST}, set()) == [replace(old, window=1), new]


def test_windows_of_two_files_show_side_by_side_and_equal_claims_once() -> None:
    here, there = claim("a = 1"), claim("a = 1", source="copy.jsonl")
    other = claim("b = 1", source="copy.jsonl")
    assert vis.visible_claims([here, there, other], {FIRST}, set()) == [there, other]


def test_a_claim_of_a_forgotten_exchange_is_hidden() -> None:
    both = claim("a = 1", exchange_ids=(FIRST, SECOND))
    assert vis.visible_claims([both], {FIRST}, {SECOND}) == []
    assert vis.visible_claims([both], set(), set()) == []


def test_a_condition_or_a_wish_replaces_nothing() -> None:
    old, new = claim("pool_size = 40", FIRST), claim("if pool_size = 50 it would hold", SECOND)
    assert derive_superseded([old, new], PLACES) == []
