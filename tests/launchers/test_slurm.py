"""Dealing of shards to array tasks, what the jobs say, rounds; Slurm itself is `test_slurm_cluster`'s."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.cli import main
from backfill.config import Config, EngineConfig, LauncherConfig
from backfill.errors import ConfigError, UsageError
from backfill.launchers import sbatch, slurm
from backfill.rundir import RunDir
from backfill.slurm_config import SlurmConfig
from tests import fake_encoder
from tests.conftest import ROOT

CONFIG = ROOT / "configs" / "extractive.yaml"
SAMPLES = ROOT / "samples" / "transcripts"


@settings(deadline=None)
@given(st.sets(st.integers(0, 3000), min_size=1), st.integers(1, 64), st.integers(1, 1001))
def test_every_shard_has_one_task_below_the_cluster_s_limit(shards: set[int], n_tasks: int, limit: int) -> None:
    modulus, numbers = slurm.deal(shards, n_tasks, limit)
    assert {shard % modulus for shard in shards} == set(numbers)
    assert len(numbers) <= n_tasks
    assert max(numbers) < modulus <= limit


def test_what_one_task_left_behind_is_spread() -> None:
    assert slurm.deal(range(64), 8, 1001) == (8, [0, 1, 2, 3, 4, 5, 6, 7])
    modulus, numbers = slurm.deal(range(3, 64, 8), 8, 1001)
    assert len(numbers) == 8
    assert modulus % 8 == 0
    assert slurm.deal([3, 11], 1, 1001) == (1, [0])


def test_arrays_are_written_as_sbatch_reads_them() -> None:
    assert slurm.array_of([7, 0, 1, 2, 9, 10], 4) == "0-2,7,9-10%4"
    assert slurm.array_of([5], 0) == "5"


def test_a_round_knows_what_is_missing() -> None:
    config = Config(launcher=LauncherConfig(workers=3))
    jobs, array, modulus = slurm.jobs_of_round(config, 0, 1001, ([0], []))
    assert [(job.name, job.after) for job in jobs] == [
        ("scan", ""),
        ("work", "afterok:scan"),
        ("merge", "afterany:work"),
    ]
    assert (array, modulus) == ("0-2", 3)
    jobs, array, modulus = slurm.jobs_of_round(config, 1, 1001, ([], [4, 7]))
    assert [(job.name, job.arguments) for job in jobs] == [("work", (str(modulus),)), ("merge", ("1",))]
    assert (array, modulus) == ("1,4", 6)
    jobs, array, _ = slurm.jobs_of_round(config, 2, 1001, ([], []))
    assert [(job.name, job.after, array) for job in jobs] == [("merge", "", "")]
    big = Config(launcher=LauncherConfig(workers=5000, slurm=SlurmConfig(running=20)))
    assert slurm.jobs_of_round(big, 0, 1001, ([0], []))[1] == "0-1000%20"


def test_jobs_say_what_the_config_says(tmp_path: Path) -> None:
    told = SlurmConfig(
        options=("--account=lab",), task_options=("--partition=gpu",), drain_s=60, setup=("module load cuda/12.8",),
        scratch="$SLURM_TMPDIR", running=4,
    )  # fmt: skip
    config = Config(launcher=LauncherConfig(workers=16, gpus_per_worker=1, cpus_per_worker=8, slurm=told))
    texts = slurm.written_scripts(RunDir(tmp_path / "a run"), config, ["scan", "work", "merge"])
    work, scan = texts["work.sbatch"], texts["scan.sbatch"]
    header = [line.removeprefix("#SBATCH ") for line in work.splitlines() if line.startswith("#SBATCH")]
    assert {"--account=lab", "--partition=gpu", "--gres=gpu:1", "--cpus-per-task=8", "--requeue --open-mode=append",
            "--signal=B:USR1@60", f"'--output={tmp_path}/a run/logs/slurm-%x-%A_%a.out'"} <= set(header)  # fmt: skip
    assert "--partition=gpu" not in scan
    assert "--account=lab" in scan
    assert "module load cuda/12.8\n" in work
    assert 'BACKFILL_SCRATCH_ROOT="$SLURM_TMPDIR"' in work
    for name, text in texts.items():
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert done.returncode == 0, (name, done.stderr)


@pytest.mark.parametrize(
    ("kind", "gpus", "options", "none"),
    [
        ("vllm", 0.0, (), True),
        ("vllm", 1.0, (), False),
        ("vllm", 0.0, ("--gpus-per-task=a100:1",), False),
        ("extractive", 0.0, (), False),
    ],
)
def test_tasks_without_a_gpu_are_noticed(kind: Any, gpus: float, options: tuple[str, ...], none: bool) -> None:
    launcher = LauncherConfig(gpus_per_worker=gpus, slurm=SlurmConfig(task_options=options))
    assert slurm.asks_no_gpu(Config(engine=EngineConfig(kind=kind), launcher=launcher)) is none


@pytest.mark.parametrize("option", ["account=lab", "--comment=a\nrm -rf x"])
def test_what_is_no_option_is_refused(tmp_path: Path, option: str) -> None:
    config = Config(launcher=LauncherConfig(slurm=SlurmConfig(options=(option,))))
    with pytest.raises(ConfigError, match="no option of sbatch"):
        slurm.written_scripts(RunDir(tmp_path), config, ["merge"])


def test_a_dry_run_prints_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["slurm", "submit", str(CONFIG), "--source", str(SAMPLES), "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*command, "--set", "launcher.workers=3"]) == 0
    printed = capsys.readouterr().out
    assert f"{tmp_path}/run/slurm/work.sbatch 3" in printed
    assert "step work" in printed
    assert main([*command, "--ray-nodes", "4"]) == 0
    assert "symmetric-run" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_no_slurm_here_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="scontrol is not on the PATH"):
        sbatch.max_array_size()


def test_what_a_command_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1"), ("scontrol", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(sbatch.SlurmError, match="invalid partition") as refused:
        sbatch.submit(tmp_path / "x.sbatch", [], [])
    assert "--partition" in refused.value.hint
    with pytest.raises(sbatch.SlurmError, match="exit status 1"):
        sbatch.max_array_size()


def test_a_job_that_submits_hands_nothing_of_itself_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "64")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    passed = sbatch._environment()
    assert [name for name in passed if name.startswith("SLURM")] == ["SLURM_CONF"]
    assert "PATH" in passed


class Queue:
    """Slurm's commands, without Slurm: remembers what was submitted and runs nothing."""

    def __init__(self, refuse: str = "") -> None:
        self.calls: list[list[str]] = []
        self.cancelled: list[str] = []
        self.waiting: list[sbatch.QueuedJob] = []
        self._refuse = refuse

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Queue:
        monkeypatch.setattr(sbatch, "submit", self.submit)
        monkeypatch.setattr(sbatch, "cancel", self.cancelled.extend)
        monkeypatch.setattr(sbatch, "max_array_size", lambda: 1001)
        monkeypatch.setattr(sbatch, "queued", lambda numbers: self.waiting)
        return self

    def submit(self, script: Path, options: Sequence[str], arguments: Sequence[str]) -> str:
        if self._refuse and script.stem == self._refuse:
            raise sbatch.SlurmError("sbatch failed: invalid partition")
        self.calls.append([script.stem, *options, *arguments])
        return str(100 + len(self.calls))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> Queue:
    fake_encoder.install(monkeypatch, tmp_path)
    return Queue().install(monkeypatch)


