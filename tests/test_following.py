"""Following a run: the same figures as `status`, until it ends; nothing is written, the queue is asked seldom."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from backfill import following, run_view
from backfill.cli import main
from backfill.commands.status import follow
from backfill.errors import UsageError
from backfill.launchers import sbatch, slurm_queue
from backfill.launchers.slurm import FOLDER, Round, record_round
from backfill.launchers.slurm_queue import SlurmQueue
from backfill.manifest import ShardManifest
from backfill.presence import present
from backfill.rundir import Plan, RunDir
from backfill.stages import work
from backfill.status import Status, status_of
from backfill.worker_log import WorkerLog
from tests.conftest import ROOT
from tests.launchers.runs import config, prepared

Record = dict[str, Any]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is read and planned."""
    folder = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        prepared(folder / "run", config())
    return folder / "run"


@pytest.fixture
def run(planned: Path, tmp_path: Path, no_fsync: None) -> RunDir:
    return RunDir(Path(shutil.copytree(planned, tmp_path / "run")))


def distill(run: RunDir, shards: list[int]) -> None:
    work(run.path, "distill", shards, worker="a", should_stop=lambda: False, on_done=lambda shard, stats: None)


class Clock:
    """A clock that moves by what is slept."""

    def __init__(self, *turns: Callable[[], object]) -> None:
        self.now = time.time()
        self._turns = list(turns)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 10
        if self._turns:
            self._turns.pop(0)()


def watched(run: RunDir, clock: Clock, **how: Any) -> list[Record]:
    return list(following.looks(Status(run.path), sleep=clock.sleep, clock=clock, **how))


def test_looks_are_status_records_and_end_when_nobody_is_at_work(run: RunDir) -> None:
    clock = Clock(lambda: distill(run, [0]), lambda: distill(run, [1]))
    records = watched(run, clock)
    assert [record["stages"]["distill"]["done"] for record in records[:3]] == [0, 1, 2]
    assert [record["ended"] for record in records][-2:] == ["", following.ABANDONED]
    assert 4 <= len(records) <= 7, "half a minute without anybody"
    told, now = records[-1], status_of(run.path)
    for name in ("stages", "items", "failures", "state"):
        assert told[name] == now[name], name
    for name in ("rate", "token_rate"):
        assert told[name]["overall"] == now[name]["overall"] > 0
    assert 0 < told["items"]["done"] < told["items"]["total"]


