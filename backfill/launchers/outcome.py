"""How a worker of another process ended, as plain values that travel; and the worker's side of a dispenser."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill.errors import BackfillError, Interrupted
from backfill.launchers.dispenser import ShardSource
from backfill.stages import work

ASK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`died` is the end of the process, `message` an error's; neither means that no shard was left, or a stop.

    `elsewhere` says that another worker may succeed where this one failed.
    """

    worker: str
    message: str = ""
    hint: str = ""
    elsewhere: bool = False
    died: bool = False


def work_from(source: ShardSource, path: Path, stage: str, worker: str) -> Outcome:
    """Works until `source` has no shard left."""

    def shards() -> Iterator[int]:
        while (shard := source.take(worker)) is not None:
            yield shard

    def report(shard: int, stats: dict[str, Any]) -> None:
        source.finish(worker, shard, stats)

    try:
        work(path, stage, shards(), worker=worker, should_stop=_Asking(source), on_done=report)
    except Interrupted:
        return Outcome(worker)
    except BackfillError as error:
        return Outcome(worker, str(error), error.hint, elsewhere=error.retryable)
    except Exception as error:  # a fault of ours: the run ends with its name, and the log has its place
        traceback.print_exc()
        return Outcome(worker, f"{type(error).__name__}: {error}"[:500])
    return Outcome(worker)


class _Asking:
    """Whether to stop, asked at most once in `ASK_EVERY_S`."""

    def __init__(self, source: ShardSource) -> None:
        self._source = source
        self._asked_at = 0.0
        self._stop = False

    def __call__(self) -> bool:
        if not self._stop and time.monotonic() - self._asked_at > ASK_EVERY_S:
            self._asked_at = time.monotonic()
            self._stop = self._source.stopped()
        return self._stop
