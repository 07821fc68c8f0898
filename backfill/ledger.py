"""The ledger: what became of every byte of a source.

`LedgerBuilder` collects one fate per record while a unit is read and merges neighbours into runs; `check` proves that
rows tile their files and name exchanges that exist. Deliberately absent: content; a row says where, never what.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeAlias

from backfill.types import LedgerRow, LedgerState

Outcome: TypeAlias = tuple[LedgerState, str, bytes | None]
"""State, reason and ref of a run of bytes."""


class Owner(Protocol):
    """What a record became part of; its id is known once it is complete."""

    exchange_id: bytes


class Fate:
    """What became of a record. May be settled after the record was read: a slash command that is answered later.

    A copy of a record names its `original`: it is a duplicate of what the original belongs to, or shares its fate.
    """

    __slots__ = ("original", "owner", "reason", "state")

    def __init__(
        self, state: LedgerState, reason: str = "", owner: Owner | None = None, original: Fate | None = None
    ) -> None:
        self.state: LedgerState = state
        self.reason = reason
        self.owner = owner
        self.original = original

    def settle(self, state: LedgerState, owner: Owner) -> None:
        """Replaces what was provisionally said."""
        self.state, self.reason, self.owner = state, "", owner

    def outcome(self) -> Outcome:
        """(state, reason, ref) as they stand."""
        if self.original is not None:
            state, reason, ref = self.original.outcome()
            return (state, reason, None) if ref is None else ("duplicate", "", ref)
        return self.state, self.reason, None if self.owner is None else self.owner.exchange_id


class LedgerBuilder:
    """Collects fates; each covers the bytes from the end of the one before it in the file."""

    def __init__(self, source: str) -> None:
        self.source = source
        # Runs, column by column: there may be one a record.
        self._ends = array("q")
        self._counts = array("q")
        self._fates: list[Fate] = []
        self._scattered = False
        self._last: Fate | None = None  # of the last run

    def add(self, byte_end: int, fate: Fate, *, scattered: bool = False) -> None:
        """One record that ends at `byte_end`; `scattered` ones come in another order than the file's."""
        if scattered:
            self._scattered = True
        elif fate is self._last:
            self._ends[-1] = byte_end
            self._counts[-1] += 1
            return
        self._append(byte_end, 1, fate)

    def cover(self, byte_end: int, fate: Fate) -> None:
        """Bytes without records, up to `byte_end`."""
        self._append(byte_end, 0, fate)

    def refs(self) -> frozenset[bytes]:
        """The exchanges that are complete so far."""
        found = (fate.outcome()[2] for fate in self._fates)
        return frozenset(ref for ref in found if ref)

    def rows(self, size_bytes: int, file_digest: bytes) -> list[LedgerRow]:
        """The rows, tiling [0, size_bytes); bytes after the last record go to it."""
        rows: list[LedgerRow] = []
        start = end = records = 0
        said: Outcome | None = None  # of the run from `start` to `end`
        order = range(len(self._ends))
        for at in sorted(order, key=self._ends.__getitem__) if self._scattered else order:
            outcome = self._fates[at].outcome()
            if said is not None and outcome != said:
                rows.append(LedgerRow(self.source, start, end, records, *said, file_digest))
                start, records = end, 0
            said = outcome
            end = self._ends[at]
            records += self._counts[at]
        said = said or ("skipped", "empty", None)
        rows.append(LedgerRow(self.source, start, size_bytes, records, *said, file_digest))
        return rows

    def _append(self, byte_end: int, n_records: int, fate: Fate) -> None:
        self._last = fate
        self._ends.append(byte_end)
        self._counts.append(n_records)
        self._fates.append(fate)


def check(
    rows: Iterable[LedgerRow], sizes: Mapping[str, int], exchange_ids: Collection[bytes] | None = None
) -> list[str]:
    """Problems of a ledger, none if it balances: rows that do not tile their file, references that do not exist.

    `sizes` are file sizes by source: of each one some reading must tile [0, size). Older readings of a file that has
    grown tile their own length. References are checked where `exchange_ids` is given.
    """
    problems: list[str] = []
    readings: dict[tuple[str, bytes], list[LedgerRow]] = defaultdict(list)
    for row in rows:
        readings[row.source, row.file_digest].append(row)
        if (row.state == "part_of") != (row.ref is not None) and row.state != "duplicate":
            problems.append(f"{row.source}: {row.state} at byte {row.byte_start} has the wrong kind of reference")
        if exchange_ids is not None and row.ref is not None and row.ref not in exchange_ids:
            problems.append(f"{row.source}: byte {row.byte_start} refers to {row.ref.hex()}, which does not exist")
    ends: dict[str, set[int]] = defaultdict(set)
    for (source, _), group in readings.items():
        at = 0
        for row in sorted(group, key=lambda r: (r.byte_start, r.byte_end)):
            if row.byte_start != at or row.byte_end < row.byte_start:
                problems.append(f"{source}: bytes {at} to {row.byte_start} are not accounted for once")
            at = row.byte_end
        ends[source].add(at)
    for source, size in sizes.items():
        if size not in ends[source]:
            problems.append(f"{source}: no reading covers its {size} bytes")
    return problems
