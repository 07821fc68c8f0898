"""Files that grow: read on from the last whole line of the reading before, where its bytes still stand there.

A reading that went on yields the rows that a reading of the whole file yields, but for those that were complete
before. Deliberately absent: formats whose order is not that of their lines; those are read again whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from backfill.ids import ID_BYTES
from backfill.privacy import Redactor
from backfill.records import Record
from backfill.segment import Segmenter
from backfill.sources.base import LineByLine, Unit
from backfill.sources.checkpoint import Checkpoint, freeze, thaw

# A smaller file is read again in a tenth of a second; what its state costs would be paid by all that never grow.
MIN_BYTES = 4 << 20
_BLOCK_BYTES = 1 << 20


class Feed:
    """Reads a unit into a segmenter, on from a checkpoint where it fits; `kept` is what a later reading needs.

    `earlier` are the exchanges that the reading before has given.
    """

    def __init__(self, reader: LineByLine, segmenter: Segmenter, unit: Unit, redactor: Redactor) -> None:
        self.kept: Checkpoint | None = None
        self.earlier: frozenset[bytes] = frozenset()
        self._reader, self._segmenter, self._unit, self._redactor = reader, segmenter, unit, redactor

    def read(self, checkpoint: Checkpoint | None, file: BinaryIO) -> None:
        """Reads everything; `file` is at its beginning."""
        state = self._resumed(checkpoint) if checkpoint is not None else None
        if state is None:
            file.seek(0)
            self._unit.hashed, self._unit.bytes_read = hashlib.blake2b(digest_size=ID_BYTES), 0
            state = self._reader.begin(self._unit)
        size = self._unit.size_bytes
        whole = _end_of_lines(file, size)
        if whole >= MIN_BYTES and whole >= self._unit.bytes_read:
            self._unit.size_bytes = whole
            self._feed(self._reader.go_on(state, self._unit))
            self._unit.size_bytes = size
            if self._unit.bytes_read == whole:
                self._keep(state)
        self._feed(self._reader.go_on(state, self._unit))
        self._feed(self._reader.end(state))

    def _feed(self, records: Iterator[Record]) -> None:
        for record in records:
            self._segmenter.feed(record)

    def _resumed(self, checkpoint: Checkpoint) -> Any:
        """The reader's state at the checkpoint, with the unit read up to there; None where the file has changed."""
        unit = self._unit
        if checkpoint.offset > unit.size_bytes:
            return None
        while unit.bytes_read < checkpoint.offset:
            if not unit.read(min(_BLOCK_BYTES, checkpoint.offset - unit.bytes_read)):
                return None
        if unit.hashed.digest() != checkpoint.digest:
            return None
        try:
            whole = thaw(checkpoint.state, unit, self._reader.state_classes)
            reader, segmenter = whole["reader"], whole["segmenter"]
        except (ValueError, KeyError, TypeError):
            return None
        self._segmenter.restore(segmenter)
        self.earlier = self._segmenter.ledger.refs()
        return reader

    def _keep(self, state: Any) -> None:
        root = {"reader": state, "segmenter": self._segmenter.state()}
        try:
            frozen = freeze(root, self._reader.state_classes, self._redactor)
        except OverflowError:
            return  # a number beyond 64 bits among the arguments of an open call: such a file is read again whole
        if frozen is not None:
            self.kept = Checkpoint(self._unit.source, self._unit.bytes_read, self._unit.hashed.digest(), frozen)


def _end_of_lines(file: BinaryIO, size_bytes: int) -> int:
    """Where the last whole line of the first `size_bytes` bytes ends."""
    end = size_bytes
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        at = os.pread(file.fileno(), end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
