"""Bundles that mean harm: they end in a clear error or a right answer, within a limit of memory, and run nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.bundle_fixture import seal, write_bundle
from tests.conftest import ROOT

PEAK_KB = 700_000  # the libraries alone take about 300 MB


def tried(tmp_path: Path, first: int, count: int) -> tuple[list[dict[str, object]], int]:
    """What ended in no error of ours, and the greatest memory of the process that tried, in KB."""
    source = write_bundle(tmp_path / "source").path
    (tmp_path / "scratch").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile_child", source, tmp_path / "scratch", str(first), str(count)],
        capture_output=True, text=True, cwd=ROOT, timeout=1500,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads(done.stdout.splitlines()[-1])
    return record["odd"], record["peak_kb"]


def test_a_liars_bundle_ends_in_a_clear_error(tmp_path: Path) -> None:
    odd, peak_kb = tried(tmp_path, 0, 40)
    assert odd == []
    assert peak_kb < PEAK_KB


@pytest.mark.slow
def test_many_liars(tmp_path: Path) -> None:
    odd, peak_kb = tried(tmp_path, 1000, 120)
    assert odd == []
    assert peak_kb < PEAK_KB


@pytest.mark.parametrize("version", ["0", "2", "99", '"1"', "null", "1.0"])
def test_other_formats_are_refused_with_what_to_do(tmp_path: Path, version: str) -> None:
    from backfill.bundle import Bundle
    from backfill.errors import BundleError
    from backfill.inputs import open_bundle

    bundle = write_bundle(tmp_path / "b").path
    data = (bundle / "manifest.json").read_bytes().replace(b'"format":1', f'"format":{version}'.encode(), 1)
    (bundle / "manifest.json").write_bytes(data)
    (bundle / "manifest.sha256").write_text(f"{sha256(data).hexdigest()}  manifest.json\n")
    for read in (Bundle.open, open_bundle):
        with pytest.raises(BundleError, match="this version reads 1") as refused:
            read(bundle)
        assert "version of backfill" in refused.value.hint


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("exchanges", "user_text", None),
        ("occurrences", "agent", None),
        ("occurrences", "project", None),
        ("objects", "tier", "oracle"),
        ("objects", "exchange_core", None),
        ("objects", "room_assignments", None),
        ("claims", "exchange_ids", []),
        ("claims", "tier", "oracle"),
        ("claims", "fingerprint", None),
        ("claims", "text", None),
        ("occurrences", "title", b"\xff"),
        ("claims", "fingerprint", b"\xff"),
    ],
)
def test_a_row_that_is_none_of_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, column: str, value: object
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from backfill.errors import BundleError
    from backfill.merge import merge
    from backfill.types import Claim
    from backfill.verify import verify_bundle
    from tests.test_merge import small_sets, union_of, write

    sets = small_sets()
    xid = sets["exchanges"][0].exchange_id
    sets["claims"] = [Claim(bytes(16), (xid,), "s1", 0, "Retries are 3.", "fact", None, "llm", 0, "f0", "a.jsonl", 1)]
    write(union_of(sets), tmp_path / "b")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))  # so nobody vouches for it
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_bytes())
    entry = next(entry for entry in manifest["files"] if entry["role"] == table)
    path = tmp_path / "b" / entry["path"]
    data = pq.read_table(path, partitioning=None)
    at = data.schema.get_field_index(column)
    cells = [value, *data.column(column).to_pylist()[1:]]
    if isinstance(value, bytes):  # no UTF-8, though the file says that it is text
        cells = [cell if isinstance(cell, bytes) else cell.encode() for cell in cells]
        values = pa.array(cells, pa.binary()).view(pa.string())
    else:
        values = pa.array(cells, data.schema.field(at).type)
    pq.write_table(data.set_column(at, data.schema.field(at), values), path, compression="zstd")
    entry["bytes"], entry["sha256"] = path.stat().st_size, sha256(path.read_bytes()).hexdigest()
    seal(tmp_path / "b", manifest)
    with pytest.raises(BundleError, match="none of its kind") as refused:
        merge([tmp_path / "b"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    assert "not honest" in refused.value.hint
    assert verify_bundle(tmp_path / "b").errors
