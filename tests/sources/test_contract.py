"""What every reader must hold, over one whole fixture of each format.

A reader joins by a module NAME_files.py beside this one with its `CASES`. `said` are marks that stand once in the
fixture and must be found in the exchange that the ledger names for their bytes; `unsaid` must be in no exchange.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill.ledger import check
from backfill.sources import UnitResult, detect
from backfill.types import Exchange
from tests.claude_lines import read, texts
from tests.sources.contract import Case

QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=10)
CASES: tuple[Case, ...] = tuple(
    case
    for path in sorted(Path(__file__).parent.glob("*_files.py"))
    for case in import_module(f"tests.sources.{path.stem}").CASES
)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def stored(row: Exchange) -> str:
    """All text of a row."""
    tools = (text for t in row.tools for text in (t.name, t.input, t.head, t.tail))
    return "\n".join((row.user_text, row.agent_text, row.thinking, *tools))


def stated(result: UnitResult) -> list[tuple[str, str]]:
    """(user_text, agent_text) by place."""
    return texts(result)


def tiles(result: UnitResult, case: Case, size: int) -> bool:
    assert check(result.ledger, {case.source: size}, {e.exchange_id for e in result.exchanges}) == []
    return True


def of(case: Case, folder: Path, data: bytes) -> UnitResult:
    return read(folder, data, source=case.source)


@every_case
def test_it_is_claimed_by_its_content(case: Case) -> None:
    reader = detect(case.data, "some/other.name")
    assert reader is not None
    assert reader.name == case.agent


@every_case
def test_the_whole_fixture_is_read(tmp_path: Path, case: Case) -> None:
    result = of(case, tmp_path, case.data)
    assert result.agent == case.agent
    assert stated(result) == list(case.exchanges)
    assert tiles(result, case, len(case.data))
    assert {row.state for row in result.ledger} <= {"part_of", "skipped", "duplicate"}


@every_case
def test_what_is_said_is_found_in_its_exchange(tmp_path: Path, case: Case) -> None:
    result = of(case, tmp_path, case.data)
    rows = {e.exchange_id: stored(e) for e in result.exchanges}
    for mark in case.said:
        at = case.data.index(mark.encode())
        row = next(r for r in result.ledger if r.byte_start <= at < r.byte_end)
        assert row.ref is not None, f"{mark!r} is {row.state} {row.reason}"
        assert mark in rows[row.ref]
    for mark in case.unsaid:
        assert mark.encode() in case.data
        assert not any(mark in text for text in rows.values()), mark


@every_case
def test_a_file_cut_anywhere_is_accounted_for(tmp_path: Path, case: Case) -> None:
    steps = range(0, len(case.data), max(1, len(case.data) // 40))
    for size in steps:
        result = of(case, tmp_path, case.data[:size])
        assert tiles(result, case, size)


@every_case
def test_a_file_with_broken_bytes_is_accounted_for(tmp_path: Path, case: Case) -> None:
    chance = random.Random(7)
    for _ in range(12):
        data = bytearray(case.data)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert tiles(of(case, tmp_path, bytes(data)), case, len(data))


@every_case
@QUIET
@given(st.binary(max_size=300), st.integers(0, 1000))
def test_random_bytes_after_any_beginning(
    tmp_path_factory: pytest.TempPathFactory, case: Case, noise: bytes, part: int
) -> None:
    data = case.data[: len(case.data) * part // 1000] + noise
    path = tmp_path_factory.mktemp("noise")
    assert tiles(read(path, data, source=case.source, agent=case.agent), case, len(data))


@every_case
def test_a_growing_file_shows_the_same_exchanges_as_the_whole(tmp_path: Path, case: Case) -> None:
    if not case.appends:
        pytest.skip("the agent rewrites the whole file")
    whole = visible([of(case, tmp_path, case.data)])
    chance = random.Random(11)
    for _ in range(10):
        cuts = sorted(chance.randrange(len(case.data)) for _ in range(4))
        assert visible([of(case, tmp_path, case.data[:n]) for n in (*cuts, len(case.data))]) == whole


def visible(results: Iterable[UnitResult]) -> set[tuple[str, str, str, str]]:
    """(session, anchor, user_text, agent_text) of the newest reading of each key."""
    newest: dict[tuple[str, str, int], tuple[int, bytes]] = {}
    rows: dict[bytes, Exchange] = {}
    for result in results:
        rows |= {e.exchange_id: e for e in result.exchanges}
        for o in result.occurrences:
            key = (o.session_id, o.anchor, o.part)
            newest[key] = max(newest.get(key, (0, b"")), (o.n_records, o.exchange_id))
    shown = ((key, rows[exchange_id]) for key, (_, exchange_id) in newest.items())
    return {(key[0], key[1], row.user_text, row.agent_text) for key, row in shown}
