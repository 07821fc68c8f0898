"""The scripts that break fixtures and that make the table of the documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.sources.test_traps import conversation


def ran(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / name)
    return subprocess.run([sys.executable, script, *args], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_fuzzer_draws_one_seed_again() -> None:
    done = ran("fuzz", "--once", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert (record["executions"], record["seeds"], record["findings"]) == (1, [3, 3], 0)


def test_the_table_says_what_became_of_every_record(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "s.jsonl").write_bytes(conversation().data())
    (source / "notes.md").write_bytes(b"just notes")
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- begin: scripts/format-table -->\nold\n<!-- end -->\nbelow\n")
    done = ran("format-table", str(source), "--into", str(page))
    assert done.returncode == 0, done.stderr
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("above", "below")
    assert "old" not in lines
    assert "| `claude_code` | 1 | 0.00 | 6 | 2 | 1 / 1 | part_of 6 |" in lines
    assert "| nobody's | 1 | 0.00 | 0 | 0 |  | skipped (not_transcript) |" in lines
    page.write_text("no marks")
    assert ran("format-table", str(source), "--into", str(page)).returncode == 2
