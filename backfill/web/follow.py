"""The open bundle, followed: when its manifest is replaced, the new state is opened aside and then takes its place.

A request keeps the state that it began with. Files of an old state stay readable while they are mapped; one that
`gc` has taken before it was first needed makes the request fail with BundleError, and the caller may try the new
state. Deliberately absent: file system notifications, which network file systems lack; two `stat` a second are cheap.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backfill.bundle import Bundle
from backfill.errors import BackfillError

log = logging.getLogger(__name__)
CHECK_EVERY_S = 0.5
B = TypeVar("B", bound=Bundle)


@dataclass(frozen=True, slots=True)
class State:
    """An open bundle and the digest of its manifest, which vouches for every answer from it."""

    bundle: Bundle
    digest: str


class Follower:
    """Opens the bundle in `path` and reopens it in `executor` when its manifest changes.

    `warm` makes a reopened state ready before it takes its place. Raises UsageError or BundleError when the first
    opening fails; later failures are logged and the old state stays.
    """

    def __init__(
        self,
        path: Path,
        executor: Executor,
        *,
        trust_encoder: bool = False,
        encoder_threads: int = 0,
        warm: Callable[[State], None] | None = None,
    ) -> None:
        self._path = path
        self._executor = executor
        self._warm = warm or warm_up
        self._trust_encoder = trust_encoder
        self._encoder_threads = encoder_threads
        self._opening = threading.Lock()
        self._checked = time.monotonic()
        self._pending: Future[None] | None = None
        self._signature = self._read_signature()
        self._state = self._open()

    def current(self) -> State:
        """The newest opened state; at most twice a second it looks whether there is a newer one to open."""
        now = time.monotonic()
        if now - self._checked >= CHECK_EVERY_S and (self._pending is None or self._pending.done()):
            self._checked = now
            if self._read_signature() != self._signature:
                self._pending = self._executor.submit(self.refresh)
        return self._state

    def refresh(self) -> None:
        """Opens what the manifest says now, if it changed. Called from worker threads."""
        with self._opening:
            signature = self._read_signature()
            if signature == self._signature:
                return
            try:
                state = self._open()
                self._warm(state)
            except (BackfillError, OSError) as error:
                log.warning("the bundle changed but cannot be opened, the old state stays: %s", error)
                # Asked again at the next change alone: a broken manifest must not be parsed twice a second.
                self._signature = signature
                return
            self._state, self._signature = state, signature

    def _open(self) -> State:
        return State(*open_state(self._path, self._open_bundle))

    def _open_bundle(self) -> Bundle:
        return Bundle.open(
            self._path, trust_encoder=self._trust_encoder, encoder_threads=self._encoder_threads, keep_mapped=True
        )

    def _read_signature(self) -> tuple[int, int, int] | None:
        try:
            found = (self._path / "manifest.json").stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def open_state(path: Path, open_bundle: Callable[[], B]) -> tuple[B, str]:
    """(the bundle as `open_bundle` opens it, the SHA-256 of the manifest that it was opened by)."""
    manifest = path / "manifest.json"
    while True:
        before = manifest.read_bytes() if manifest.is_file() else b""
        bundle = open_bundle()
        if before == manifest.read_bytes():
            return bundle, hashlib.sha256(before).hexdigest()


def warm_up(state: State) -> None:
    """Loads encoder, indexes, menus and what the first pages show, so that no request waits for them."""
    if state.bundle.segments:
        state.bundle.search("warm up", k=1)
    warm_up_pages(state)


def warm_up_pages(state: State) -> None:
    """The same without the indexes, which where processes search are theirs."""
    from backfill.filters import Filters
    from backfill.web import api, browse, parameters

    bundle = state.bundle
    api.get_stats(bundle, parameters.NoParams())
    api.get_timeline(bundle, parameters.TimelineParams())
    api.get_palace(bundle, parameters.PalaceParams())
    found = browse.newest(bundle, Filters(), 0, 1)[0]
    if found:
        api.get_exchange(bundle, parameters.ExchangeParams(id=found[0].exchange_id))
