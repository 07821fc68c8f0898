"""Files that grew are read on where the last reading stopped, and show what a reading of the whole shows."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill import scan as scanning
from backfill.config import Config, ScanConfig
from backfill.privacy import Redactor
from backfill.rundir import RunDir
from backfill.scan import plan_scan, scan_shard, scan_summary
from backfill.sources import UnitResult, grown, read_unit
from backfill.sources.base import LineByLine, Unit
from backfill.sources.checkpoint import Checkpoint, freeze, thaw
from backfill.sources.claude_code import _block_key
from backfill.sources.claude_lines import Block
from backfill.sources.registry import reader_named
from backfill.verify_run import verify_run
from tests.canaries import canaries
from tests.claude_lines import ClaudeFile, call
from tests.sources.test_contract import CASES
from tests.sources.test_units import eventful, visible

QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=30)
# Each as its agent and lines.
APPENDED = [("claude_code", eventful().lines)] + [
    (case.agent, case.data.splitlines(keepends=True))
    for case in CASES
    if isinstance(reader_named(case.agent), LineByLine)
]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the state of files of any size."""
    monkeypatch.setattr(grown, "MIN_BYTES", 1)


def read(folder: Path, data: bytes, checkpoint: Checkpoint | None = None, **options: Any) -> UnitResult:
    path = folder / "grown.jsonl"
    path.write_bytes(data)
    config = ScanConfig(**({"privacy": "off"} | options))
    return read_unit(path, "p/s.jsonl", len(data), config, split_tokens=60, checkpoint=checkpoint, keep=True)


def pieces(folder: Path, data: bytes, cuts: list[int], agent: str) -> list[UnitResult]:
    """The readings of a file that grew to each of the cuts, each going on from the one before."""
    results: list[UnitResult] = []
    checkpoint = None
    for cut in cuts:
        results.append(read(folder, data[:cut], checkpoint, agent=agent))
        checkpoint = results[-1].kept
    return results


@QUIET
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_any_split_into_appended_pieces_shows_what_the_whole_shows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n_pieces: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    chance = random.Random(seed)
    agent, lines = chance.choice(APPENDED)
    valid = chance.random() < 0.3
    if not valid:  # it must not depend on files that make sense
        lines = [line for line in lines if chance.random() > 0.15]
        for _ in range(chance.randrange(4)):
            lines.insert(chance.randrange(len(lines)), lines.pop(chance.randrange(len(lines))))
    data = b"".join(lines)
    cuts = [*sorted(chance.randrange(len(data)) for _ in range(n_pieces)), len(data)]
    whole = read(folder, data, agent=agent)
    results = pieces(folder, data, cuts, agent)
    assert visible(results) == visible([read(folder, data[:cut], agent=agent) for cut in cuts])
    assert not valid or visible(results) == visible([whole])
    assert results[-1].ledger == whole.ledger
    ids = {e.exchange_id for result in results for e in result.exchanges}
    assert {row.ref for row in whole.ledger if row.ref} <= ids
    assert (results[-1].sessions, results[-1].silent) == (whole.sessions, whole.silent)


@pytest.mark.parametrize(("agent", "lines"), APPENDED, ids=[agent for agent, _ in APPENDED])
def test_each_line_may_be_the_last_that_was_read(tmp_path: Path, agent: str, lines: list[bytes]) -> None:
    for n in range(1, len(lines)):
        cuts = [len(b"".join(lines[:n])), len(b"".join(lines))]
        first, second = pieces(tmp_path, b"".join(lines), cuts, agent)
        assert first.kept is not None
        assert first.kept.offset == cuts[0]
        assert second.ledger == read(tmp_path, b"".join(lines), agent=agent).ledger


