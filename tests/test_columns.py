"""Parquet without pyarrow: equal to pyarrow's reading, only the row groups asked for, and safe on hostile files."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill import columns, parquet_footer
from backfill.columns import ParquetFile
from backfill.errors import BundleError
from backfill.parquet_footer import RowGroup
from backfill.parquet_pages import check_pages, zstd_bound
from backfill.thrift import ThriftReader, skip_value, thrift_bytes

N_ROWS = 1000
SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("open", pa.bool_()),
        ("n", pa.int32()),
        ("rooms", pa.list_(pa.struct([("key", pa.string()), ("paths", pa.list_(pa.string())), ("w", pa.float32())]))),
    ]
)


@cache
def table() -> pa.Table:
    rng = random.Random(3)
    rows = [
        {
            "id": i.to_bytes(16, "big"),
            "text": f"zeile {i} é\n" * rng.randrange(5),
            "at": None if i % 7 == 0 else i * 1_000_003,
            "day": None if i % 5 == 0 else i,
            "open": i % 2 == 0,
            "n": -i,
            "rooms": [{"key": f"k{j}", "paths": ["a"] * j, "w": 0.5} for j in range(i % 4)] if i % 11 else None,
        }
        for i in range(N_ROWS)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("columns") / "t.parquet"
    pq.write_table(table(), file, row_group_size=128, compression="zstd", data_page_size=512)
    return file


@cache
def expected(name: str) -> list:
    column = table()[name]
    if name in ("at", "day"):
        column = column.cast(pa.int64() if name == "at" else pa.int32())
    return column.to_pylist()


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_column_is_what_was_written(path: Path, name: str):
    assert ParquetFile(path).read([name])[name] == expected(name)


def test_columns_and_row_groups_are_chosen(path: Path):
    file = ParquetFile(path)
    assert file.names == SCHEMA.names
    assert file.n_rows == N_ROWS
    got = file.read(["rooms", "n"], [7, 1])
    assert list(got) == ["rooms", "n"]
    assert got["n"] == expected("n")[896:1000] + expected("n")[128:256]
    assert got["rooms"] == expected("rooms")[896:1000] + expected("rooms")[128:256]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.lists(st.integers(0, N_ROWS - 1), max_size=12))
def test_rows_at_gives_the_rows_at_their_positions(path: Path, wanted: list[int]):
    rows = ParquetFile(path).rows_at(["text", "at", "rooms"], wanted)
    assert set(rows) == set(wanted)
    for at, row in rows.items():
        assert row == {name: expected(name)[at] for name in ("text", "at", "rooms")}


def test_a_hit_decodes_its_row_group_alone(path: Path, monkeypatch: pytest.MonkeyPatch):
    cut = []
    real = ParquetFile._cut
    monkeypatch.setattr(ParquetFile, "_cut", lambda self, c, g: cut.append((list(c), list(g))) or real(self, c, g))
    ParquetFile(path).rows_at(["text"], [130, 131, 999])
    assert cut == [(["text"], [1]), (["text"], [7])]


def test_positions_outside_are_an_error(path: Path):
    with pytest.raises(BundleError, match="no row 1000"):
        ParquetFile(path).rows_at(["n"], [N_ROWS])
    with pytest.raises(BundleError, match="lacks the columns nope"):
        ParquetFile(path).read(["nope"])


def test_a_large_batch_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(columns, "BATCH_ROWS", 10)
    pq.write_table(table(), tmp_path / "t.parquet", row_group_size=300, compression="zstd")
    file = ParquetFile(tmp_path / "t.parquet")
    assert file.read(["n"])["n"] == expected("n")
    assert file.rows_at(["n"], [299, 300, 615])[615] == {"n": -615}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_other_ways_to_write_are_read_too(tmp_path: Path, version: str, dictionary: bool, compression: str):
    pq.write_table(
        table(), tmp_path / "t.parquet", compression=compression, data_page_version=version,
        use_dictionary=dictionary, write_page_index=True,
    )  # fmt: skip
    got = ParquetFile(tmp_path / "t.parquet").read(["text", "rooms"])
    assert got == {"text": expected("text"), "rooms": expected("rooms")}


def test_a_table_without_rows(tmp_path: Path):
    pq.write_table(SCHEMA.empty_table(), tmp_path / "t.parquet")
    file = ParquetFile(tmp_path / "t.parquet")
    assert (file.n_rows, file.read(["id"]), len(file.ids("id"))) == (0, {"id": []}, 0)


def id_table(tmp_path: Path, values: list[bytes]) -> ParquetFile:
    column = pa.array(values, pa.binary(16)) if all(len(v) == 16 for v in values) else pa.array(values, pa.binary())
    pq.write_table(pa.table({"id": column}), tmp_path / "ids.parquet", compression="zstd", row_group_size=2)
    return ParquetFile(tmp_path / "ids.parquet")


def test_ids_are_a_sequence(tmp_path: Path):
    ids = id_table(tmp_path, [bytes([n]) * 16 for n in (1, 2, 2, 255)]).ids("id")
    assert (len(ids), ids[-1], ids[1:3]) == (4, b"\xff" * 16, [b"\x02" * 16] * 2)
    assert list(ids) == [bytes([n]) * 16 for n in (1, 2, 2, 255)]
    with pytest.raises(IndexError):
        ids[4]


def test_an_id_of_another_length_is_damage(tmp_path: Path):
    ids = id_table(tmp_path, [b"a" * 16, b"b" * 16, b"short", b"d" * 16]).ids("id")
    assert ids[0] == b"a" * 16
    with pytest.raises(BundleError, match="damaged"):
        ids[3]
    with pytest.raises(BundleError, match="damaged"):
        list(ids)


def test_rows_that_were_read_are_remembered_and_stay_as_they_were(path: Path, monkeypatch: pytest.MonkeyPatch):
    file = ParquetFile(path)
    first = file.rows_at(["text", "at"], [5, 900])
    first[5]["text"] = "changed by the caller"
    monkeypatch.setattr(ParquetFile, "_cut", lambda *_: pytest.fail("decoded again"))
    again = file.rows_at(["text", "at"], [900, 5])
    assert again == {at: {"text": expected("text")[at], "at": expected("at")[at]} for at in (5, 900)}


def test_row_groups_are_matched_as_they_would_be_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def read(name: str) -> list[RowGroup]:
        return ParquetFile(tmp_path / name)._footer.groups

    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=90, compression="zstd")
    wide = table().set_column(1, "text", pa.array(["x" * 300 * (i % 97) for i in range(N_ROWS)]))
    pq.write_table(wide, tmp_path / "b.parquet", row_group_size=100, compression="zstd")
    matched = {name: read(name) for name in ("a.parquet", "b.parquet", "a.parquet")}
    assert len(parquet_footer._shapes) > 0
    monkeypatch.setattr(parquet_footer, "_WORTH_A_SHAPE", 1 << 30)
    parquet_footer._shapes.clear()
    assert {name: read(name) for name in matched} == matched
    assert [group.n_rows for group in matched["a.parquet"]] == [90] * 11 + [10]


def test_another_codec_is_refused(tmp_path: Path):
    pq.write_table(table(), tmp_path / "t.parquet", compression="snappy")
    with pytest.raises(BundleError, match="something else than zstd"):
        ParquetFile(tmp_path / "t.parquet").read(["n"])


def test_a_column_that_decodes_to_too_much_is_refused_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pq.write_table(pa.table({"t": ["x" * 5_000_000]}), tmp_path / "t.parquet", compression="zstd", use_dictionary=False)
    assert (tmp_path / "t.parquet").stat().st_size < 20_000
    monkeypatch.setattr(columns, "MAX_DECODED_BYTES", 1_000_000)
    with pytest.raises(BundleError, match="more than 1,000,000 bytes"):
        ParquetFile(tmp_path / "t.parquet").read(["t"])


def test_a_dictionary_that_unfolds_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pq.write_table(pa.table({"t": ["x" * 50_000] * 1000}), tmp_path / "t.parquet", compression="zstd")
    monkeypatch.setattr(columns, "MAX_DECODED_BYTES", 10_000_000)
    monkeypatch.setattr(columns, "BATCH_ROWS", 100)
    with pytest.raises(BundleError, match="decodes to more than"):
        ParquetFile(tmp_path / "t.parquet").read(["t"])


def test_a_page_whose_zstd_gives_more_than_it_says_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"t": ["x" * 5_000_000]}), tmp_path / "t.parquet", compression="zstd", use_dictionary=False)
    data = (tmp_path / "t.parquet").read_bytes()
    header = ThriftReader(data, 4)
    fields = header.struct()
    page = data[header.pos : header.pos + fields[3][1]]
    assert zstd_bound(memoryview(page)) >= 5_000_000
    liar = thrift_bytes({**fields, 2: (5, 1000)})
    with pytest.raises(BundleError, match="far more than it says"):
        check_pages(memoryview(liar + page), 6, 1 << 30)
    honest = thrift_bytes(fields)
    assert check_pages(memoryview(honest + page), 6, 1 << 30) == fields[2][1] > 5_000_000


@pytest.mark.parametrize("size", [0, 11, 100])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, size: int):
    (tmp_path / "t.parquet").write_bytes(b"x" * size)
    with pytest.raises(BundleError):
        ParquetFile(tmp_path / "t.parquet")
    with pytest.raises(BundleError, match="cannot open"):
        ParquetFile(tmp_path / "missing.parquet")


FUZZ = """
import random, sys
from pathlib import Path
from backfill.columns import ParquetFile
from backfill.errors import BundleError
data, out, refused = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), 0
for seed in range(120):
    rng = random.Random(seed)
    broken = bytearray(data)
    low = 0 if seed % 2 else len(data) - int.from_bytes(data[-8:-4], "little") - 8
    for _ in range(rng.randrange(1, 6)):
        broken[rng.randrange(low, len(data))] = rng.randrange(256)
    out.write_bytes(broken[: len(data) if seed % 5 else rng.randrange(len(data))])
    try:
        file = ParquetFile(out)
        file.read(file.names)
    except BundleError:
        refused += 1
