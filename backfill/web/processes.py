"""Search processes as the server sees them: asked over pipes, replaced when they die, ended with the server.

A search holds the interpreter's lock; in a process of its own it takes no time from pages, and two of them use two
cores. A process is asked by one thread at a time. One that dies is started anew and the request asked once more; one
that is not done in time is killed. Deliberately absent: a queue, which the server's executor is.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from backfill.embedders.base import usable_cores
from backfill.errors import BundleError
from backfill.question import encode_ahead, query_encoder
from backfill.web import frames
from backfill.web.answers import ApiError
from backfill.web.asking import refused
from backfill.web.cache import Answer

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.web.api import Endpoint
    from backfill.web.follow import State
    from backfill.web.parameters import Params

Encode: TypeAlias = Callable[[Sequence[str]], bytes]
"""Vectors of queries, [N, D] float16, as bytes; none where they cannot be made."""

log = logging.getLogger(__name__)
# To open a bundle of a million exchanges and search it for the first time.
OPEN_S = 60.0
WARM_UP = "warm up"


def default_processes() -> int:
    """Half of the cores: the others encode, serve pages, and belong to whoever else works there."""
    return max(1, usable_cores() // 2)


class Ended(Exception):
    """The process ended before it answered; `late` where it was ended because its time was over."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("a search process ended before it answered")
        self.late = late


class SearchProcess:
    """One process over the bundle in a folder; asked by one thread at a time."""

    def __init__(self, bundle: Path) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "backfill.web.search_process", str(bundle.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A terminal's Ctrl-C reaches the server alone.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, message: frames.Open | frames.Search, encode: Encode, due: float) -> frames.Found | frames.Failed:
        """What it answers until `due` (time.monotonic()). Raises Ended; then it is of no more use."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(max(0.0, due - time.monotonic()), end)
        timer.daemon = True
        timer.start()
        try:
            return self._converse(message, encode)
        except frames.PipeClosed as error:
            raise Ended(late=late.is_set()) from error
        finally:
            timer.cancel()

    def end(self) -> None:
        """Ends the process, whatever it does: it has nothing to lose."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _converse(self, message: frames.Open | frames.Search, encode: Encode) -> frames.Found | frames.Failed:
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise frames.PipeClosed("the process has no pipes")
        frames.send(to, message)
        while isinstance(answer := frames.receive(back, frames.TO_SERVER), frames.Encode):
            frames.send(to, frames.Vectors(encode(answer.texts)))
        return answer


class SearchProcesses:
    """`n` processes over the bundle in `path`. As a context manager it ends them."""

    def __init__(self, path: Path, n: int) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._closed = False
        self._all = [SearchProcess(path) for _ in range(n)]
        self._free = list(range(n))
        self._reserved: set[int] = set()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes that run now."""
        return tuple(process.pid for process in self._all)

    def __enter__(self) -> SearchProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._closed = True
        for process in self._all:
            process.end()

    def open(self, state: State) -> None:
        """Lets each process open the state and search it once, while the others answer from the one before.

        A process that cannot is left to its first search of that state, which says why.
        """
        message = frames.Open(state.digest, WARM_UP, query_of(state.bundle, WARM_UP, "default"))
        for number in range(len(self._all)):
            with suppress(Ended), self._taken(number) as process:
                process.ask(message, _encoding(state.bundle), time.monotonic() + OPEN_S)

    def answer(self, state: State, endpoint: Endpoint, params: Params, query: frames.Query, due: float) -> Answer:
        """The answer of a process; 503 where there is none until `due` (time.monotonic()), or two processes ended.

        Raises BundleError where the state cannot be read or is not there any more.
        """
        message = frames.Search(state.digest, endpoint.path, msgspec.json.encode(params), query)
        for _ in range(2):
            try:
                with self._taken() as process:
                    if time.monotonic() > due:
                        # It waited for a process that opened a state, which is none of this one's fault.
                        break
                    found = process.ask(message, _encoding(state.bundle), due)
            except Ended as error:
                if error.late or self._closed:
                    break
                continue
            if isinstance(found, frames.Failed):
                raise BundleError(found.message)
            return Answer(found.status, found.body)
        return refused(ApiError(503, "unanswered", "this search was given up", "ask again later, or for less"))

    @contextmanager
    def _taken(self, number: int | None = None) -> Iterator[SearchProcess]:
        """The process of a number, or the free one that searched last, which remembers most."""
        with self._changed:
            if number is not None:
                self._reserved.add(number)
                self._changed.wait_for(lambda: number in self._free)
                self._reserved.discard(number)
            else:
                self._changed.wait_for(lambda: set(self._free) - self._reserved)
                number = next(one for one in reversed(self._free) if one not in self._reserved)
            self._free.remove(number)
        try:
            yield self._all[number]
        except Ended as error:
            self._replace(number, late=error.late)
            raise
        finally:
            with self._changed:
                self._free.append(number)
                self._changed.notify_all()

    def _replace(self, number: int, *, late: bool) -> None:
        self._all[number].end()
        with self._changed:
            # Under the lock, so that no process is started behind the one who ends them all.
            if not self._closed:
                log.warning("a search %s; a process takes its place", "took too long" if late else "ended its process")
                self._all[number] = SearchProcess(self._path)


def query_of(bundle: Bundle, text: str, mode: str) -> frames.Query:
    """What a search process wants to know of a query before it asks for more; raises BundleError."""
    if not bundle.segments:
        return frames.Query()
    encoder, reason = query_encoder(bundle)
    question = encode_ahead(bundle, text, mode) if encoder is not None else None
    if question is None or question.vector is None:
        return frames.Query(no_encoder=reason)
    return frames.Query(question.text, question.vector.astype(np.float16).tobytes())


def _encoding(bundle: Bundle) -> Encode:
    def encode(texts: Sequence[str]) -> bytes:
        try:
            encoder, _ = query_encoder(bundle)
            return b"" if encoder is None else encoder.encode(texts, kind="query").tobytes()
        except Exception:
            # The process must get an answer; it says that there is no vector.
            log.exception("a query could not be encoded")
            return b""

    return encode