def test_what_was_complete_is_not_read_again(tmp_path: Path) -> None:
    data = eventful().data()
    cut = len(data) * 3 // 4
    first, second = pieces(tmp_path, data, [cut, len(data)], "claude_code")
    whole = read(tmp_path, data)
    assert 0 < len(second.exchanges) < len(whole.exchanges)
    assert second.earlier
    assert second.earlier <= {e.exchange_id for e in first.exchanges}
    assert first.kept is not None
    assert data[: first.kept.offset].endswith(b"\n")
    assert first.kept.offset == data[:cut].rindex(b"\n") + 1


def whole_again(folder: Path, data: bytes, checkpoint: Checkpoint | None) -> bool:
    result = read(folder, data, checkpoint, agent="claude_code")
    fresh = read(folder, data, agent="claude_code")
    assert result.ledger == fresh.ledger
    assert result.exchanges == fresh.exchanges
    assert result.occurrences == fresh.occurrences
    return not result.earlier


def test_a_file_that_was_rewritten_or_shrank_is_read_whole(tmp_path: Path) -> None:
    f = eventful()
    data = f.data()
    kept = read(tmp_path, data, agent="claude_code").kept
    assert whole_again(tmp_path, data.replace(b"typed before anything", b"typed after something"), kept)
    assert whole_again(tmp_path, data[: len(data) // 2], kept)
    assert whole_again(tmp_path, b"".join(f.lines[5:]), kept)
    assert whole_again(tmp_path, b"", kept)
    assert read(tmp_path, data, kept, agent="claude_code").earlier


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\x90",
        msgspec.msgpack.encode([1, {}, [["dict", []]]]),
        msgspec.msgpack.encode({"format": 9, "fields": {}, "nodes": []}),
        msgspec.msgpack.encode({"format": 1, "fields": {}, "nodes": []}),
        msgspec.msgpack.encode({"format": 1, "fields": {}, "nodes": [["Popen", ["x"]]]}),
        msgspec.msgpack.encode({"format": 1, "fields": {}, "nodes": [["list", [[7]]]]}),
        msgspec.msgpack.encode({"format": 1, "fields": {"Fate": ["state"]}, "nodes": [["Fate", ["skipped"]]]}),
    ],
)
def test_a_state_that_cannot_be_used_is_as_if_there_were_none(tmp_path: Path, state: bytes) -> None:
    data = eventful().data()
    kept = read(tmp_path, data, agent="claude_code").kept
    assert kept is not None
    assert whole_again(tmp_path, data, msgspec.structs.replace(kept, state=state))


def test_only_known_classes_are_written() -> None:
    with pytest.raises(TypeError, match="belongs to no state"):
        freeze({"path": Path("x")}, (), Redactor("off"))
    shared: dict[Any, Any] = {("a", 1): [None, 1.5, b"b", {"x"}]}
    shared["self"] = shared
    frozen = freeze([shared, shared], (), Redactor("off"))
    assert frozen is not None
    first, second = thaw(frozen, Unit(None, "", 0, "UTC", None), ())  # type: ignore[arg-type]
    assert first is second is first["self"]
    assert first["a", 1] == [None, 1.5, b"b", {"x"}]


def test_the_key_of_a_block_is_the_same_in_every_process() -> None:
    script = (
        "from backfill.sources.claude_code import _block_key; from backfill.sources.claude_lines import Block;"
        "print(_block_key('m', [Block('text', 'a'), Block('text', 'b')]), _block_key('m', [Block('text', 'a')]))"
    )
    here = _block_key("m", [Block("text", "a"), Block("text", "b")]), _block_key("m", [Block("text", "a")])
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, shown.split())) == here