print(refused)
"""


def test_damaged_files_give_bundle_errors_and_nothing_else(path: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(path), str(tmp_path / "broken")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 30


thrift_values = st.recursive(
    st.one_of(
        st.tuples(st.just(5), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(6), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(8), st.binary(max_size=40)),
        st.booleans().map(lambda b: (1 if b else 2, b)),
    ),
    lambda inner: st.tuples(st.just(12), st.dictionaries(st.integers(1, 40), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(1, 300), thrift_values, max_size=6))
def test_thrift_structs_round_trip(fields):
    data = thrift_bytes(fields)
    assert ThriftReader(data).struct() == fields
    assert skip_value(data + b"\x55", 0, 12) == len(data)
    for end in range(len(data)):
        with pytest.raises(BundleError):
            ThriftReader(data[:end]).struct()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=40), st.lists(st.booleans(), max_size=20))
def test_thrift_lists_round_trip(numbers, flags):
    fields = {1: (9, (5, numbers)), 2: (9, (1, flags))}
    data = thrift_bytes(fields)
    assert ThriftReader(data).struct() == fields
    assert skip_value(data, 0, 12) == len(data)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_thrift_of_any_bytes_ends(data):
    try:
        fields = ThriftReader(data).struct()
    except BundleError:
        return
    assert ThriftReader(thrift_bytes(fields)).struct() == fields


def test_times_are_exact(tmp_path: Path):
    at = pa.array([datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"at": at}), tmp_path / "t.parquet", compression="zstd")
    assert ParquetFile(tmp_path / "t.parquet").read(["at"])["at"] == [1772368215123456]
