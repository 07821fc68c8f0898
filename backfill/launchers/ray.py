"""The Ray launcher: actors of one cluster that pull shards from a dispenser until none is left.

Attaches to a running cluster by `address`, else starts one on this machine. Each actor has a GPU, or a number of cores;
Ray says where. All nodes must see the run folder under the same path: shards go through it, never through the object
store. The dispenser lives on this process's node, so that no other node is one whose loss ends a run. Deliberately
absent: Ray Data, detached actors, and Ray's own restarts, which would not give back what an actor held.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backfill.config import Config, LauncherConfig
from backfill.errors import BackfillError
from backfill.launchers.base import to_stderr
from backfill.launchers.crew import work_together
from backfill.launchers.dispenser import Dispenser, News
from backfill.launchers.outcome import Outcome, work_from
from backfill.stages import OnDone, ShouldStop

# As long as an actor may wait for a free place before that is said.
WAITING_S = 60.0


class RemoteSource:
    """A dispenser in an actor, called as if it were here."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def _call(self, name: str, *arguments: Any) -> Any:
        import ray

        return ray.get(getattr(self.actor, name).remote(*arguments))

    def take(self, worker: str) -> int | None:
        """See `Dispenser`."""
        shard: int | None = self._call("take", worker)
        return shard

    def finish(self, worker: str, shard: int, stats: dict[str, Any]) -> None:
        """See `Dispenser`."""
        self._call("finish", worker, shard, stats)

    def held(self, worker: str) -> list[int]:
        """See `Dispenser`."""
        return list(self._call("held", worker))

    def release(self, worker: str) -> list[int]:
        """See `Dispenser`."""
        return list(self._call("release", worker))

    def retire(self, worker: str) -> list[int]:
        """See `Dispenser`."""
        return list(self._call("retire", worker))

    def left(self) -> int:
        """See `Dispenser`."""
        return int(self._call("left"))

    def news(self) -> list[News]:
        """See `Dispenser`."""
        return list(self._call("news"))

    def stop(self) -> None:
        """See `Dispenser`."""
        self._call("stop")

    def stopped(self) -> bool:
        """See `Dispenser`."""
        return bool(self._call("stopped"))


class Worker:
    """One actor: one engine or encoder, shards until none is left."""

    def run(self, actor: Any, path: str, stage: str, name: str) -> Outcome:
        """Works until the dispenser is empty; says how it ended."""
        return work_from(RemoteSource(actor), Path(path), stage, name)


class RayCrew:
    """Implements `Crew`."""

    def __init__(
        self, path: Path, stage: str, shards: Sequence[int], *, cpus: float, gpus: float, say: Callable[[str], None]
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        dispenser = ray.remote(Dispenser).options(num_cpus=0, scheduling_strategy=here)
        self._source = RemoteSource(dispenser.remote(list(shards)))
        self._actor = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus)
        self._path, self._stage = path, stage
        self._place = f"{cpus:g} CPUs and {gpus:g} GPUs"
        self._say = say
        self._actors: dict[str, Any] = {}
        self._running: dict[Any, str] = {}
        self._waits_since: float | None = time.monotonic()

    @property
    def dispenser(self) -> RemoteSource:
        """See `Crew`."""
        return self._source

    def start(self, worker: str) -> None:
        """See `Crew`. An actor that no node has room for waits until one has."""
        if worker not in self._actors:
            self._actors[worker] = self._actor.remote()
        handle = self._actors[worker]
        self._running[handle.run.remote(self._source.actor, str(self._path), self._stage, worker)] = worker

    def ended(self, timeout_s: float) -> list[Outcome]:
        """See `Crew`."""
        import ray

        if not self._running:
            time.sleep(timeout_s)
            return []
        ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=timeout_s)
        self._say_where_nothing_fits()
        return [self._outcome(reference, self._running.pop(reference)) for reference in ready]

    def kill(self, worker: str) -> None:
        """See `Crew`."""
        import ray

        ray.kill(self._actors.pop(worker))
        self._running = {reference: name for reference, name in self._running.items() if name != worker}

    def close(self) -> None:
        """See `Crew`."""
        import ray

        for worker in list(self._actors):
            self.kill(worker)
        ray.kill(self._source.actor)

    def _outcome(self, reference: Any, worker: str) -> Outcome:
        import ray

        try:
            outcome: Outcome = ray.get(reference)
        except ray.exceptions.RayActorError:
            self.kill(worker)
            return Outcome(worker, died=True)
        return outcome

    def _say_where_nothing_fits(self) -> None:
        """Once, where no worker has taken anything for a while."""
        if self._waits_since is None:
            return
        if any(self._source.held(worker) for worker in self._actors):
            self._waits_since = None
        elif time.monotonic() - self._waits_since > WAITING_S:
            self._waits_since = None
            self._say(f"no worker of {self._stage} has begun: is there a node with {self._place} free?")


class RayLauncher:
    """One actor per GPU; without GPUs `launcher.workers` actors of `cpus_per_worker` cores, or as many as fit."""

    def __init__(self, config: Config, *, tag: str = "", say: Callable[[str], None] = to_stderr) -> None:
        self._config = config.launcher
        self._tag = tag
        self._say = say

    def run(self, path: Path, stage: str, shards: Sequence[int], *, should_stop: ShouldStop, on_done: OnDone) -> None:
        """See `Launcher.run`."""
        import ray

        attach(self._config)
        cpus = self._config.cpus_per_worker
        count, gpus = places(self._config, stage, ray.cluster_resources())
        work_together(
            RayCrew(path, stage, shards, cpus=cpus, gpus=gpus, say=self._say),
            path,
            stage,
            shards,
            names=[f"ray{self._tag}-{i}" for i in range(min(count, len(shards)))],
            stuck_after_s=self._config.stuck_after_s,
            should_stop=should_stop,
            on_done=on_done,
            say=self._say,
        )


def places(config: LauncherConfig, stage: str, resources: dict[str, float]) -> tuple[int, float]:
    """(actors, GPUs of each) for a stage on a cluster that has these resources. Scanning needs no GPU."""
    total = resources.get("GPU", 0.0) if stage != "scan" else 0.0
    gpus = (config.gpus_per_worker or (1.0 if total else 0.0)) if stage != "scan" else 0.0
    fit = int(resources.get("CPU", 1.0) / config.cpus_per_worker) if config.cpus_per_worker else 1
    if gpus:
        fit = int(total / gpus)
    return max(1, config.workers or fit), gpus


def attach(config: LauncherConfig) -> None:
    """Joins the cluster at `address`, or starts Ray on this machine, unless this process is in one already.

    A job that was submitted to a cluster finds its address in RAY_ADDRESS. Raises BackfillError where none answers.
    """
    import ray

    if ray.is_initialized():
        return
    address = config.address or os.environ.get("RAY_ADDRESS", "")
    if address:
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            hint = (
                "`ray status --address HOST:PORT` must work from here; launcher.address: '' starts Ray on this machine"
            )
            raise BackfillError(f"no Ray cluster at {address}: {error}", hint=hint) from error
        return
    cpus = max(os.cpu_count() or 1, math.ceil(config.workers * config.cpus_per_worker))
    try:
        # "local", for without an address Ray joins whatever cluster was started last on this machine.
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises a bare Exception where its processes take longer than 30 s to start
        ray.shutdown()
        hint = "the machine may be overloaded; the same command goes on. launcher.kind: inline needs no Ray"
        raise BackfillError(f"Ray could not be started: {error}", hint=hint, retryable=True) from error
