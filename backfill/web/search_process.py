"""A process that searches: `python -m backfill.web.search_process BUNDLE`, started by `backfill.web.processes`.

Reads frames from standard input and answers on what was standard output when it started, one at a time. Vectors of
queries come from the server, so no process but that one holds an encoder; vectors and postings are mapped, and thus
shared. Ends when its input ends, and within a second of its parent, so it never outlives the server.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from backfill.bundle import Bundle
from backfill.engines.child_pipe import follow_parent, leave_signals_to_parent
from backfill.errors import BackfillError, BundleError
from backfill.web import frames
from backfill.web.api import ENDPOINTS
from backfill.web.asking import answer_from, failed
from backfill.web.follow import open_state

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SEARCHES = {endpoint.path: endpoint for endpoint in ENDPOINTS if endpoint.searches}


class ServerEncoder:
    """The server's encoder: a vector that came with the search, or one that is asked for."""

    def __init__(self, dim: int, source: BinaryIO, sink: BinaryIO) -> None:
        self._dim, self._source, self._sink = dim, source, sink
        self.query = frames.Query()

    @property
    def dim(self) -> int:
        return self._dim

    def identity(self) -> dict[str, Any]:
        """Nothing: this encoder makes no vectors that are kept."""
        return {}

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float16]:
        """[N, D] float16. Raises BundleError for passages, and where the server gives rows of another length."""
        import numpy as np

        if kind != "query":
            raise BundleError("a search process encodes queries alone")
        if [self.query.words] == list(texts) and self.query.vector:
            data = self.query.vector
        else:
            frames.send(self._sink, frames.Encode(list(texts)))
            answer = frames.receive(self._source, frames.TO_PROCESS)
            data = answer.rows if isinstance(answer, frames.Vectors) else b""
        rows = np.frombuffer(data, np.float16)
        if len(rows) != len(texts) * self.dim:
            raise BundleError("the server's encoder gives vectors of another size")
        return rows.reshape(len(texts), self.dim)

    def truncated(self) -> int:
        """Not known here."""
        return 0

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """Not known here."""
        return [False] * len(texts)


class ServedBundle(Bundle):
    """A bundle whose encoder is another process's."""

    server_encoder: ServerEncoder

    def use(self, encoder: ServerEncoder, reason: str) -> None:
        """What `encoder()` gives from now on: nothing where the server has a reason why there is none."""
        self.server_encoder = encoder
        self.once("encoder", lambda: (None if reason else encoder, reason))


class Searcher:
    """Answers frames from the states of one bundle: the one in use, and while that is switched the next one."""

    def __init__(self, path: Path, source: BinaryIO, sink: BinaryIO) -> None:
        self._path, self._source, self._sink = path, source, sink
        self._states: dict[str, ServedBundle] = {}
        self._newest = ""

    def run(self) -> None:
        """Until the server is gone."""
        while True:
            try:
                message = frames.receive(self._source, frames.TO_PROCESS)
                frames.send(self._sink, self._answer(message))
            except frames.PipeClosed:
                return

    def _answer(self, message: frames.ToProcess) -> frames.ToServer:
        try:
            if isinstance(message, frames.Open):
                return self._open(message)
            if isinstance(message, frames.Search):
                return self._search(message)
        except (BackfillError, OSError) as error:
            return frames.Failed(str(error))
        return frames.Failed("nothing was asked")

    def _open(self, message: frames.Open) -> frames.Found:
        bundle = self._state(message.digest, message.query)
        if bundle.segments:
            bundle.search(message.text, k=1)
        return frames.Found(200, b"")

    def _search(self, message: frames.Search) -> frames.Found:
        endpoint = _SEARCHES[message.path]
        params = msgspec.json.decode(message.params, type=endpoint.params)
        bundle = self._state(message.digest, message.query)
        if message.digest == self._newest:
            # The server has gone over to it.
            for digest in [digest for digest in self._states if digest != self._newest]:
                self._states.pop(digest).close()
        try:
            answer = answer_from(bundle, endpoint, params)
        except (BackfillError, frames.PipeClosed):
            raise
        except Exception as error:
            answer = failed(message.path, error)
        return frames.Found(answer.status, answer.body)

    def _state(self, digest: str, query: frames.Query) -> ServedBundle:
        """Raises BundleError where the state of this digest is not there any more."""
        if digest not in self._states:
            bundle, found = open_state(self._path, lambda: ServedBundle.open(self._path, keep_mapped=True))
            if found != digest:
                raise BundleError("this state of the bundle was replaced")
            info = bundle.manifest.encoder
            bundle.use(ServerEncoder(info.dim if info else 0, self._source, self._sink), query.no_encoder)
            self._states[digest], self._newest = bundle, digest
        bundle = self._states[digest]
        bundle.server_encoder.query = query
        return bundle


def main() -> int:
    """Answers until standard input ends."""
    # A print of a library must not land between two frames.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb")
    leave_signals_to_parent()
    threading.Thread(target=follow_parent, daemon=True).start()
    Searcher(Path(sys.argv[1]), source, sink).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
