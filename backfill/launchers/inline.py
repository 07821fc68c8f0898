"""The inline launcher: this process does the work, or as many processes of this machine as the config asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from backfill.config import Config
from backfill.launchers.base import to_stderr
from backfill.stages import OnDone, ShouldStop, work


class InlineLauncher:
    """One worker in this process, or `launcher.workers` (scanning: `scan.workers`) processes beside it.

    `tag` goes into the names of the workers, for another process may be at the same run folder.
    """

    def __init__(self, config: Config, *, tag: str = "", say: Callable[[str], None] = to_stderr) -> None:
        self._config = config
        self._tag = tag
        self._say = say

    def run(self, path: Path, stage: str, shards: Sequence[int], *, should_stop: ShouldStop, on_done: OnDone) -> None:
        """See `Launcher.run`."""
        from backfill.launchers.crew import work_together
        from backfill.launchers.processes import ProcessCrew

        asked = self._config.scan.workers if stage == "scan" else self._config.launcher.workers
        gpus = _gpus() if stage != "scan" and asked != 1 else []
        count = min(max(1, asked or len(gpus)), len(shards))
        if count < 2:
            work(path, stage, shards, worker=f"inline{self._tag}", should_stop=should_stop, on_done=on_done)
            return
        kind = "scan" if stage == "scan" else "inline"
        work_together(
            ProcessCrew(path, stage, shards, gpus),
            path,
            stage,
            shards,
            names=[f"{kind}{self._tag}-{i}" for i in range(count)],
            stuck_after_s=self._config.launcher.stuck_after_s,
            should_stop=should_stop,
            on_done=on_done,
            say=self._say,
        )


def _gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    from backfill.model_memory import devices

    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    return [str(device.index) for device in devices()]