def submitted(out: Path, *more: str) -> int:
    return main(["slurm", "submit", str(CONFIG), "--source", str(SAMPLES / "openai"), "--out", str(out),
                 "--set", "launcher.workers=2", "--set", "distill.shard_exchanges=4", *more])  # fmt: skip


def test_rounds_end_in_a_bundle(tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert submitted(out) == 0
    assert queue.calls == [
        ["scan"],
        ["work", "--array=0-1", "--dependency=afterok:101", "--kill-on-invalid-dep=yes", "2"],
        ["merge", "--dependency=afterany:102", "--kill-on-invalid-dep=yes", "0"],
    ]
    assert main(["slurm", "scan", str(out)]) == 0
    assert main(["work", str(out), "--shard", "0/2"]) == 0
    queue.calls.clear()
    assert main(["slurm", "merge", str(out), "--round", "0"]) == 0
    missing = slurm.missing_shards(RunDir(out))[1]
    assert missing
    assert all(shard % 2 for shard in missing)
    (name, array, modulus), merge = queue.calls
    assert (name, merge[0], merge[-1]) == ("work", "merge", "1")
    for number in array.removeprefix("--array=").replace("-", ",").split(","):
        assert main(["work", str(out), "--shard", f"{number}/{modulus}"]) == 0
    assert main(["slurm", "merge", str(out), "--round", "1"]) == 0
    assert main(["verify", str(out)]) == 0
    capsys.readouterr()
    assert main(["slurm", "status", str(out), "--json"]) == 0
    assert '"state":"done"' in capsys.readouterr().out


def test_rounds_are_bounded(tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert submitted(out, "--set", "launcher.slurm.rounds=2") == 0
    assert main(["slurm", "scan", str(out)]) == 0
    assert main(["slurm", "merge", str(out), "--round", "0"]) == 0
    queue.calls.clear()
    assert main(["slurm", "merge", str(out), "--round", "1"]) == 1
    assert "shards are missing" in capsys.readouterr().err
    assert queue.calls == []


def test_a_busy_controller_is_asked_again(tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    assert submitted(out) == 0
    assert main(["slurm", "scan", str(out)]) == 0
    refusals, pauses = iter("xx"), list[float]()

    def submit(script: Path, options: Sequence[str], arguments: Sequence[str]) -> str:
        if next(refusals, None):
            raise sbatch.SlurmError("sbatch failed: Socket timed out")
        return queue.submit(script, options, arguments)

    monkeypatch.setattr(sbatch, "submit", submit)
    monkeypatch.setattr(slurm.time, "sleep", pauses.append)
    queue.calls.clear()
    assert main(["slurm", "merge", str(out), "--round", "0"]) == 0
    assert pauses == [10.0, 60.0]
    assert [call[0] for call in queue.calls] == ["work", "merge"]


def test_a_damaged_shard_is_named_and_not_merged(
    tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert submitted(out) == 0
    assert main(["slurm", "scan", str(out)]) == 0
    assert [main(["work", str(out), "--shard", f"{k}/2"]) for k in (0, 1)] == [0, 0]
    damaged = next((out / "02-objects").glob("objects-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["slurm", "merge", str(out), "--round", "0"]) == 1
    said = capsys.readouterr().err
    assert damaged.name in said
    assert "submit again" in said
    assert not (out / "bundle" / "manifest.json").exists()


def test_two_submissions_of_one_run_are_refused(
    tmp_path: Path, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert submitted(out) == 0
    queue.waiting = [sbatch.QueuedJob("102_[0-1]", "backfill-work", "PENDING", "Dependency", "0:00")]
    assert submitted(out) == 2
    assert "102_[0-1]" in capsys.readouterr().err
    queue.waiting = []
    queue.calls.clear()
    assert submitted(out) == 0
    assert queue.calls[-1][-1] == "1"


def test_cancelling_takes_the_job_first_that_would_submit_again(tmp_path: Path, queue: Queue) -> None:
    out = tmp_path / "run"
    assert submitted(out) == 0
    assert main(["slurm", "cancel", str(out)]) == 0
    assert queue.cancelled == []
    queue.waiting = [sbatch.QueuedJob("102_0", "backfill-work", "RUNNING", "None", "0:07")]
    assert main(["slurm", "cancel", str(out)]) == 0
    assert queue.cancelled[0] == "103"
    assert sorted(queue.cancelled) == ["101", "102", "103"]


def test_a_refused_job_takes_those_before_it_along(tmp_path: Path, queue: Queue, monkeypatch: Any) -> None:
    refusing = Queue(refuse="merge").install(monkeypatch)
    assert submitted(tmp_path / "run") == 1
    assert refusing.cancelled == ["101", "102"]


def test_a_source_without_an_exchange_is_not_tried_again(tmp_path: Path, queue: Queue) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.bin").write_bytes(b"\0\1")
    command = ["slurm", "submit", str(CONFIG), "--source", str(tmp_path / "empty"), "--out", str(tmp_path / "run")]
    assert main(command) == 0
    assert main(["slurm", "scan", str(tmp_path / "run")]) == 1
    queue.calls.clear()
    assert main(["slurm", "merge", str(tmp_path / "run"), "--round", "0"]) == 1
    assert queue.calls == []


def test_run_folders_know_no_locks_and_no_databases() -> None:
    """Both lie on shared file systems. A database that is a source is copied to a local folder before it is opened."""
    modules = {path: path.read_text() for path in (ROOT / "backfill").rglob("*.py")}
    assert [path.name for path, text in modules.items() if "import sqlite3" in text] == ["databases.py"]
    assert not [path.name for path, text in modules.items() if re.search(r"\b(flock|lockf|import fcntl)\b", text)]
