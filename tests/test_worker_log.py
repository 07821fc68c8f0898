"""The event lines of workers: written as shards are taken and done, read whatever else stands in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill.errors import Interrupted, ShardError
from backfill.worker_log import WorkerLog, read_events


def test_taken_done_and_failed_are_lines(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path, "w0of2", "distill")
    done: list[int] = []
    note = log.noting(lambda shard, stats: done.append(shard))
    with pytest.raises(ShardError), log.ends():
        for shard in log.taken([4, 5]):
            note(shard, {"n": 2, "failures": {"bloat": 1}, "problems": ["some text"]})
        raise ShardError("of /a/secret/path")
    found = [(e.event, e.shard, e.stats, e.error) for e in read_events(tmp_path)]
    stats = {"n": 2, "failures": {"bloat": 1}}
    assert found == [
        ("take", 4, {}, ""),
        ("done", 4, stats, ""),
        ("take", 5, {}, ""),
        ("done", 5, stats, ""),
        ("failed", -1, {}, "ShardError"),
    ]
    assert done == [4, 5]
    assert {(e.worker, e.stage) for e in read_events(tmp_path)} == {("w0of2", "distill")}


def test_a_stop_is_noted(tmp_path: Path) -> None:
    with pytest.raises(Interrupted), WorkerLog(tmp_path, "a", "scan").ends():
        raise Interrupted("stopped")
    assert [event.event for event in read_events(tmp_path)] == ["stopped"]


def test_torn_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    list(WorkerLog(tmp_path, "a", "scan").taken([1]))
    with (tmp_path / "events-a.jsonl").open("ab") as file:
        file.write(b'{"at": 1\n\xff\xfe\n[]\n{"at": "x"}\n{"at": 2, "ev')
    list(WorkerLog(tmp_path, "b", "scan").taken([2]))
    assert [event.shard for event in read_events(tmp_path)] == [1, 2]


def test_workers_are_read_by_time(tmp_path: Path) -> None:
    a, b = WorkerLog(tmp_path, "a", "scan").taken([1, 2]), WorkerLog(tmp_path, "b", "scan").taken([3])
    assert [next(a), next(b), next(a)] == [1, 3, 2]
    assert [(event.worker, event.shard) for event in read_events(tmp_path)] == [("a", 1), ("b", 3), ("a", 2)]


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    assert list(WorkerLog(tmp_path / "no such folder", "a", "scan").taken([1, 2])) == [1, 2]
    assert read_events(tmp_path / "no such folder") == []
