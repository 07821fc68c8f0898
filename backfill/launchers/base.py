"""The launcher protocol: who calls `work`, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from backfill.stages import OnDone, ShouldStop


class Launcher(Protocol):
    """Runs the shards of one stage to their end, wherever."""

    def run(self, path: Path, stage: str, shards: Sequence[int], *, should_stop: ShouldStop, on_done: OnDone) -> None:
        """Does every shard, in the order given; `on_done` is called in this process as each is published.

        Raises Interrupted when stopped, and the error of the first worker that failed.
        """
        ...


def to_stderr(text: str) -> None:
    """What a launcher has to say where nobody gave it a way to say it."""
    print(text, file=sys.stderr)
