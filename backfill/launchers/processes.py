"""Worker processes of this machine, asked and told through one pipe each.

Interrupts reach this process alone, which tells the workers to drain. A worker whose parent is gone finds its pipe
closed, commits what it has and ends. With several GPUs each worker sees one of them. Deliberately absent: a shared
queue, which a killed process can leave locked.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from backfill.launchers.dispenser import Dispenser
from backfill.launchers.outcome import Outcome, work_from
from backfill.reading import advance, set_meter

# A second of imports, done once in the server that all processes are forked from; it has no threads.
PRELOADED = ("backfill.launchers.processes", "backfill.scan")
METER_EVERY_S = 0.5


class ProcessCrew:
    """Implements `Crew`. `gpus` are names for CUDA_VISIBLE_DEVICES, one a worker by turns."""

    def __init__(self, path: Path, stage: str, shards: Sequence[int], gpus: Sequence[str] = ()) -> None:
        self._dispenser = Dispenser(shards)
        self._path, self._stage, self._gpus = path, stage, gpus
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._workers: dict[str, tuple[BaseProcess, Connection]] = {}
        self._started = 0

    @property
    def dispenser(self) -> Dispenser:
        """See `Crew`."""
        return self._dispenser

    def start(self, worker: str) -> None:
        """See `Crew`."""
        environment = dict(os.environ)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[self._started % len(self._gpus)]
        self._started += 1
        mine, theirs = self._context.Pipe()
        arguments = (theirs, self._path, self._stage, worker, environment)
        process = self._context.Process(target=serve, args=arguments, name=worker, daemon=False)
        process.start()
        theirs.close()
        self._workers[worker] = (process, mine)

    def ended(self, timeout_s: float) -> list[Outcome]:
        """See `Crew`; answers what the workers ask meanwhile."""
        names = {connection: name for name, (_, connection) in self._workers.items()}
        if not names:
            time.sleep(timeout_s)
        outcomes = []
        for connection in wait(list(names), timeout_s):
            if isinstance(connection, Connection):
                outcome = self._answer(names[connection], connection)
                outcomes += [outcome] if outcome else []
        return outcomes

    def kill(self, worker: str) -> None:
        """See `Crew`; ends an engine that the worker started too, for it has a session of its own."""
        process, connection = self._workers.pop(worker)
        connection.close()
        below = descendants(process.pid) if process.pid else []
        process.kill()
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.join()

    def close(self) -> None:
        """See `Crew`."""
        for worker in list(self._workers):
            self.kill(worker)

    def _answer(self, worker: str, connection: Connection) -> Outcome | None:
        """Takes one message of a worker. A pipe that closed before its outcome came means that the process died."""
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            process, _ = self._workers.pop(worker)
            connection.close()
            process.join()
            return Outcome(worker, died=True)
        if name == "ended":
            process, _ = self._workers.pop(worker)
            connection.close()
            process.join()
            return Outcome(*arguments)
        if name == "read":
            advance(*arguments)
            return None
        replies: dict[str, Callable[..., Any]] = {
            "take": self._dispenser.take,
            "finish": self._dispenser.finish,
            "stopped": self._dispenser.stopped,
        }
        with suppress(BrokenPipeError):
            connection.send(replies[name](*arguments))
        return None


class PipedSource:
    """A dispenser at the other end of a pipe. A closed pipe means that there is nothing left and that all is over."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_bytes = 0
        self._told_at = time.monotonic()

    def take(self, worker: str) -> int | None:
        """See `ShardSource`."""
        shard: int | None = self._ask("take", worker, otherwise=None)
        return shard

    def finish(self, worker: str, shard: int, stats: dict[str, Any]) -> None:
        """See `ShardSource`."""
        self.tell_read(0, at_once=True)
        self._ask("finish", worker, shard, stats, otherwise=None)

    def stopped(self) -> bool:
        """See `ShardSource`."""
        return bool(self._ask("stopped", otherwise=True))

    def tell_read(self, n_bytes: int, *, at_once: bool = False) -> None:
        """Counts bytes that were read, and says so now and then."""
        self._read_bytes += n_bytes
        if self._read_bytes and (at_once or time.monotonic() - self._told_at > METER_EVERY_S):
            with suppress(OSError):
                self._connection.send(("read", self._read_bytes))
            self._read_bytes, self._told_at = 0, time.monotonic()

    def _ask(self, *message: Any, otherwise: Any) -> Any:
        try:
            self._connection.send(message)
            return self._connection.recv()
        except (EOFError, OSError):
            return otherwise


def serve(connection: Connection, path: Path, stage: str, worker: str, environment: dict[str, str]) -> None:
    """The whole life of a worker process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    source = PipedSource(connection)
    set_meter(source.tell_read)
    end = work_from(source, path, stage, worker)
    with suppress(OSError):
        connection.send(("ended", end.worker, end.message, end.hint, end.elsewhere))


def descendants(pid: int) -> list[int]:
    """Processes below one, as Linux lists them; none elsewhere."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *descendants(child)]
    return found
