"""Workers without a driver: what a stuck one left is found from files alone; late work is discarded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from backfill import rounds, takeover
from backfill.cli import main
from backfill.manifest import manifest_path
from backfill.report import report_of
from backfill.rundir import Plan, RunDir
from backfill.shard_sizes import distill_sizes, largest_first
from backfill.stages import work
from backfill.status import status_of
from backfill.takeover import abandoned_shards
from backfill.worker_log import Event, read_events
from tests import fake_encoder
from tests.conftest import ROOT
from tests.launchers.runs import config, made, prepared


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def line(run: RunDir, worker: str, event: str, *, shard: int = -1, ago_s: float = 0.0, pid: int = 1) -> None:
    """An event of a worker on another host."""
    written = Event(time.time() - ago_s, event, worker, "elsewhere", pid, "distill", shard)
    with (run.logs / f"events-{worker}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(written)) + "\n")


def left(run: RunDir, plan: Plan, me: str = "w1of2") -> list[tuple[str, str, list[int]]]:
    found = []
    for one in abandoned_shards(run, plan, me, lambda: False):
        found.append((one.stage, one.owner, one.shards))
        work(run.path, one.stage, one.shards, worker=me, should_stop=lambda: False, on_done=lambda shard, stats: None)
    return found


def test_what_a_silent_worker_holds_or_would_come_to_is_done_by_another(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(stuck_after_s=60.0))
    line(run, "w0of2", "take", shard=0, ago_s=100)
    even = [shard for shard in plan.distill_shards() if shard % 2 == 0]
    assert left(run, plan) == [("distill", "w0of2", even), ("embed", "w0of2", even)]
    given = [event for event in read_events(run.logs) if event.about]
    assert {(event.worker, event.about) for event in given} == {("w1of2", "w0of2")}


def test_shards_that_nobody_has_begun_are_left_to_whom_they_belong(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(stuck_after_s=60.0))
    line(run, "w2of3", "take", shard=2)
    assert left(run, plan, "w1of3") == []
    assert len(run.missing(plan, "distill")) == plan.n_distill_shards


def test_a_worker_that_stopped_is_not_stuck(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(stuck_after_s=60.0))
    line(run, "w0of2", "take", shard=0, ago_s=200)
    line(run, "w0of2", "stopped", ago_s=100)
    assert left(run, plan) == []


def test_the_last_shards_in_hand_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plan = prepared(tmp_path / "run", config(stuck_after_s=60.0))
    shards = plan.distill_shards()
    for stage in ("distill", "embed"):
        work(run.path, stage, shards[1:], worker="w1of2", should_stop=lambda: False, on_done=lambda s, t: None)
    line(run, "w0of2", "take", shard=shards[0], ago_s=1)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            line(run, "w0of2", "take", shard=shards[0], ago_s=-0.5, pid=2)  # it lives
            line(run, "w0of2", "stopped", ago_s=-1, pid=2)

    monkeypatch.setattr(takeover.time, "sleep", wait)
    assert left(run, plan) == []
    assert len(waits) == 3


def test_late_work_is_discarded(tmp_path: Path) -> None:
    """A worker that comes back publishes nothing over what was done in its place, and leaves no file behind."""
    run, plan = prepared(tmp_path / "run", config())
    taken: list[int] = []

    def meanwhile(shard: int, stats: object) -> None:
        taken.append(shard)

    def shards() -> object:
        yield 0  # the late worker draws it, and another does it before the late one publishes
        work(run.path, "distill", [0], worker="other", should_stop=lambda: False, on_done=meanwhile)

    work(run.path, "distill", shards(), worker="late", should_stop=lambda: False, on_done=meanwhile)  # type: ignore[arg-type]
    assert taken == [0, 0]
    manifest = run.object_manifest(plan, 0)
    assert manifest is not None
    names = {file.name for file in manifest.files}
    assert {path.name for path in run.objects.glob("objects-00000*")} == names


def test_a_shard_that_is_published_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config())
    work(run.path, "distill", [0], worker="a", should_stop=lambda: False, on_done=lambda shard, stats: None)
    stamp = manifest_path(run.objects, 0, plan.fingerprint_of(0)).stat().st_mtime_ns
    done: list[int] = []
    work(run.path, "distill", [0, 1], worker="b", should_stop=lambda: False, on_done=lambda s, t: done.append(s))
    assert done == [0, 1]
    assert manifest_path(run.objects, 0, plan.fingerprint_of(0)).stat().st_mtime_ns == stamp
    assert [e.shard for e in read_events(run.logs) if (e.worker, e.event) == ("b", "take")] == [1]


def test_status_and_report_name_a_stuck_worker(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(stuck_after_s=60.0))
    line(run, "w0of2", "take", shard=0, ago_s=100)
    [row] = [row for row in status_of(run.path)["workers"] if row["id"] == "w0of2"]
    assert (row["state"], row["shard"]) == ("stuck", 0)
    assert status_of(run.path)["stuck"] == ["w0of2"]
    left(run, plan)
    record = report_of(run.path)
    assert any("w0of2 on elsewhere was stuck" in text and "w1of2" in text for text in record["warnings"])


def test_shards_are_cut_by_tokens_and_a_content_stays_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SHARD_TOKENS", 100)
    contents = [[(0, row, 40)] for row in range(5)]
    contents[1] += [(1, 0, 40), (1, 1, 40)]  # copies of one content are asked about once
    cut = rounds._cut(contents, 7, 512)
    assert [shard for shard, *_ in cut] == [7, 7, 7, 7, 8, 8, 9]
    tokens = {shard: sum(n for at, _, _, n in cut if at == shard) for shard in (7, 8, 9)}
    assert tokens == {7: 80, 8: 80, 9: 40}


def test_shards_go_out_largest_first(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config())
    sizes = distill_sizes(run, plan)
    order = largest_first(run, plan, "distill", plan.distill_shards())
    tokens = [sizes[shard].tokens for shard in order]
    assert tokens == sorted(tokens, reverse=True)
    assert len(set(tokens)) > 2
    assert sum(size.rows for size in sizes.values()) == sum(r.n_rows for r in plan.rounds)
    read = [sum(unit.total_bytes for unit in plan.scan_shards[shard].units)
            for shard in largest_first(run, plan, "scan", range(len(plan.scan_shards)))]  # fmt: skip
    assert read == sorted(read, reverse=True)
    taken: list[int] = []
    assert main(["work", str(run.path), "--shard", "0/1"]) == 0
    taken = [e.shard for e in read_events(run.logs) if (e.event, e.stage) == ("take", "distill")]
    assert taken == order


@pytest.mark.slow
def test_a_stopped_array_task_comes_back_late(tmp_path: Path) -> None:
    """Two `work` processes; one is stopped mid-shard, the other does everything, the late one changes nothing."""
    # The other is to be at its own shards for longer than this one may be silent, for it leaves what nobody has begun.
    settings = config(engine={"delay_ms": 1000.0, "window": 4}, stuck_after_s=5.0)
    run, plan = prepared(tmp_path / "run", settings)
    code = (
        "import sys; from tests import fake_encoder; from pathlib import Path; import pytest\n"
        "patch = pytest.MonkeyPatch(); fake_encoder.install(patch, Path(sys.argv[1]))\n"
        "from backfill.cli import main; sys.exit(main(['work', sys.argv[2], '--shard', sys.argv[3]]))"
    )

    def start(share: str) -> subprocess.Popen[str]:
        folder = tmp_path / share.replace("/", "of")
        folder.mkdir()
        command = [sys.executable, "-c", code, str(folder), str(run.path), share]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    late = start("0/2")
    while not [event for event in read_events(run.logs) if event.worker == "w0of2" and event.stage == "distill"]:
        time.sleep(0.05)
    os.kill(late.pid, signal.SIGSTOP)
    try:
        _, told = start("1/2").communicate(timeout=120)
        assert "worker w0of2 is stuck" in told
        assert run.missing(plan, "distill") == run.missing(plan, "embed") == []
        before = made(run, plan)
    finally:
        os.kill(late.pid, signal.SIGCONT)
    late.communicate(timeout=120)
    assert late.returncode == 0
    assert made(run, plan) == before
    assert len(list(run.objects.glob("objects-*"))) + len(list(run.objects.glob("claims-*"))) == plan.n_distill_shards
