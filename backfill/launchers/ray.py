"""The Ray launcher: actors that pull shards from a dispenser until none is left.

A shard belongs to whoever asks for it next, so a slow actor takes fewer; an actor that dies is restarted and its
unpublished shards are handed out again. Attaches to a running cluster by `address`, else starts a local one.
Deliberately absent: Ray Data and the object store; shards go through the run folder.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backfill.config import LauncherConfig
from backfill.errors import BackfillError, Interrupted
from backfill.stages import OnDone, ShouldStop, work

POLL_S = 0.2
MAX_RESTARTS = 3


class Dispenser:
    """Hands out shards and remembers who has which; lives in an actor of its own."""

    def __init__(self, shards: Sequence[int]) -> None:
        self._left = deque(shards)
        self._held: dict[str, set[int]] = {}
        self._done: deque[tuple[int, dict[str, Any]]] = deque()
        self._stopped = False

    def take(self, worker: str) -> int | None:
        """The next shard for a worker, None when there is none."""
        if self._stopped or not self._left:
            return None
        shard = self._left.popleft()
        self._held.setdefault(worker, set()).add(shard)
        return shard

    def finish(self, worker: str, shard: int, stats: dict[str, Any]) -> None:
        """A worker has published a shard."""
        self._held.get(worker, set()).discard(shard)
        self._done.append((shard, stats))

    def release(self, worker: str) -> int:
        """Puts back what a dead worker held; returns how many shards are left to hand out."""
        self._left.extend(sorted(self._held.pop(worker, set())))
        return len(self._left)

    def news(self) -> list[tuple[int, dict[str, Any]]]:
        """Shards finished since the last call."""
        found = list(self._done)
        self._done.clear()
        return found

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True

    def stopped(self) -> bool:
        """Whether workers should stop."""
        return self._stopped


class Worker:
    """One actor: one engine or encoder, shards until none is left."""

    def __init__(self, name: str, dispenser: Any) -> None:
        self._name = name
        self._dispenser = dispenser
        self._asked_at = 0.0
        self._stop = False

    def run(self, path: str, stage: str) -> str:
        """Works until the dispenser is empty; returns "" or the message of the error that ended it."""
        import ray

        def report(shard: int, stats: dict[str, Any]) -> None:
            ray.get(self._dispenser.finish.remote(self._name, shard, stats))

        try:
            work(Path(path), stage, self._shards(), worker=self._name, should_stop=self._should_stop, on_done=report)
        except Interrupted:
            return ""
        except BackfillError as error:
            return f"{error} {error.hint}".strip()
        return ""

    def _shards(self) -> Iterator[int]:
        import ray

        while (shard := ray.get(self._dispenser.take.remote(self._name))) is not None:
            yield shard

    def _should_stop(self) -> bool:
        import ray

        if time.monotonic() - self._asked_at > 1.0:
            self._asked_at = time.monotonic()
            self._stop = bool(ray.get(self._dispenser.stopped.remote()))
        return self._stop


class RayLauncher:
    """One actor per GPU, or `workers` actors on CPUs."""

    def __init__(self, config: LauncherConfig) -> None:
        self._config = config

    def run(self, path: Path, stage: str, shards: Sequence[int], *, should_stop: ShouldStop, on_done: OnDone) -> None:
        """See `Launcher.run`."""
        import ray

        self._attach()
        config = self._config
        gpus = int(ray.cluster_resources().get("GPU", 0))
        per_gpu = config.gpus_per_worker or (1.0 if gpus and stage != "scan" else 0.0)
        count = min(config.workers or (gpus if per_gpu else 1) or 1, len(shards))
        dispenser = ray.remote(Dispenser).options(num_cpus=0).remote(list(shards))
        actor = ray.remote(Worker).options(num_cpus=config.cpus_per_worker, num_gpus=per_gpu)
        tries = dict.fromkeys((f"ray-{i}" for i in range(count)), 0)
        actors = {name: actor.remote(name, dispenser) for name in tries}
        running = {actors[name].run.remote(str(path), stage): name for name in tries}
        stopped = False
        try:
            while running:
                ready, _ = ray.wait(list(running), timeout=POLL_S)
                for shard, stats in ray.get(dispenser.news.remote()):
                    on_done(shard, stats)
                for reference in ready:
                    name = running.pop(reference)
                    if self._ended(reference, name, dispenser, tries):
                        continue
                    actors[name] = actor.remote(name, dispenser)
                    running[actors[name].run.remote(str(path), stage)] = name
                if should_stop() and not stopped:
                    stopped = True
                    ray.get(dispenser.stop.remote())
            for shard, stats in ray.get(dispenser.news.remote()):
                on_done(shard, stats)
        finally:
            for handle in (*actors.values(), dispenser):
                ray.kill(handle)
        if stopped:
            raise Interrupted(f"stopped during {stage}", hint="the same command resumes")

    def _ended(self, reference: Any, name: str, dispenser: Any, tries: dict[str, int]) -> bool:
        """Whether a worker ended for good; False asks for another in its place. Raises what it died of."""
        import ray

        try:
            message = ray.get(reference)
        except ray.exceptions.RayActorError as error:
            tries[name] += 1
            left = ray.get(dispenser.release.remote(name))
            if tries[name] > MAX_RESTARTS:
                raise BackfillError(f"worker {name} died {tries[name]} times: {error}") from error
            return bool(left == 0)
        if message:
            raise BackfillError(f"worker {name}: {message}")
        return True

    def _attach(self) -> None:
        import ray

        if ray.is_initialized():
            return
        if self._config.address:
            ray.init(address=self._config.address, log_to_driver=False)
        else:
            ray.init(
                num_cpus=max(2, self._config.workers),
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
            )
