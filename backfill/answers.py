"""The log of engine answers: one file a worker, appended to, replayed on resume.

A killed shard loses the seconds since the last sync, not its hours. A line is one JSON object; a torn last line is
ignored. The key holds the prompt's digest beside content and fingerprint: rows of one content may differ in tool
output, and an answer counts only for the very prompt that it was given to. Deliberately absent: errors; what failed
is tried again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import msgspec

from backfill.engines.base import Answer

SYNC_S = 3.0

Key: TypeAlias = tuple[bytes, int, bytes]
"""(content_id, attempt, prompt digest) under the log's one fingerprint."""


class _Line(msgspec.Struct):
    content_id: str
    fingerprint: str
    attempt: int
    prompt: str
    text: str
    finish: str
    tokens: tuple[int, int, int]


class AnswerLog:
    """Answers of one fingerprint: those of earlier runs to look up, new ones appended to `path`.

    `replay` names earlier logs, `path` among them or not; missing ones are passed over. Raises OSError where `path`
    cannot be written.
    """

    def __init__(self, path: Path, fingerprint: str, *, replay: Iterable[Path] = ()) -> None:
        self._fingerprint = fingerprint
        self._known: dict[Key, Answer] = {}
        for source in {*replay, path}:
            self._read(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if self._file.tell() and not _ends_in_newline(path):
            self._file.write(b"\n")
        self._synced = time.monotonic()
        self._encoder = msgspec.json.Encoder()

    def get(self, key: Key) -> Answer | None:
        """The recorded answer, with key 0; None where there is none."""
        return self._known.get(key)

    def add(self, key: Key, answer: Answer) -> None:
        """Records an answer that has a text; synced to disk within about three seconds of adding."""
        content, attempt, prompt = key
        self._known[key] = answer
        line = _Line(
            content.hex(),
            self._fingerprint,
            attempt,
            prompt.hex(),
            answer.text,
            answer.finish_reason,
            (answer.tokens_in, answer.tokens_out, answer.tokens_cached),
        )
        self._file.write(self._encoder.encode(line) + b"\n")
        if time.monotonic() - self._synced >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Makes everything added so far survive a crash of the machine."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """Syncs and closes; safe to call twice."""
        self.sync()
        self._file.close()

    def __enter__(self) -> AnswerLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, path: Path) -> None:
        decoder = msgspec.json.Decoder(_Line)
        if not path.exists():
            return
        with path.open("rb") as file:
            for data in file:
                with contextlib.suppress(msgspec.DecodeError, ValueError):
                    line = decoder.decode(data)
                    if line.fingerprint == self._fingerprint and data.endswith(b"\n"):
                        key = (bytes.fromhex(line.content_id), line.attempt, bytes.fromhex(line.prompt))
                        self._known[key] = Answer(0, line.text, line.finish, "", *line.tokens)


def answered_contents(paths: Iterable[Path], fingerprint: str) -> frozenset[bytes]:
    """The contents whose first question the logs have an answer to, under one fingerprint; missing logs have none."""
    decoder = msgspec.json.Decoder(_Line)
    found: set[bytes] = set()
    for path in paths:
        if not path.exists():
            continue
        with path.open("rb") as file:
            for data in file:
                with contextlib.suppress(msgspec.DecodeError, ValueError):
                    line = decoder.decode(data)
                    if line.fingerprint == fingerprint and line.attempt == 1 and data.endswith(b"\n"):
                        found.add(bytes.fromhex(line.content_id))
    return frozenset(found)


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
