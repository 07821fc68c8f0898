"""The ledger's builder and its proof of balance."""

from __future__ import annotations

from dataclasses import dataclass

from backfill.ledger import Fate, LedgerBuilder, check
from backfill.types import LedgerRow

DIGEST = b"d" * 16
REF = b"r" * 16


@dataclass
class Part:
    exchange_id: bytes = b""


def row(start: int, end: int, state: str = "skipped", ref: bytes | None = None, digest: bytes = DIGEST) -> LedgerRow:
    return LedgerRow("a.jsonl", start, end, 1, state, "meta" if state == "skipped" else "", ref, digest)  # type: ignore[arg-type]


def test_neighbours_of_one_fate_are_one_run() -> None:
    builder, part = LedgerBuilder("a.jsonl"), Part()
    joined, meta = Fate("part_of", owner=part), Fate("skipped", "meta")
    for end, fate in ((10, joined), (20, joined), (30, meta), (40, Fate("skipped", "meta")), (50, joined)):
        builder.add(end, fate)
    part.exchange_id = REF
    assert [(r.byte_start, r.byte_end, r.n_records, r.state, r.ref) for r in builder.rows(55, DIGEST)] == [
        (0, 20, 2, "part_of", REF),
        (20, 40, 2, "skipped", None),
        (40, 55, 1, "part_of", REF),
    ]


def test_an_empty_file_is_one_row() -> None:
    assert LedgerBuilder("a.jsonl").rows(0, DIGEST) == [LedgerRow("a.jsonl", 0, 0, 0, "skipped", "empty", None, DIGEST)]


def test_a_copy_follows_its_original() -> None:
    command = Fate("skipped", "command")
    copy = Fate("duplicate", original=command)
    assert copy.outcome() == ("skipped", "command", None)
    command.settle("part_of", Part(REF))
    assert copy.outcome() == ("duplicate", "", REF)


def test_a_balanced_ledger_has_no_problems() -> None:
    rows = [row(0, 10, "part_of", REF), row(10, 25), row(0, 10, "part_of", REF, b"old" * 5 + b"x")]
    assert check(rows, {"a.jsonl": 25}, {REF}) == []


def test_gaps_overlaps_and_missing_references_are_named() -> None:
    assert check([row(0, 10), row(12, 20)], {"a.jsonl": 20}) == ["a.jsonl: bytes 10 to 12 are not accounted for once"]
    assert check([row(0, 10), row(8, 20)], {"a.jsonl": 20}) == ["a.jsonl: bytes 10 to 8 are not accounted for once"]
    assert check([row(0, 10)], {"a.jsonl": 20}) == ["a.jsonl: no reading covers its 20 bytes"]
    assert check([], {"a.jsonl": 20}) == ["a.jsonl: no reading covers its 20 bytes"]
    assert check([row(0, 20, "part_of", REF)], {"a.jsonl": 20}, set()) == [
        f"a.jsonl: byte 0 refers to {REF.hex()}, which does not exist"
    ]
    assert check([row(0, 20, "part_of")], {"a.jsonl": 20}) == [
        "a.jsonl: part_of at byte 0 has the wrong kind of reference"
    ]
    assert check([row(0, 20, "skipped", REF)], {"a.jsonl": 20}) == [
        "a.jsonl: skipped at byte 0 has the wrong kind of reference"
    ]
