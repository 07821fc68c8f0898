"""What `scan` says of how far the transcripts reach, and how it ends when something does not hold."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from backfill import scan as scanning
from backfill.cli import main
from backfill.sources import UnitResult
from backfill.types import LedgerRow
from tests.claude_lines import ClaudeFile
from tests.sources.cli_files import CASES


def session(name: str, prompt: str = "", day: str = "01") -> bytes:
    """A session with one exchange, or opened and closed again."""
    f = ClaudeFile(session=name)
    if prompt:
        f.user(prompt, timestamp=f"2026-03-{day}T10:00:00.000Z")
        f.agent("Yes.", timestamp=f"2026-03-{day}T10:00:05.000Z")
    else:
        f.user("<command-name>/exit</command-name>")
    return f.data()


def scanned(capsys: pytest.CaptureFixture[str], *sources: Path, out: Path, code: int = 0) -> dict[str, Any]:
    assert main(["scan", *map(str, sources), "--out", str(out), "--json"]) == code
    (line,) = capsys.readouterr().out.splitlines()
    record: dict[str, Any] = json.loads(line)
    return record


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude" / "projects" / "-shop"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(session("s-a", "Where is the lock?", "03"))
    (folder / "b.jsonl").write_bytes(session("s-b", "And the key?", "02"))
    (folder / "copy.jsonl").write_bytes(session("s-a", "Where is the lock?", "03"))
    (folder / "c.jsonl").write_bytes(session("s-c"))
    return tmp_path / ".claude"


def test_sessions_on_disk_and_read_and_the_oldest_date(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = scanned(capsys, home / "projects", out=tmp_path / "run")["reach"]["claude_code"]
    assert (found["files"], found["sessions_on_disk"], found["sessions_read"]) == (4, 3, 2)
    assert (found["oldest"], found["newest"]) == ("2026-03-02T10:00:00Z", "2026-03-03T10:00:00Z")
    (warning,) = found["warnings"]
    assert "30 days" in warning
    assert "default" in warning
    assert "backfill archive" in warning


@pytest.mark.parametrize("below", ["", "projects", "projects/-shop", "projects/-shop/a.jsonl"])
def test_the_period_that_the_agent_is_told(
    home: Path, tmp_path: Path, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "settings.json").write_text('{"cleanupPeriodDays": 7}')
    (warning,) = scanned(capsys, home / below, out=tmp_path / "run")["reach"]["claude_code"]["warnings"]
    assert "7 days" in warning
    assert str(home / "settings.json") in warning


@pytest.mark.parametrize(
    "settings", ["{", "[]", '{"cleanupPeriodDays": "x"}', '{"cleanupPeriodDays": true}', "[" * 9000]
)
def test_settings_that_say_nothing_leave_the_default(
    home: Path, tmp_path: Path, settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "settings.json").write_text(settings)
    (warning,) = scanned(capsys, home / "projects", out=tmp_path / "run")["reach"]["claude_code"]["warnings"]
    assert "30 days" in warning


def test_an_agent_that_deletes_nothing_gets_no_warning_unless_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / ".gemini" / "tmp"
    source.mkdir(parents=True)
    (source / "session.json").write_bytes(next(c.data for c in CASES if c.agent == "gemini_cli"))
    assert scanned(capsys, source, out=tmp_path / "run")["reach"]["gemini_cli"]["warnings"] == []
    kept = {"general": {"sessionRetention": {"enabled": True, "maxAge": "14d"}}}
    (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(kept))
    (warning,) = scanned(capsys, source, out=tmp_path / "run")["reach"]["gemini_cli"]["warnings"]
    assert "14d" in warning


def test_the_table_for_people_says_the_same(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(home / "projects"), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "sessions on disk" in shown
    assert "2026-03-02" in shown
    assert "warning: Claude Code deletes sessions 30 days" in shown


def test_members_of_an_archive_count_under_their_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = io.BytesIO()
    codex = next(c for c in CASES if c.agent == "codex")
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/one.jsonl", session("s-a", "Where?"))
        archive.writestr("b/rollout.jsonl", codex.data)
        archive.writestr("notes.txt", "just notes")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "all.zip").write_bytes(packed.getvalue())
    record = scanned(capsys, tmp_path / "old", out=tmp_path / "run")
    formats = record["formats"]
    assert {agent: counts["files"] for agent, counts in formats.items()} == {
        "archive": 1, "claude_code": 1, "codex": 1, "none": 1,
    }  # fmt: skip
    assert formats["claude_code"]["exchanges"] == 1
    assert formats["codex"]["exchanges"] == len(codex.exchanges)
    assert formats["archive"]["bytes"] == len(packed.getvalue())
    assert record["files"] == 1
    assert record["reach"].keys() == {"claude_code", "codex"}


def faulty(start: int, end: int, ref: bytes | None = None) -> UnitResult:
    state = "skipped" if ref is None else "part_of"
    return UnitResult("claude_code", [], [], [LedgerRow("a.jsonl", start, end, 1, state, "meta", ref, bytes(16))])


@pytest.mark.parametrize("result", [faulty(3, 90), faulty(0, 4), faulty(0, 90, b"x" * 16)], ids=["gap", "short", "ref"])
def test_a_scan_whose_ledger_does_not_hold_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: UnitResult, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 90)
    monkeypatch.setattr(scanning, "read_unit", lambda *args, **kwargs: result)
    record = scanned(capsys, tmp_path / "a.jsonl", out=tmp_path / "run", code=1)
    assert record["balanced"] is False
    assert record["problems"]
    assert main(["scan", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "run")]) == 1
    assert "NOT balanced" in capsys.readouterr().out


def test_a_reader_that_fails_costs_no_other_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = scanning.read_unit

    def reads(path: Path, *args: Any, **kwargs: Any) -> UnitResult:
        if path.name == "a.jsonl":
            raise KeyError("a fault")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(scanning, "read_unit", reads)
    record = scanned(capsys, home / "projects", out=tmp_path / "run")
    assert record["balanced"]
    assert record["exchanges"] == 2
    assert record["formats"]["none"]["files"] == 1


def test_what_is_no_file_is_left_out_and_what_cannot_be_read_is_said(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "projects" / "-shop"
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "null.jsonl").symlink_to("/dev/null")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.jsonl").symlink_to(folder / "self.jsonl")
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    real_walk = os.walk

    def walk(root: Any, onerror: Any = None, **kwargs: Any) -> Any:
        onerror(PermissionError(13, "Permission denied", str(folder / "closed")))
        return real_walk(root, onerror=onerror, **kwargs)

    real = scanning.read_unit

    def reads(path: Path, *args: Any, **kwargs: Any) -> UnitResult:
        if path.name == "b.jsonl":  # a mode of 000 would not stop the superuser
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "walk", walk)
    monkeypatch.setattr(scanning, "read_unit", reads)
    record = scanned(capsys, home / "projects", out=tmp_path / "run")
    assert record["files"] == 4
    assert record["balanced"]
    assert any("closed" in w and "Permission denied" in w for w in record["warnings"])
    assert any("self.jsonl" in w for w in record["warnings"])
    assert any("gone.jsonl" in w for w in record["warnings"])
    assert record["reach"]["claude_code"]["sessions_read"] == 1
