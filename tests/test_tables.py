from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from backfill import tables
from backfill.errors import ShardError
from backfill.rows import sort_rows
from tests.random_rows import row_sets

CONTRACT = {
    "exchanges": "exchange_id content_id prev_content_id user_text agent_text part n_turns tokens_est thinking tools",
    "occurrences": "agent session_id anchor part scan_version open n_records exchange_id source byte_start byte_end "
    "parent_session project cwd branch title model started_at ended_at tz_assumed",
    "objects": "exchange_id exchange_core specific_context context_field context_start context_end room_assignments "
    "files_touched tier generation fingerprint tokens findings",
    "claims": "claim_id exchange_ids session_id window text kind date tier generation fingerprint",
    "rooms": "room_type room_key room_label project n_exchanges first_at last_at",
    "ledger": "source byte_start byte_end n_records state reason ref",
    "tombstones": "exchange_id reason",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_columns_are_those_of_the_contract(name: str) -> None:
    names = tables.TABLES[name].schema.names
    assert [n for n in names if n in CONTRACT[name].split()] == CONTRACT[name].split()


def test_types_are_those_of_the_contract() -> None:
    exchanges = tables.EXCHANGES.schema
    assert exchanges.field("exchange_id").type == pa.binary(16)
    assert exchanges.field("part").type == pa.int16()
    assert exchanges.field("tools").type.value_type.field("cut_bytes").type == pa.int64()
    assert tables.OCCURRENCES.schema.field("started_at").type == pa.timestamp("us", tz="UTC")
    rooms = tables.OBJECTS.schema.field("room_assignments").type.value_type
    assert rooms.field("relevance").type == pa.float32()
    assert tables.CLAIMS.schema.field("date").type == pa.date32()


@settings(max_examples=40, deadline=None)
@given(row_sets())
def test_rows_survive_and_order_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in sets.items():
        table = tables.TABLES[name]
        count = tables.write_table(table, rows, folder / "a")
        tables.write_table(table, list(reversed(rows)) + rows, folder / "b")
        assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
        assert tables.read_table(table, folder / "a") == sort_rows(name, rows)
        assert count == len(set(rows))


def test_files_are_zstd_without_pandas_metadata(tmp_path: Path) -> None:
    tables.write_table(tables.TOMBSTONES, [], tmp_path / "t")
    file = pq.ParquetFile(tmp_path / "t")
    assert b"pandas" not in (file.schema_arrow.metadata or {})
    assert file.metadata.num_rows == 0


def test_a_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(ShardError, match="cannot be read as exchanges"):
        tables.read_table(tables.EXCHANGES, tmp_path / "t")


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    tables.write_table(tables.TOMBSTONES, [], tmp_path / "t")
    with pytest.raises(ShardError):
        tables.read_table(tables.OBJECTS, tmp_path / "t")
