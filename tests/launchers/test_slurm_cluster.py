"""Runs on a real one-node Slurm (scripts/slurm-local), disturbed in every way that a cluster knows.

All runs are submitted at once and mostly wait for a scripted engine, so that together they take as long as the longest.
Each must end in the very bundle that an inline run gives. Skips where Slurm cannot be started.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from backfill.cli import main
from backfill.config import Config, LauncherConfig
from backfill.launchers.sbatch import max_array_size
from backfill.launchers.slurm import Round, last_round, submit_ray, write_scripts, written_scripts
from backfill.rundir import RunDir
from backfill.slurm_config import SlurmConfig
from tests import fake_encoder
from tests.conftest import ROOT
from tests.test_merge import canonical_files

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SCRIPT = ROOT / "scripts" / "slurm-local"
SAMPLES = ROOT / "samples" / "transcripts"
PATIENCE_S = 400


@dataclass(frozen=True)
class Setting:
    """How a run is cut and how fast its engine is, how long its jobs may take, and what is done to one of its tasks."""

    workers: int
    shard_exchanges: int
    delay_ms: int
    drain_s: int = 0
    minutes: int = 10
    disturb: tuple[str, ...] = ()
    task: int = 0


# The longest first, and last those that are disturbed as soon as all are submitted.
RUNS = {
    # 49 answers, four at a time, take 98 s; TERM comes after 60 to 90, KILL five seconds later.
    "overtime": Setting(1, 512, 8000, minutes=1),
    # And here 62 s; the notice comes after 20 to 50, for Slurm looks every 30 s.
    "noticed": Setting(1, 512, 5000, drain_s=10, minutes=1),
    "plain": Setting(3, 8, 1000),
    # One shard a task: what is in flight when the first answers stand does not complete it, so there is some to replay.
    "requeued": Setting(2, 19, 4000, disturb=("scontrol", "requeue")),
    "cancelled": Setting(2, 8, 4000, disturb=("scancel",), task=1),
}


@dataclass(frozen=True)
class Started:
    """A submitted run."""

    run: RunDir

    @property
    def work(self) -> str:
        """Slurm's number of the first array."""
        path = self.run.path / "slurm" / "round-000.json"
        return str(msgspec.json.decode(path.read_bytes())["jobs"]["work"])

    def answers(self, task: int) -> list[str]:
        """Keys of the answers that a task's log holds."""
        lines = [
            msgspec.json.decode(line)
            for path in self.run.logs.glob(f"answers-w{task}of*.jsonl")
            for line in path.read_bytes().split(b"\n")[:-1]
        ]
        return [f"{line['content_id']} {line['attempt']} {line['prompt']}" for line in lines]

    def replayed(self) -> int:
        """Answers that finished shards took from logs."""
        stats = [msgspec.json.decode(p.read_bytes())["stats"] for p in self.run.objects.glob("shard-*.json")]
        return sum(stat.get("replayed", 0) for stat in stats)

    def logs(self) -> str:
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.run.logs.glob("slurm-*.out")))

    def finish(self) -> None:
        """Waits for the last round to end; fails with what the jobs printed unless a bundle stands."""
        wait_for(lambda: not queue_of(self.run) and (self.run.bundle / "manifest.json").exists(), self)


def wait_for(ready: Callable[[], bool], started: Started) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline, f"{slurm('squeue')}\n{started.logs()[-4000:]}"
        time.sleep(0.5)