def test_a_run_is_done_once_nobody_works_on_it(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    done = {**status_of(run.path), "state": "done"}
    monkeypatch.setattr(Status, "record", lambda self: {**done, "processes": busy.pop(0) if busy else []})
    busy: list[list[str]] = [["run"], ["run"]]
    assert [record["ended"] for record in watched(run, Clock())] == ["", "", following.DONE]


def test_processes_keep_it_from_being_abandoned(run: RunDir) -> None:
    clock = Clock()
    found = []
    with present(run.logs, "run", {}):
        for record in following.looks(Status(run.path), sleep=clock.sleep, clock=clock):
            assert [process["name"] for process in record["processes"]] == ["run"]
            found.append(record["ended"])
            if len(found) == 9:
                break
    assert found == [""] * 9


def test_jobs_in_a_queue_that_is_not_asked_may_still_come(run: RunDir) -> None:
    clock = Clock(*[lambda: None] * 60, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        watched(run, clock, elsewhere=True)


def test_a_run_that_just_starts_is_waited_for(planned: Path, tmp_path: Path) -> None:
    clock = Clock(lambda: shutil.copytree(planned, tmp_path / "run"))
    assert watched(RunDir(tmp_path / "run"), clock)[0]["stages"]["scan"]["total"] > 0
    with pytest.raises(UsageError, match="no run folder"):
        watched(RunDir(tmp_path / "nothing"), Clock())


def test_a_look_reads_done_manifests_once_and_writes_nothing(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    distill(run, [0, 1])
    status = Status(run.path)
    before = sorted(run.path.rglob("*"))
    first = status.record()
    asked: list[int] = []
    real = RunDir.manifest_of

    def manifest_of(self: RunDir, plan: Plan, stage: str, shard: int) -> ShardManifest | None:
        if stage == "distill":
            asked.append(shard)
        return real(self, plan, stage, shard)

    monkeypatch.setattr(RunDir, "manifest_of", manifest_of)
    second = status.record()
    assert asked
    assert {0, 1}.isdisjoint(asked)
    assert second["items"] == first["items"]
    assert sorted(run.path.rglob("*")) == before


def test_the_file_of_a_process_that_is_gone_is_left_to_others(run: RunDir) -> None:
    path = run.logs / "present-run-00000000-elsewhere-1.json"
    path.write_text('{"name":"run","host":"elsewhere","pid":1,"started":"0","settings":{}}')
    os.utime(path, (1, 1))
    assert status_of(run.path)["processes"] == []
    assert path.exists()


class Controller:
    """squeue, which counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[sbatch.QueuedJob] | Exception) -> None:
        self.answers, self.asked = list(answers), list[list[str]]()
        monkeypatch.setattr(sbatch, "queued", self.queued)

    def queued(self, numbers: list[str]) -> list[sbatch.QueuedJob]:
        self.asked.append(numbers)
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


WAITING = sbatch.QueuedJob("12_[0-3]", "backfill-work", "PENDING", "Priority", "0:00")


def submitted(run: RunDir) -> None:
    (run.path / FOLDER).mkdir(exist_ok=True)
    record_round(run, Round(0, 2, "", 1001, {"work": "12", "merge": "13"}, "0-3", 4))


def test_the_controller_is_asked_every_quarter_of_a_minute(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(run)
    controller = Controller(monkeypatch, [WAITING], sbatch.SlurmError("squeue failed: timed out"), [])
    now = [0.0]
    queue = SlurmQueue(run, now=lambda: now[0])
    told = []
    for now[0] in (0, 1, 14, 15, 29, 30, 45):
        told.append((queue.record(), queue.is_empty))
    assert len(controller.asked) == 4
    assert set(controller.asked[0]) == {"12", "13"}
    assert [job["state"] for job in told[0][0]["jobs"]] == ["PENDING"]
    assert told[0][0]["round"] == 0
    assert told[3][0]["queue_error"] == "squeue failed: timed out"
    assert told[3][0]["jobs"] == told[0][0]["jobs"], "what was said last"
    assert [empty for _, empty in told] == [False] * 6 + [True]
    assert "queue_error" not in told[-1][0]


def test_a_merge_job_that_submits_stands_in_the_round_before(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(run)
    record_round(run, Round(1, 1, "", 1001, {}))
    controller = Controller(monkeypatch, [WAITING])
    assert SlurmQueue(run).record()["round"] == 1
    assert [set(numbers) for numbers in controller.asked] == [{"12", "13"}]


def test_a_run_on_a_cluster_is_followed_while_jobs_wait(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(run)
    monkeypatch.setattr(slurm_queue, "ASK_EVERY_S", 0.0)
    Controller(monkeypatch, *[[WAITING]] * 20)
    records = watched(run, Clock(), queue=SlurmQueue(run))
    assert len(records) > 20
    assert [bool(record["jobs"]) for record in records[:21]] == [True] * 20 + [False]
    assert records[-1]["ended"] == following.ABANDONED


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def example(run: RunDir) -> Record:
    """A record in the middle of distilling: a worker stuck, one at work, answers refused."""
    distill(run, [0])
    taken = WorkerLog(run.logs, "w1of2", "distill").taken([1])
    next(iter(taken))
    record = status_of(run.path)
    for worker in record["workers"]:
        if worker["id"] == "w1of2":
            worker |= {"state": "stuck", "silent_s": 1900.0}
    return record | {
        "stuck": ["w1of2"], "rate": {"m5": 2.5, "overall": 2.0}, "token_rate": {"m5": 900.0, "overall": 800.0},
        "eta_s": 75.0, "failures": {"dropped": 7, "bloat\x1b[31m": 2}, "jobs": [vars_of(WAITING)],
    }  # fmt: skip


def vars_of(job: sbatch.QueuedJob) -> Record:
    return {name: getattr(job, name) for name in ("id", "name", "state", "reason", "ran")}


def test_a_line_says_what_the_display_of_run_says(run: RunDir) -> None:
    record = example(run)
    text = run_view.line_of(record)
    assert text.startswith(f"distill: {record['items']['done']}/{record['items']['total']} items 2.0/s (5 min 2.5/s), ")
    assert "1 min 15 s left, 900 tokens/s (overall 800)" in text
    assert "workers: 1 stuck, 1 idle (w1of2 for 31 min 40 s)" in text
    assert "queue: 1 PENDING" in text
    assert "refused: dropped 7, bloat 2" in text
    assert "\x1b" not in text


def test_lines_come_when_due_and_when_something_happens(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view, record = run_view.Lines(), status_of(run.path)
    for now[0] in (0, 1, 9, 10, 11):
        view.show(record)
    assert len(lines(capsys)) == 2
    view.show(record | {"stuck": ["a"]})
    assert len(lines(capsys)) == 1
    for now[0] in map(float, range(400, 520)):
        view.show(record | {"stuck": ["a"]})
    assert len(lines(capsys)) == 2, "later one a minute"
    view.show(record | {"stuck": ["a"], "ended": "done"})
    assert len(lines(capsys)) == 1


def test_a_terminal_shows_stages_jobs_and_workers(run: RunDir) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        run_view.Picture(live).show(example(run))
    text = out.getvalue()
    for wanted in ("scan", "embed", "merge", "items", "2.0/s (5 min 2.5/s)", "queue: 1 PENDING",
                   "12_[0-3] backfill-work", "refused: dropped 7, bloat 2", "w1of2 on", "stuck distill"):  # fmt: skip
        assert wanted in text, wanted


def test_json_lines_and_exit_codes(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ALONE_S", 0.0)
    monkeypatch.setattr(following, "STARTING_S", 0.0)
    assert main(["status", str(run.path), "--follow", "--json"]) == 1
    out, said = capsys.readouterr()
    *_, last = map(json.loads, out.splitlines())
    assert last["ended"] == "abandoned"
    assert last["at"].startswith("20")
    assert {"state", "stages", "rate", "eta_s", "workers", "failures"} <= set(last)
    assert "nobody is at work" in said
    done = {**status_of(run.path), "state": "done"}
    monkeypatch.setattr(Status, "record", lambda self: dict(done))
    assert follow(run.path, as_json=False) == 0
    assert "scan " in capsys.readouterr().out


def test_slurm_s_status_takes_a_config_for_the_run_that_it_names(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(run)
    Controller(monkeypatch, [WAITING], [WAITING])
    path = tmp_path / "c.yaml"
    path.write_text(f"run: {run.path}\nengine: {{kind: scripted}}\n")
    assert main(["slurm", "status", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["id"] == "12_[0-3]"
    monkeypatch.setattr(following, "looks", lambda *a, **k: iter([{**status_of(run.path), "ended": "done"}]))
    assert main(["slurm", "status", str(path), "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ended"] == "done"


def test_ctrl_c_ends_the_following_alone(run: RunDir) -> None:
    with present(run.logs, "run", {}):
        process = subprocess.Popen(
            [sys.executable, "-m", "backfill.cli", "status", str(run.path), "--follow"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert process.stdout is not None
        assert "distill: 0/" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "the run was left alone" in said
    assert "Traceback" not in said
