"""Detection and reading of values of any type: none may stop a scan."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from backfill.ledger import check
from backfill.sources import READERS, detect
from tests.claude_lines import read
from tests.sources.cli_files import CASES, jsonl
from tests.sources.contract import Case

_VALUES: tuple[Any, ...] = (
    None,
    0,
    1.5,
    "",
    "user",
    "session",
    True,
    [],
    [1],
    [[]],
    {},
    {"type": []},
    {"role": {}},
    [{"role": {}}],
)


def odd(chance: random.Random, value: Any) -> Any:
    """The value with some parts replaced by values of other types."""
    if chance.random() < 0.25:
        return chance.choice(_VALUES)
    if isinstance(value, dict):
        return {key: odd(chance, inner) for key, inner in value.items()}
    return [odd(chance, inner) for inner in value] if isinstance(value, list) else value


def test_records_of_odd_types_are_claimed_or_not_but_never_raise() -> None:
    chance = random.Random(5)
    names = {reader.name for reader in READERS}
    records = [json.loads(line) for case in CASES if case.appends for line in case.data.splitlines()]
    keys = sorted({key for record in records for key in record})
    for _ in range(4_000):
        lines = [odd(chance, chance.choice(records)) for _ in range(chance.randrange(1, 4))]
        lines.append({chance.choice(keys): chance.choice(_VALUES) for _ in range(4)})
        chance.shuffle(lines)
        reader = detect("\n".join(map(json.dumps, lines)).encode(), "any.jsonl")
        assert reader is None or reader.name in names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_of_odd_types_are_read_or_kept_aside(tmp_path: Path, case: Case) -> None:
    chance = random.Random(9)
    for _ in range(12):
        if case.appends:
            lines = [odd(chance, json.loads(line)) for line in case.data.splitlines()]
            data = jsonl(*(chance.sample(lines, len(lines)) if chance.random() < 0.5 else lines))
        else:
            data = json.dumps(odd(chance, json.loads(case.data))).encode()
        result = read(tmp_path, data, source=case.source, agent=case.agent)
        assert check(result.ledger, {case.source: len(data)}, {e.exchange_id for e in result.exchanges}) == []
