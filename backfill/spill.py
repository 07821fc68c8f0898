"""Rows that may be more than memory: beyond a budget they lie in a nameless temporary file.

A unit of hundreds of megabytes of conversation is read with what one of tens needs. Rows come back in the order in
which they were added, or by position. Deliberately absent: sorting and removing copies, which need keys alone.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, overload

import msgspec

from backfill.types import Claim, Exchange, LedgerRow, Occurrence, PalaceObject, Row

BUDGET_BYTES = 12 << 20
_PLACES_BUDGET_BYTES = 4 << 20
_OCCURRENCE_BYTES = 600
_LEDGER_BYTES = 250
_OBJECT_BYTES = 2_000
_CLAIM_BYTES = 800
_BLOCK_BYTES = 1 << 20
R = TypeVar("R", bound=Row)


class SpilledRows(Sequence[R], Generic[R]):
    """A growing sequence of rows of one kind, of which about `budget_bytes` stay in memory; `size_of` estimates one."""

    def __init__(
        self, kind: type[R], size_of: Callable[[R], int], budget_bytes: int, folder: Path | None = None
    ) -> None:
        """The file lies in `folder`, or where temporary files lie."""
        self._size_of = size_of
        self._budget = budget_bytes
        self._folder = folder
        self._held: list[R] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._ends = array("q", [0])  # of the rows in the file
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)

    def append(self, row: R) -> None:
        """Adds a row; writes all that are held to the file when they pass the budget. Raises OSError."""
        self._held.append(row)
        self._held_bytes += self._size_of(row)
        if self._held_bytes > self._budget:
            self._spill()

    def extend(self, rows: Iterable[R]) -> None:
        """Adds rows."""
        for row in rows:
            self.append(row)

    def __iadd__(self, rows: Iterable[R]) -> SpilledRows[R]:
        self.extend(rows)
        return self

    def settled(self) -> SpilledRows[R] | list[R]:
        """The rows as a list where they are all in memory, else these."""
        return self._held if self._file is None else self

    def __len__(self) -> int:
        return len(self._ends) - 1 + len(self._held)

    @overload
    def __getitem__(self, at: int) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> list[R]: ...
    def __getitem__(self, at: int | slice) -> R | list[R]:
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

    def __iter__(self) -> Iterator[R]:
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
            self._file = tempfile.TemporaryFile(buffering=_BLOCK_BYTES, dir=self._folder)  # noqa: SIM115  (closed with its rows)
            weakref.finalize(self, self._file.close)
        end = self._ends[-1]
        for row in self._held:
            data = self._encoder.encode(row)
            self._file.write(data)
            end += len(data)
            self._ends.append(end)
        self._file.flush()
        self._held, self._held_bytes = [], 0


class Ordered(Sequence[R], Generic[R]):
    """Rows in another order: the row at a place is that of `rows` at the position which `order` has there."""

    def __init__(self, rows: Sequence[R], order: Sequence[int]) -> None:
        self._rows = rows
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> list[R]: ...
    def __getitem__(self, at: int | slice) -> R | list[R]:
        if isinstance(at, slice):
            return [self._rows[i] for i in self._order[at]]
        return self._rows[self._order[at]]

    def __iter__(self) -> Iterator[R]:
        return (self._rows[i] for i in self._order)


def rows_of_table(table: str, folder: Path) -> SpilledRows[Any]:
    """Rows of a table of a segment, whose file would lie in `folder`. Raises KeyError for another table."""
    budgets: dict[str, tuple[type[Any], Callable[[Any], int], int]] = {
        "exchanges": (Exchange, _exchange_bytes, BUDGET_BYTES),
        "occurrences": (Occurrence, lambda _: _OCCURRENCE_BYTES, _PLACES_BUDGET_BYTES),
        "objects": (PalaceObject, lambda _: _OBJECT_BYTES, BUDGET_BYTES),
        "claims": (Claim, lambda _: _CLAIM_BYTES, _PLACES_BUDGET_BYTES),
    }
    return SpilledRows(*budgets[table], folder)


def exchange_rows(budget_bytes: int = BUDGET_BYTES) -> SpilledRows[Exchange]:
    """Rows of exchanges; their texts are taken as one byte a character."""
    return SpilledRows(Exchange, _exchange_bytes, budget_bytes)


def occurrence_rows(budget_bytes: int = _PLACES_BUDGET_BYTES) -> SpilledRows[Occurrence]:
    """Rows of occurrences."""
    return SpilledRows(Occurrence, lambda _: _OCCURRENCE_BYTES, budget_bytes)


def ledger_rows(budget_bytes: int = _PLACES_BUDGET_BYTES) -> SpilledRows[LedgerRow]:
    """Rows of a ledger."""
    return SpilledRows(LedgerRow, lambda _: _LEDGER_BYTES, budget_bytes)


def joined(parts: Sequence[Sequence[R]], rows: SpilledRows[R]) -> Sequence[R]:
    """The rows of all parts, collected in `rows`; of a single part just these."""
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        rows.extend(part)
    return rows.settled()


def _exchange_bytes(row: Exchange) -> int:
    texts = len(row.user_text) + len(row.agent_text) + len(row.thinking) + 500
    return texts + sum(len(t.head) + len(t.tail) + len(t.input) + 300 for t in row.tools)
