"""Ray on several nodes: a node taken away, an actor killed or stopped, the driver killed; nothing is done twice.

One cluster of three nodes with a core each serves all tests, for starting one takes half a minute. Only distilling runs
on it; reading and merging are done here, so that what is compared is a whole bundle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backfill.launchers.ray import RayLauncher
from backfill.rundir import Plan, RunDir
from backfill.worker_log import Event, read_events
from tests import fake_encoder
from tests.conftest import ROOT
from tests.launchers.runs import config, prepared
from tests.test_merge import canonical_files
from tests.test_pipeline import go

pytestmark = [pytest.mark.slow, pytest.mark.ray]

SLOW = {"delay_ms": 500.0, "window": 2}
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes with a core each; this process is attached to the first."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        try:
            for _ in range(2):
                nodes.add_node(**NODE)
            ray.init(address=nodes.address, log_to_driver=False)
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def distilled(run: RunDir, plan: Plan, meanwhile: Callable[[], None], **launcher: Any) -> tuple[list[int], list[str]]:
    done: list[int] = []
    said: list[str] = []
    settings = config(engine=SLOW, kind="ray", workers=3, cpus_per_worker=1.0, **launcher)
    thread = threading.Thread(target=meanwhile)
    thread.start()
    RayLauncher(settings, say=said.append).run(
        run.path,
        "distill",
        run.missing(plan, "distill"),
        should_stop=lambda: False,
        on_done=lambda shard, stats: done.append(shard),
    )
    thread.join()
    return done, said


def takes(run: RunDir, n_workers: int) -> dict[str, Event]:
    """Waits until so many workers have a shard in hand; their first."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        events = [e for e in read_events(run.logs) if (e.event, e.stage) == ("take", "distill")]
        found = {event.worker: event for event in reversed(events)}
        if len(found) >= n_workers:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{n_workers} workers did not begin")


def node_of(cluster: Any, pid: int) -> Any:
    """The node below whose raylet a worker process runs."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for node in cluster.list_all_nodes():
        if any(info.process.pid == parent for info in node.all_processes.get("raylet", [])):
            return node
    raise AssertionError(f"process {pid} belongs to no node")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bundle's files that one process makes."""
    folder = tmp_path_factory.mktemp("inline")
    with pytest.MonkeyPatch.context() as patch:
        fake_encoder.install(patch, folder)
        go(config(), folder / "run")
    return canonical_files(folder / "run" / "bundle")


def merged(run: RunDir) -> dict[str, bytes]:
    """The bundle's files that this run ends with; embedding and merging are done here."""
    go(config(), run.path)
    return canonical_files(run.bundle)


def nothing_was_done_again(run: RunDir) -> None:
    """Nobody took a shard after it was published."""
    done: set[int] = set()
    for event in read_events(run.logs):
        if event.stage == "distill" and event.event == "done":
            done.add(event.shard)
        assert (event.stage, event.event) != ("distill", "take") or event.shard not in done
    assert sorted(done) == run.plan().distill_shards()


def test_an_actor_is_killed_and_another_is_stuck(cluster: Any, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW, stuck_after_s=20.0))
    names: list[str] = []

    def disturb() -> None:
        killed, stopped = list(takes(run, 2).values())[:2]
        names.extend([killed.worker, stopped.worker])
        os.kill(killed.pid, signal.SIGKILL)
        os.kill(stopped.pid, signal.SIGSTOP)

    done, said = distilled(run, plan, disturb, stuck_after_s=20.0)
    assert sorted(done) == plan.distill_shards()
    assert f"worker {names[0]} died" in said
    assert any(f"worker {names[1]} is stuck" in line for line in said)
    nothing_was_done_again(run)
    assert merged(run) == undisturbed


def test_a_node_is_taken_away(cluster: Any, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW))
    removed: list[str] = []

    def disturb() -> None:
        nodes = {name: node_of(cluster, event.pid) for name, event in takes(run, 2).items()}
        name, node = next((n, node) for n, node in sorted(nodes.items()) if node is not cluster.head_node)
        removed.append(name)
        cluster.remove_node(node, allow_graceful=False)

    done, said = distilled(run, plan, disturb)
    assert sorted(done) == plan.distill_shards()
    assert said == [f"worker {removed[0]} died"]
    nothing_was_done_again(run)
    assert merged(run) == undisturbed


DRIVER = """
import sys
from pathlib import Path
from backfill.launchers.ray import RayLauncher
from backfill.rundir import RunDir
from tests.launchers.runs import config

settings = config(kind="ray", workers=3, address=sys.argv[2])
run = RunDir(Path(sys.argv[1]))
RayLauncher(settings).run(run.path, "distill", run.missing(run.plan(), "distill"), should_stop=lambda: False,
                          on_done=lambda shard, stats: None)
"""


def test_the_driver_is_killed_and_started_again(cluster: Any, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config(engine=SLOW))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(run.path), cluster.address], cwd=ROOT)
    try:
        takes(run, 2)
        while not list(run.objects.glob("shard-*.json")):
            time.sleep(0.05)
    finally:
        driver.kill()
        driver.wait()
    before = {path: path.stat().st_ino for path in run.objects.glob("shard-*.json")}
    assert len(before) < len(plan.distill_shards()), "the driver was killed too late to show anything"
    done, _ = distilled(run, plan, lambda: None)
    assert {path: path.stat().st_ino for path in before} == before
    assert set(done) <= set(plan.distill_shards())
    nothing_was_done_again(run)
    assert merged(run) == undisturbed
