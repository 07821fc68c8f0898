"""Broken fixtures of every format never crash a reader and always tile; what `scripts/fuzz` found stays fixed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from backfill.ledger import check
from backfill.sources.base import parse_time
from backfill.trees import iso
from tests.claude_lines import read
from tests.sources.mutations import corpus, draw, examine
from tests.sources.small_files import CASES as SMALL
from tests.sources.test_archives import FILES, ends, zipped
from tests.sources.test_archives import read as read_archive
from tests.sources.test_contract import CASES


@pytest.mark.parametrize("start", range(0, 160, 40))
def test_a_file_broken_in_any_way_is_accounted_for(tmp_path: Path, start: int) -> None:
    found = {seed: problems for seed in range(start, start + 40) if (problems := examine(draw(seed), tmp_path))}
    assert found == {}


def test_the_drawing_reaches_every_format_and_repeats() -> None:
    assert draw(11) == draw(11)
    drawn = {draw(seed).case.name for seed in range(1200)}
    assert drawn == {case.name for case in corpus()}
    assert any(draw(seed).whole_lines for seed in range(40))


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, float("inf"), float("-inf"), float("nan")])
def test_a_number_beyond_any_time_is_none(value: float) -> None:
    assert parse_time(value, "UTC") == (None, False)


@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("0001-01-01T00:00:00", "Europe/Berlin"),
        ("0001-01-01T00:00:00+05:00", "UTC"),
        ("9999-12-31T23:59:59", "America/New_York"),
        ("9999-12-31T23:59:59.9999999Z", "UTC"),
    ],
)
def test_a_time_that_no_calendar_has_in_utc_is_none(value: str, zone: str) -> None:
    assert parse_time(value, zone) == (None, False)


def test_the_first_and_the_last_time_of_the_calendar_are_times() -> None:
    for value in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        at, _ = parse_time(value, "UTC")
        assert iso(at) == value


@pytest.mark.parametrize("given", [b"[]", b"{}", b"7"])
def test_a_value_of_another_type_costs_itself_alone(tmp_path: Path, given: bytes) -> None:
    values = re.compile(rb'(?<=:)\s*"(?:[^"\\\n]|\\.)*"')
    for case in CASES:
        for n, value in enumerate(values.finditer(case.data)):
            if n % (5 if given == b"[]" else 17):
                continue  # lists, which no set can look up, are the commonest fault
            data = case.data[: value.start()] + given + case.data[value.end() :]
            result = read(tmp_path, data, source=case.source, agent=case.agent)
            assert check(result.ledger, {case.source: len(data)}, {e.exchange_id for e in result.exchanges}) == []


def test_a_sender_that_is_a_list_is_skipped(tmp_path: Path) -> None:
    data = json.dumps({"conversations": [{"from": [], "value": "?"}, {"from": "human", "value": "Why?"}]}).encode()
    result = read(tmp_path, data, agent="sharegpt")
    assert [(r.state, r.reason) for r in result.ledger] == [("skipped", "empty"), ("part_of", "")]


def test_turns_of_a_mended_checkpoint_keep_their_place_in_it(tmp_path: Path) -> None:
    case = next(case for case in SMALL if case.agent == "fx")
    mended = case.data.replace(b'"state"', b'"note": "\\ud800", "state"', 1)  # read leniently, so written anew
    result = read(tmp_path, mended, source=case.source, agent="fx")
    assert check(result.ledger, {case.source: len(mended)}, {e.exchange_id for e in result.exchanges}) == []
    assert all(0 <= o.byte_start <= o.byte_end <= len(mended) for o in result.occurrences)
    assert len(result.occurrences) == len(case.exchanges)


def test_a_zip_member_before_the_beginning_of_its_file_is_damaged(tmp_path: Path) -> None:
    data = bytearray(zipped(FILES))
    at = data.rindex(b"PK\x01\x02")  # the last entry of the directory; its member's offset is at 42
    data[at + 42 : at + 46] = b"\x00\x00\x00\x00"
    end = data.rindex(b"PK\x05\x06")  # a directory that claims to begin later shifts every offset below zero
    data[end + 16 : end + 20] = (int.from_bytes(data[end + 16 : end + 20], "little") + 5000).to_bytes(4, "little")
    result = read_archive(tmp_path, bytes(data))
    assert {state for _, state, _ in ends(result).values()} <= {"container", "quarantined"}
    assert any(reason == "damaged" for _, _, reason in ends(result).values())
