"""Cells out of single pages equal those of whole row groups, whatever lies in them and however it was written."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill import tables, text_pages
from backfill.columns import ParquetFile
from backfill.errors import BundleError
from backfill.parquet_pages import check_pages
from backfill.recent import Recent

SCHEMA = tables.EXCHANGES.schema
N_ROWS = 600


@cache
def rows() -> pa.Table:
    """Short texts, one of 300 KB, nulls and empty ones; ids rise."""
    texts = [f"zeile {i} \u00e9 " * (i * 7 % 90) for i in range(N_ROWS)]
    texts[77], texts[78] = "lang " * 60_000, None  # type: ignore[call-overload]
    plain = {
        "exchange_id": [i.to_bytes(16, "big") for i in range(N_ROWS)],
        "user_text": texts,
        "agent_text": texts[::-1],
    }
    return pa.Table.from_pylist(
        [{name: values[i] for name, values in plain.items()} | {"thinking": ""} for i in range(N_ROWS)], schema=SCHEMA
    )


def write(path: Path, **layout: object) -> ParquetFile:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", write_statistics=False, **layout) as writer:
        writer.write_table(rows(), row_group_size=tables.VERBATIM_ROW_GROUP)
    return ParquetFile(path)


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> ParquetFile:
    return write(tmp_path_factory.mktemp("pages") / "exchanges.parquet", **tables._layout(tables.EXCHANGES))


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_pages, "_recent_cells", Recent(text_pages.MAX_RECENT_CHARS))


def expected(name: str, row: int) -> object:
    return rows().column(name)[row].as_py()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(tables.PAGED_TEXTS), st.integers(0, N_ROWS - 1)), max_size=12))
def test_cells_are_those_of_the_table(paged: ParquetFile, wanted: list[tuple[str, int]]):
    found = text_pages.read_cells([(paged, name, row) for name, row in wanted])
    assert found == {(paged, name, row): expected(name, row) for name, row in wanted}


def test_only_the_pages_of_the_cells_are_decoded(paged: ParquetFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ParquetFile, "_batches", lambda *_: pytest.fail("a row group was read"))
    decoded = []
    real = ParquetFile.decoded
    monkeypatch.setattr(ParquetFile, "decoded", lambda self, small: decoded.append(len(small)) or real(self, small))
    text_pages.read_cells([(paged, "user_text", 5), (paged, "agent_text", 5), (paged, "user_text", 400)])
    assert len(decoded) == 1
    # Three pages of at most 16 KiB and what of a text lies over, before compression.
    assert decoded[0] < 3 * 2 * tables.PAGE_BYTES


def test_cells_of_several_files_are_decoded_at_once_and_remembered(
    tmp_path: Path, paged: ParquetFile, monkeypatch: pytest.MonkeyPatch
):
    other = write(tmp_path / "other.parquet", **tables._layout(tables.EXCHANGES))
    calls = []
    real = ParquetFile.decoded
    monkeypatch.setattr(ParquetFile, "decoded", lambda self, small: calls.append(self) or real(self, small))
    cells = [(file, "user_text", row) for file in (other, paged) for row in (599, 0, 300)]
    first = text_pages.read_cells(cells)
    assert first == {cell: expected("user_text", cell[2]) for cell in cells}
    assert text_pages.read_cells(cells) == first
    assert len(calls) == 1


def test_a_chunk_is_walked_no_further_than_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = write(tmp_path / "walked.parquet", **tables._layout(tables.EXCHANGES))
    headers = []
    real = ParquetFile.read_bytes
    monkeypatch.setattr(
        ParquetFile, "read_bytes", lambda self, start, end: headers.append(end - start) or real(self, start, end)
    )
    walked = []
    for row in (0, 250, 100, 251):
        headers.clear()
        assert text_pages.read_cells([(file, "agent_text", row)]) == {
            (file, "agent_text", row): expected("agent_text", row)
        }
        walked.append(headers.count(text_pages._HEADER_BYTES))
    assert walked[0] == 1 < walked[1]
    assert walked[2] == 0, "what was walked is remembered"
    assert walked[3] <= 1


def test_pages_beyond_a_run_are_decoded_in_the_next(paged: ParquetFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_pages, "_MAX_RUN_BYTES", 40_000)
    cells = [(paged, "agent_text", row) for row in range(0, N_ROWS, 9)]
    assert text_pages.read_cells(cells) == {cell: expected("agent_text", cell[2]) for cell in cells}


@pytest.mark.parametrize(
    "layout",
    [
        {"use_dictionary": True},
        {"use_dictionary": False, "data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"user_text": "DELTA_BYTE_ARRAY"}},
    ],
)
def test_other_layouts_are_read_by_row_groups(tmp_path: Path, layout: dict[str, object]):
    file = write(tmp_path / "exchanges.parquet", **layout)
    cells = [(file, "user_text", row) for row in (0, 77, 78, 300, 599)]
    assert text_pages.read_cells(cells) == {cell: expected("user_text", cell[2]) for cell in cells}


def test_what_is_not_there_is_an_error(paged: ParquetFile):
    for cell in ((paged, "user_text", N_ROWS), (paged, "user_text", -1), (paged, "no_text", 0)):
        with pytest.raises(BundleError):
            text_pages.read_cells([cell])


# Always the same examples: of a thousand damaged files one has levels that end before their values, over which arro3
# 0.9 aborts the process from Rust code that cannot unwind (lab-notes.md).
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(4, 1 << 17), st.integers(0, 255)), min_size=1, max_size=20))
def test_damaged_bytes_are_an_error_or_another_text(
    tmp_path_factory: pytest.TempPathFactory, paged: ParquetFile, changes: list[tuple[int, int]]
):
    data = bytearray(paged.path.read_bytes())
    for at, byte in changes:
        data[at % (len(data) - 8)] = byte
    path = tmp_path_factory.mktemp("damaged") / "exchanges.parquet"
    path.write_bytes(data)
    try:
        file = ParquetFile(path)
        text_pages.read_cells([(file, name, row) for name in ("user_text", "agent_text") for row in (0, 77, 300)])
    except BundleError:
        pass


@pytest.mark.parametrize("field", [b"\x55\x02", b"\x51", b"\x59\x05"], ids=["number", "boolean", "list"])
def test_a_page_header_of_other_types_is_an_error(field: bytes):
    """Type and sizes of a page, and its version 2 header (field 8), which one flipped byte makes something else."""
    with pytest.raises(BundleError, match="damaged"):
        check_pages(memoryview(b"\x15\x06\x15\x00\x15\x00" + field + b"\x00"), 6, 1 << 20)
