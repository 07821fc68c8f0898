"""Bundles that mean harm: they end in a clear error or a right answer, within a limit of memory, and run nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundle_fixture import write_bundle
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
    from hashlib import sha256

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
