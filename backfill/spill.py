"""Exchange rows that may be more than memory: beyond a budget they lie in a nameless temporary file.

A unit of hundreds of megabytes of conversation is read with what one of tens needs. Rows come back in the order in
which they were added, or by position. Deliberately absent: sorting and removing copies, which need keys alone.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, overload

import msgspec

from backfill.types import Exchange

BUDGET_BYTES = 24 << 20
_BLOCK_BYTES = 1 << 20


class ExchangeRows(Sequence[Exchange]):
    """A growing sequence of rows. `budget_bytes` of text stay in memory, estimated as one byte a character."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._held: list[Exchange] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._ends = array("q", [0])  # of the rows in the file
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Exchange)

    def append(self, row: Exchange) -> None:
        """Adds a row; writes all that are held to the file when they pass the budget. Raises OSError."""
        self._held.append(row)
        self._held_bytes += len(row.user_text) + len(row.agent_text) + len(row.thinking) + 500
        self._held_bytes += sum(len(t.head) + len(t.tail) + len(t.input) + 300 for t in row.tools)
        if self._held_bytes > self._budget:
            self._spill()

    def extend(self, rows: Iterable[Exchange]) -> None:
        """Adds rows."""
        for row in rows:
            self.append(row)

    def __iadd__(self, rows: Iterable[Exchange]) -> ExchangeRows:
        self.extend(rows)
        return self

    def settled(self) -> ExchangeRows | list[Exchange]:
        """The rows as a list where they are all in memory, else these."""
        return self._held if self._file is None else self

    def __len__(self) -> int:
        return len(self._ends) - 1 + len(self._held)

    @overload
    def __getitem__(self, at: int) -> Exchange: ...
    @overload
    def __getitem__(self, at: slice) -> list[Exchange]: ...
    def __getitem__(self, at: int | slice) -> Exchange | list[Exchange]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        position = at + len(self) if at < 0 else at
        if not 0 <= position < len(self):
            raise IndexError(at)
        n_spilled = len(self._ends) - 1
        if position >= n_spilled or self._file is None:
            return self._held[position - n_spilled]
        start, end = self._ends[position], self._ends[position + 1]
        return self._decoder.decode(os.pread(self._file.fileno(), end - start, start))

    def __iter__(self) -> Iterator[Exchange]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=_BLOCK_BYTES)  # noqa: SIM115  (closed with its rows)
            weakref.finalize(self, self._file.close)
        end = self._ends[-1]
        for row in self._held:
            data = self._encoder.encode(row)
            self._file.write(data)
            end += len(data)
            self._ends.append(end)
        self._file.flush()
        self._held, self._held_bytes = [], 0
