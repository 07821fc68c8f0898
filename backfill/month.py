"""The rows of one month from all pieces of a merge: distinct, in canonical order, in temporary files beyond a budget.

A piece is read once, a row group at a time. In memory are, for each row, its position in the order, its place in the
file and whether it shows, and for each object and claim where its vectors lie: about 130 bytes an exchange. The files
lie with the writer's own, for a folder of temporary files may be memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.compose import F16, VECTOR_BLOCK_ROWS, SegmentRows, dim_of, no_vector
from backfill.documents import documents_of
from backfill.greater import GreaterVectors
from backfill.inputs import Settings
from backfill.overview import Keys, Overview
from backfill.pieces import TABLES, Piece, texts_of
from backfill.rows import canonical_order
from backfill.spill import Ordered, rows_of_table
from backfill.verbatim_vectors import VerbatimVectors

I64 = npt.NDArray[np.int64]
# Per piece that has any: the positions of its rows of a month, by table.
Members = list[tuple[int, dict[str, I64]]]


@dataclass(slots=True)
class Month:
    """A month's rows, and where each row lies: (pieces [N] i4, positions in them [N] i8) by table."""

    rows: SegmentRows
    origins: dict[str, tuple[npt.NDArray[np.int32], I64]]
    docs: dict[str, npt.NDArray[Any]]


def read_month(pieces: Sequence[Piece], view: Overview, here: Members, folder: Path) -> Month:
    """Reads the rows of a month; `folder` takes the temporary files. Raises BundleError or ShardError, and OSError."""
    rows: dict[str, Ordered[Any]] = {}
    origins = {}
    shown = {}
    for table in TABLES:
        found = rows_of_table(table, folder)
        for number, positions in here:
            found.extend(pieces[number].each(table, positions[table]))
        settled = found.settled()
        order = canonical_order(table, settled)
        rows[table] = Ordered(settled, order)
        owners = np.repeat(np.array([n for n, _ in here], np.int32), [len(p[table]) for _, p in here])
        places = np.concatenate([np.empty(0, np.int64), *(p[table] for _, p in here)])
        kept = np.array(order, np.int64)
        if table in ("occurrences", "claims"):
            keys: Keys = getattr(view, table)
            flags = view.occurrences_shown if table == "occurrences" else view.claims_shown
            shown[table] = flags[keys.starts[owners[kept]] + places[kept]]
        origins[table] = (owners[kept], places[kept])
    segment = SegmentRows(**rows)
    docs = documents_of(**rows, occurrences_shown=shown["occurrences"], claims_shown=shown["claims"])
    return Month(segment, origins, docs)


@dataclass(slots=True)
class MonthVectors:
    """The vectors of a month's rows, taken from the pieces as they are written; see `compose.SegmentVectors`."""

    month: Month
    pieces: Sequence[Piece]
    settings: Settings
    greater: GreaterVectors
    found_verbatim: VerbatimVectors

    def blocks(self, table: str, part: str) -> Iterator[F16]:
        """See SegmentVectors."""
        rows: Sequence[Any] = getattr(self.month.rows, table)
        for start in range(0, len(rows), VECTOR_BLOCK_ROWS):
            block = slice(start, start + VECTOR_BLOCK_ROWS)
            matrix = self._recorded(table, part, block)
            if self.greater:
                self.greater.put(matrix, texts_of(rows[block], part))
            yield matrix

    def verbatim(self, key: bytes) -> bytes | None:
        """See SegmentVectors."""
        data = self.found_verbatim.find(key)
        return self.greater.of(key, data) if data else None

    def _recorded(self, table: str, part: str, block: slice) -> F16:
        owners, positions = (found[block] for found in self.month.origins[table])
        matrix = np.zeros((len(owners), dim_of(self.settings)), "<f2")
        for number in np.unique(owners).tolist():
            piece, mine = self.pieces[number], np.flatnonzero(owners == number)
            stored = piece.vectors(part)
            if stored is None or stored.shape[1] != matrix.shape[1]:
                row = piece.rows(table, positions[mine[:1]])
                raise no_vector(part, texts_of(row, part)[0], matrix.shape[1])
            piece.compare_vectors(part)
            matrix[mine] = stored[positions[mine]]
        return matrix
