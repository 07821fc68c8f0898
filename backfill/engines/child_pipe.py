"""The child's end of the pipes, and its bond to its parent."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from typing import BinaryIO

import msgspec

from backfill.engines.frames import HEADER_BYTES, MAX_FRAME_BYTES, Ask, Start, Stop, ToParent, pack


class ChildPipe:
    """Frames in and out. Writing never blocks the caller: a thread of its own waits for the parent to read."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        self._decoder = msgspec.msgpack.Decoder(Start | Ask | Stop)

    def receive(self) -> Start | Ask | Stop:
        """The next message; `Stop` at the end of input."""
        head = self._source.read(HEADER_BYTES)
        size = int.from_bytes(head, "little")
        if len(head) < HEADER_BYTES or size > MAX_FRAME_BYTES:
            return Stop()
        body = self._source.read(size)
        return self._decoder.decode(body) if len(body) == size else Stop()

    def send(self, message: ToParent) -> None:
        self._out.put(pack(message))

    def drain(self) -> None:
        """Waits until everything sent is written."""
        self._out.put(None)
        self._writer.join(timeout=10)

    def _write(self) -> None:
        while (frame := self._out.get()) is not None:
            try:
                self._sink.write(frame)
                self._sink.flush()
            except OSError:
                os._exit(1)


def own_pipe() -> ChildPipe:
    """Takes standard output away from everybody else: vLLM prints, and a print must not land between two frames."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    return ChildPipe(source, sink)


def leave_signals_to_parent() -> None:
    """The parent drains this process and ends it, which a signal must not forestall.

    A session of its own keeps a terminal's Ctrl-C away, not a cluster: Slurm sends TERM and USR1 to every process of a
    job. Processes that this one starts inherit it.
    """
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", None)):
        if number is not None:  # Windows has no USR1, and search processes run there too
            signal.signal(number, signal.SIG_IGN)


def follow_parent() -> None:
    """Ends this process once its parent is gone, also while a model loads or a step hangs.

    PR_SET_PDEATHSIG would do so when the parent's *thread* ends, which is too early where threads start engines.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