def queue_of(run: RunDir) -> str:
    made = last_round(run)
    numbers = set(made.jobs.values()) if made else set()
    return "\n".join(
        line for line in slurm("squeue", "-h", "-o", "%F %i %T").splitlines() if line.split()[0] in numbers
    )


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Slurm is up, and the environment points at it."""
    with tempfile.TemporaryDirectory(prefix="bf-slurm-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_LOCAL", folder)
        up = subprocess.run([SCRIPT, "up", "12"], capture_output=True, text=True)
        if up.returncode:
            pytest.skip(f"no Slurm here: {up.stderr.strip()[-300:]}")
        try:
            patch.setenv("SLURM_CONF", str(Path(folder) / "slurm.conf"))
            yield
        finally:
            subprocess.run([SCRIPT, "down"], capture_output=True)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bundle of an inline run."""
    folder = tmp_path_factory.mktemp("inline")
    with pytest.MonkeyPatch.context() as patch:
        fake_encoder.install(patch, folder)
        config = written(folder, Setting(1, 8, 0))
        assert main(["run", str(config), "--out", str(folder / "run"), "--set", "launcher.kind=inline"]) == 0
    return canonical_files(folder / "run" / "bundle")


@pytest.fixture(scope="module")
def started(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Started]:
    """All runs, submitted, and two of them disturbed while they are at work."""
    folder = tmp_path_factory.mktemp("a folder")
    made = {}
    for name, setting in RUNS.items():
        (folder / name).mkdir()
        config = written(folder / name, setting)
        out = folder / name / "run"
        done = subprocess.run(
            [*job_command(folder / name), "slurm", "submit", str(config), "--out", str(out)],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made[name] = Started(RunDir(out))
    for name, setting in RUNS.items():
        if setting.disturb:
            run, task = made[name], setting.task
            wait_for(lambda run=run, task=task: bool(run.answers(task)), run)  # type: ignore[misc]
            slurm(*setting.disturb, f"{run.work}_{task}")
    return made


def job_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.slurm_job", str(folder)]


def written(folder: Path, setting: Setting) -> Path:
    tree = {
        "sources": [str(SAMPLES)],
        "engine": {"kind": "scripted", "delay_ms": setting.delay_ms, "window": 4},
        "distill": {"shard_exchanges": setting.shard_exchanges, "min_llm_share": 0.5},
        "scan": {"shard_bytes": 100_000},
        "launcher": {
            "kind": "slurm",
            "workers": setting.workers,
            "slurm": {
                "command": shlex.join(job_command(folder)),
                "drain_s": setting.drain_s,
                "task_options": [f"--time={setting.minutes}"],
                "stagger_s": 0,
                "scratch": str(folder),
                "cache_root": str(folder),
            },
        },
    }
    path = folder / "config.yaml"
    path.write_bytes(msgspec.yaml.encode(tree))
    return path


def restarts(job: str) -> int:
    found = re.search(r"Restarts=(\d+)", slurm("scontrol", "show", "job", "-o", job))
    assert found is not None
    return int(found[1])


def test_a_run_whose_jobs_are_queued_is_not_submitted_again(
    started: dict[str, Started], capsys: pytest.CaptureFixture[str]
) -> None:
    run = started["overtime"].run.path
    assert main(["slurm", "submit", str(run.parent / "config.yaml"), "--out", str(run)]) == 2
    assert "are in the queue" in capsys.readouterr().err
    assert main(["slurm", "status", str(run), "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert "backfill-merge" in {job["name"] for job in told["jobs"]}
    assert told["round"] == 0


def test_a_task_that_is_requeued_goes_on(started: dict[str, Started], wanted: dict[str, bytes]) -> None:
    run = started["requeued"]
    command = [*job_command(run.run.path.parent), "slurm", "status", str(run.run.path), "--follow", "--json"]
    followed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert followed.returncode == 0, followed.stderr
    looks = [msgspec.json.decode(line) for line in followed.stdout.splitlines()]
    assert {"backfill-work", "backfill-merge"} <= {job["name"] for look in looks for job in look["jobs"]}
    assert [look["ended"] for look in looks if look["ended"]] == ["done"]
    run.finish()
    assert restarts(f"{run.work}_0") == 1
    assert run.replayed() > 0
    assert len(set(run.answers(0))) == len(run.answers(0)), "an answer was paid twice"
    assert canonical_files(run.run.bundle) == wanted


def test_only_what_a_cancelled_task_left_is_submitted_again(
    started: dict[str, Started], wanted: dict[str, bytes]
) -> None:
    run = started["cancelled"]
    run.finish()
    made = last_round(run.run)
    assert made is not None
    assert made.number == 1
    assert "scan" not in made.jobs
    for number in re.findall(r"\d+", made.array):
        assert int(number) % 2 == 1, "a shard of the other task was submitted again"
    assert canonical_files(run.run.bundle) == wanted


def test_submitting_is_enough(started: dict[str, Started], wanted: dict[str, bytes]) -> None:
    run = started["plain"]
    run.finish()
    made = last_round(run.run)
    assert made is not None
    assert made.number == 0
    assert canonical_files(run.run.bundle) == wanted
    assert not list(run.run.path.parent.glob("backfill-job-*")), "a job left its scratch folder behind"
    assert main(["verify", str(run.run.path)]) == 0


def test_a_notice_of_the_limit_is_enough_to_go_on_inside_a_shard(
    started: dict[str, Started], wanted: dict[str, bytes]
) -> None:
    run = started["noticed"]
    run.finish()
    assert "back into the queue" in run.logs()
    made = last_round(run.run)
    assert made is not None
    assert made.number == 0, "it was requeued, so nothing was missing"
    assert run.replayed() > 0
    assert len(set(run.answers(0))) == len(run.answers(0)), "an answer was paid twice"
    assert canonical_files(run.run.bundle) == wanted


def test_a_job_that_is_killed_past_its_limit_is_made_up_for(
    started: dict[str, Started], wanted: dict[str, bytes]
) -> None:
    run = started["overtime"]
    run.finish()
    made = last_round(run.run)
    assert made is not None
    assert made.number == 1
    assert run.replayed() > 0
    assert canonical_files(run.run.bundle) == wanted


STUB_RAY = """#!/bin/bash
while [[ $1 != -- ]]; do shift; done
shift
"$@"
exit 0  # as symmetric-run does where it could not start
"""
STUB_BACKFILL = """#!/bin/bash
case $1 in
status) echo "{\\"state\\":\\"$(cat "$2/state" 2>/dev/null || echo unfinished)\\"}" ;;
run)
    out=$4
    if [[ -e $out/noticed ]]; then echo done >"$out/state"; exit 0; fi
    trap 'touch "$out/noticed"; exit 75' USR1
    touch "$out/running"
    while :; do sleep 0.1; done
    ;;
esac
"""


def test_a_job_over_whole_nodes_goes_by_the_run_and_not_by_ray(cluster: None, tmp_path: Path) -> None:
    """Ray and the run are stubs here: what is tested is the job, which drains the driver alone and asks for the run."""
    for name, text in (("ray", STUB_RAY), ("stub", STUB_BACKFILL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    told = SlurmConfig(command=shlex.quote(str(tmp_path / "stub")), cache_root=str(tmp_path), scratch=str(tmp_path))
    run = RunDir(tmp_path / "run")
    run.make()
    extra = ["CONFIG=c.yaml", "ARGUMENTS=()", f"export PATH={shlex.quote(str(tmp_path))}:$PATH"]
    texts = written_scripts(run, Config(launcher=LauncherConfig(slurm=told)), ["ray"], extra)
    texts["ray.sbatch"] = texts["ray.sbatch"].replace(" --exclusive", "")  # other tests' jobs are on the node
    write_scripts(run, texts)
    started = Started(run)
    number = submit_ray(run, Round(-1, 1, "", 501, {}), 1).jobs["ray"]
    wait_for((run.path / "running").exists, started)
    slurm("scancel", "--batch", "--signal=USR1", number)
    wait_for(lambda: (run.path / "state").exists() and not queue_of(run), started)
    assert restarts(number) == 1
    assert "JobState=COMPLETED" in slurm("scontrol", "show", "job", "-o", number)
    assert not list(tmp_path.glob("backfill-job-*"))


def test_the_cluster_says_how_large_an_array_may_be(cluster: None) -> None:
    assert "backfill-local" in slurm("scontrol", "show", "config")
    assert max_array_size() == 501