def test_a_state_holds_no_secret(tmp_path: Path) -> None:
    secret = next(canary.secret for canary in canaries() if canary.kind == "github_token")
    open_command = ClaudeFile(cwd=f"/home/ana/{secret}")
    open_command.user("Where is the lock?")
    open_command.agent("In db.py.", call("Bash", "t1", command=f"echo {secret}"), f"It says {secret}.")
    open_command.queue("enqueue", f"use {secret}")
    open_command.user(f"<command-name>/login</command-name><command-args>{secret}</command-args>")
    kept = read(tmp_path, open_command.data(), privacy="secrets").kept
    assert kept is not None
    assert secret.encode() not in kept.state
    waiting = ClaudeFile()
    waiting.raw({"type": "summary", "summary": f"Key {secret}", "leafUuid": "elsewhere"})
    waiting.user("Where is the lock?")
    assert read(tmp_path, waiting.data(), privacy="secrets").kept is None


def test_a_scan_goes_on_where_the_last_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, run = tmp_path / "src", RunDir(tmp_path / "run")
    source.mkdir()
    run.make()
    lines = eventful().lines
    path = source / "s.jsonl"
    began: list[int] = []
    real = scanning.read_unit

    def reads(*args: Any, **kwargs: Any) -> UnitResult:
        checkpoint = kwargs.get("checkpoint")
        began.append(0 if checkpoint is None else checkpoint.offset)
        return real(*args, **kwargs)

    monkeypatch.setattr(scanning, "read_unit", reads)
    shown = []
    for folder, steps in ((run, (20, 40, len(lines))), (RunDir(tmp_path / "once"), (len(lines),))):
        folder.make()
        for n in steps:
            path.write_bytes(b"".join(lines[:n]))
            plan = plan_scan(folder, Config(), [str(source)])
            for shard in folder.missing(plan, "scan"):
                scan_shard(folder, plan, shard, lambda: False)
        summary = scan_summary(folder, plan, 0.0)
        assert summary["balanced"], summary["problems"]
        shown.append({k: summary[k] for k in ("exchanges", "sessions")} | {"reach": summary["reach"]})
    assert began == [0, len(b"".join(lines[:20])), len(b"".join(lines[:40])), 0]
    assert shown[0]["sessions"] == shown[1]["sessions"]
    assert shown[0]["reach"]["claude_code"]["oldest"] == shown[1]["reach"]["claude_code"]["oldest"]
    assert verify_run(run.path, trust_encoder=False).ledger_balanced
    (kept,) = (f for f in run.exchanges.iterdir() if f.name.startswith("checkpoints-00001"))
    kept.write_bytes(b"torn")  # costs a reading of the whole, nothing else
    path.write_bytes(b"".join([*lines, lines[-1]]))
    (run.exchanges / next(f.name for f in run.exchanges.iterdir() if f.name.startswith("checkpoints-00002"))).unlink()
    plan = plan_scan(run, Config(), [str(source)])
    scan_shard(run, plan, 3, lambda: False)
    assert began[-1] == len(b"".join(lines[:20]))


def test_what_vanished_or_shrank_takes_nothing_back(tmp_path: Path) -> None:
    source, run = tmp_path / "src", RunDir(tmp_path / "run")
    source.mkdir()
    run.make()
    lines = eventful().lines
    path = source / "s.jsonl"

    def scanned(data: bytes | None) -> dict[str, Any]:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        plan = plan_scan(run, Config(), [str(source)])
        for shard in run.missing(plan, "scan"):
            scan_shard(run, plan, shard, lambda: False)
        return scan_summary(run, plan, 0.0)

    whole = scanned(b"".join(lines))
    assert scanned(b"".join(lines[:9]))["exchanges"] >= whole["exchanges"]
    gone = scanned(None)
    assert gone["exchanges"] >= whole["exchanges"]
    assert gone["sessions"] == whole["sessions"]
    assert gone["balanced"]
    path.write_bytes(b"".join([*lines, lines[0].replace(b"Carts", b"Trams")]))
    plan = plan_scan(run, Config(), [str(source)])
    path.unlink()  # between planning and reading
    scan_shard(run, plan, len(plan.scan_shards) - 1, lambda: False)
    summary = scan_summary(run, plan, 0.0)
    assert summary["balanced"]
    assert summary["formats"]["none"]["files"] == 1
