from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from backfill import tables
from backfill.errors import ShardError
from backfill.totals import distinct, places
from tests.random_rows import row_sets


@settings(max_examples=20, deadline=None)
@given(row_sets())
def test_copies_in_several_tables_count_once(tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list]) -> None:
    folder = tmp_path_factory.mktemp("totals")
    rows = sets["occurrences"]
    tables.write_table(tables.OCCURRENCES, rows, folder / "a")
    tables.write_table(tables.OCCURRENCES, rows[::2], folder / "b")
    assert distinct(places([folder / "a", folder / "b"])) == {
        "exchanges": len({r.exchange_id for r in rows}),
        "occurrences": len({(r.agent, r.session_id, r.anchor, r.part) for r in rows}),
        "sessions": len({(r.agent, r.session_id) for r in rows}),
    }


def test_nothing_read_is_nothing_counted(tmp_path: Path) -> None:
    assert distinct(places([])) == {"exchanges": 0, "occurrences": 0, "sessions": 0}
    (tmp_path / "a").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ShardError, match="finished shard cannot be read"):
        places([tmp_path / "a"])
