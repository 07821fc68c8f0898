"""What a merge reads, piece by piece: shards of runs, segments of bundles, and small deltas that lie in memory.

A piece gives the key columns of its tables as arrays, and whole rows by position only where they are needed, so that a
merge holds a few hundred bytes an exchange and one segment's rows at a time. Deliberately absent: what is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from backfill import tables
from backfill.arrays import open_arrays
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, keys_of, verbatim_chunks
from backfill.durable import sha256_file
from backfill.embed import CLAIM_VECTORS, object_texts, part_text
from backfill.errors import BundleError, ShardError
from backfill.indexes.vectors import open_vectors
from backfill.piece_columns import ID, empty, is_odd, plain, same_type
from backfill.rows import refuse_odd
from backfill.sums import SEGMENT_TABLES
from backfill.superseded import subject_keys
from backfill.union import Union, text_hash, text_keys

TABLES = SEGMENT_TABLES

_EACH: dict[str, tuple[str, ...]] = {
    "exchanges": ("exchange_id",),
    "occurrences": (
        "agent", "session_id", "anchor", "part", "scan_version", "n_records", "exchange_id", "source", "byte_end",
        "started_at",
    ),
    "objects": ("exchange_id",),
    "claims": (
        "claim_id", "exchange_ids", "session_id", "source", "window", "reading", "tier", "generation", "fingerprint",
    ),
}  # fmt: skip


Positions: TypeAlias = "Sequence[int] | npt.NDArray[np.int64]"


class Piece(Protocol):
    """Rows of some tables. `month` is the segment that the rows come from, "" where they are unsorted."""

    name: str
    month: str

    def n_rows(self, table: str) -> int:
        """Rows of a table."""
        ...

    def columns(self, table: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Columns of a table: Arrow arrays (times as i8 microseconds), in the order of the rows."""
        ...

    def rows(self, table: str, positions: Positions) -> list[Any]:
        """The rows at the positions, in their order."""
        ...

    def each(self, table: str, positions: npt.NDArray[np.int64]) -> Iterator[Any]:
        """The rows at rising positions, a row group in memory at a time."""
        ...

    def vectors(self, part: str) -> Any:
        """[N, D] f2 of a part of the objects, of `claims`, or of `verbatim`; None where there are none."""
        ...

    def compare_vectors(self, part: str) -> None:
        """Raises BundleError unless the file of these vectors is the one that was written."""
        ...

    def text_keys(self, part: str) -> npt.NDArray[np.uint64]:
        """[N] u8: keys of the texts that `vectors` belong to."""
        ...

    def text_hashes(self) -> npt.NDArray[np.uint8]:
        """[M, 16] u1: whole hashes of the texts that the `verbatim` vectors belong to."""
        ...


@dataclass(slots=True)
class FilePiece:
    """Rows in Parquet files, vectors in .f16 files. `files` are (path, SHA-256 or "") by role.

    `vouched`: this user's own commands wrote every file of it, so derived files may be taken over: `entries` of the
    manifest in `root`. `check` looks at exchange rows that were read, and raises where they are not honest.
    """

    name: str
    month: str
    files: Mapping[str, tuple[Path, str]]
    dim: int = 0
    parts: tuple[str, ...] = ()
    vouched: bool = False
    check: Any = None
    root: Path = Path()
    hint: str = "restore it, or merge without it; `backfill verify` names every damaged file"
    entries: tuple[Mapping[str, Any], ...] = ()
    _open: dict[str, Any] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    def n_rows(self, table: str) -> int:
        """Rows of a table."""
        return int(self._file(table).metadata.num_rows) if table in self.files else 0

    def columns(self, table: str, names: Sequence[str]) -> Mapping[str, Any]:
        """See Piece."""
        if table not in self.files:
            return {name: empty(table, name) for name in names}
        self._check_schema(table, names)
        try:
            data = self._file(table).read(columns=list(names))
        except (pa.ArrowException, OSError, ValueError) as error:
            self._compare(table)
            raise ShardError(f"{self.name}: {table} cannot be read: {error}") from error
        found = {name: plain(data.column(name).combine_chunks()) for name in names}
        if self.check is not None and any(map(is_odd, found, found.values())):
            raise BundleError(
                f"{self.name}: {table} lacks a value, or has one that is none of its kind",
                hint="the bundle is damaged, or not honest",
            )
        return found

    def rows(self, table: str, positions: Positions) -> list[Any]:
        """See Piece. Reads only the row groups that hold the positions."""
        order = np.argsort(np.asarray(positions, np.int64), kind="stable")
        out: list[Any] = [None] * len(order)
        for place, row in zip(order, self.each(table, np.asarray(positions, np.int64)[order]), strict=True):
            out[place] = row
        return out

    def each(self, table: str, positions: npt.NDArray[np.int64]) -> Iterator[Any]:
        """See Piece. Reads only the row groups that hold the positions."""
        if not len(positions):
            return
        self._compare(table)
        self._check_schema(table, tables.TABLES[table].schema.names)
        file = self._file(table)
        starts = np.cumsum([0] + [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
        at = 0
        while at < len(positions):
            group = int(np.searchsorted(starts, positions[at], side="right")) - 1
            end = int(np.searchsorted(positions, starts[group + 1]))
            data = file.read_row_group(group).take(pa.array(positions[at:end] - starts[group]))
            read = partial(tables.from_arrow, tables.TABLES[table], data)
            rows = read() if self.check is None else refuse_odd(table, read, self.name)
            if table == "exchanges" and self.check is not None:
                self.check(rows)
            yield from rows
            at = end

    def vectors(self, part: str) -> Any:
        """See Piece."""
        role = _vector_role(part)
        if role not in self.files or not self.dim:
            return None
        if role not in self._open:
            table = "claims" if part == "claims" else "objects"
            n_rows = len(self.text_hashes()) if part == "verbatim" else self.n_rows(table)
            self._open[role] = open_vectors(self._path(role), self.dim, n_rows)
        return self._open[role]

    def compare_vectors(self, part: str) -> None:
        """See Piece."""
        self._compare(_vector_role(part))

    def text_keys(self, part: str) -> npt.NDArray[np.uint64]:
        """See Piece. From the segment's own sums where it is vouched for, else from the texts."""
        if part == "verbatim":
            return _first_bytes(self.text_hashes())
        if self.vouched and f"text-{part}" in (sums := self.sums()):
            return np.asarray(sums[f"text-{part}"])
        if part == "claims":
            return text_keys(self.columns("claims", ["text"])["text"].to_pylist())
        columns = self.columns("objects", ["exchange_core", "specific_context"])
        core, context = columns["exchange_core"].to_pylist(), columns["specific_context"].to_pylist()
        return text_keys([part_text(part, a, b) for a, b in zip(core, context, strict=True)])

    def text_hashes(self) -> npt.NDArray[np.uint8]:
        """See Piece."""
        if VERBATIM_ROWS not in self.files:
            return keys_of([])
        if VERBATIM_ROWS not in self._open:
            self._compare(VERBATIM_ROWS)
            keys = open_arrays(self._path(VERBATIM_ROWS)).get("key")
            if keys is None or keys.ndim != 2 or keys.shape[1] != 16 or keys.dtype != np.uint8:
                raise BundleError(f"{self.name}: {VERBATIM_ROWS} has no keys of 16 bytes", hint=self.hint)
            self._open[VERBATIM_ROWS] = keys
        hashes: npt.NDArray[np.uint8] = self._open[VERBATIM_ROWS]
        return hashes

    def sums(self) -> Mapping[str, Any]:
        """The arrays of the segment's `sums` file; empty where it has none."""
        if "sums" not in self.files:
            return {}
        if "sums" not in self._open:
            self._compare("sums")
            self._open["sums"] = open_arrays(self._path("sums"))
        arrays: Mapping[str, Any] = self._open["sums"]
        return arrays

    def docs(self) -> Mapping[str, Any]:
        """The arrays of the segment's `docs` file."""
        if "docs" not in self._open:
            self._compare("docs")
            self._open["docs"] = open_arrays(self._path("docs"))
        arrays: Mapping[str, Any] = self._open["docs"]
        return arrays

    def _check_schema(self, table: str, names: Sequence[str]) -> None:
        found, wanted = self._file(table).schema_arrow, tables.TABLES[table].schema
        for name in names:
            at = found.get_field_index(name)
            if at < 0 or not same_type(found.field(at).type, wanted.field(name).type):
                raise BundleError(
                    f"{self.name}: {table} has no column {name} of type {wanted.field(name).type}",
                    hint="another version of backfill wrote it: make it again from its run, or its sources",
                )

    def _file(self, table: str) -> pq.ParquetFile:
        if table not in self._open:
            try:
                self._open[table] = pq.ParquetFile(self._path(table), memory_map=True)
            except (pa.ArrowException, OSError) as error:
                self._compare(table)
                raise ShardError(f"{self.name}: {table} is no Parquet file: {error}") from error
        file: pq.ParquetFile = self._open[table]
        return file

    def _path(self, role: str) -> Path:
        """A file that may be read. Of what is vouched for, keys are read unchecked: copies and rows are compared."""
        if not self.vouched:
            self._compare(role)
        return self.files[role][0]

    def _compare(self, role: str) -> None:
        path, digest = self.files[role]
        if digest and role not in self._checked:
            if not path.is_file() or sha256_file(path) != digest:
                raise BundleError(f"{path} is missing or differs from its checksum", hint=self.hint)
            self._checked.add(role)


@dataclass(slots=True)
class MemoryPiece:
    """A union in memory as one piece."""

    name: str
    union: Union
    month: str = ""
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _vectors: dict[str, Any] = field(default_factory=dict)

    def _all(self, table: str) -> list[Any]:
        if table not in self._rows:
            self._rows[table] = list(getattr(self.union, table).values())
        return self._rows[table]

    def n_rows(self, table: str) -> int:
        """Rows of a table."""
        return len(self._all(table))

    def columns(self, table: str, names: Sequence[str]) -> Mapping[str, Any]:
        """See Piece."""
        data = tables.to_arrow(tables.TABLES[table], self._all(table))
        return {name: plain(data.column(name).combine_chunks()) for name in names}

    def rows(self, table: str, positions: Positions) -> list[Any]:
        """See Piece."""
        rows = self._all(table)
        return [rows[int(at)] for at in positions]

    def each(self, table: str, positions: npt.NDArray[np.int64]) -> Iterator[Any]:
        """See Piece."""
        rows = self._all(table)
        return (rows[at] for at in positions.tolist())

    def vectors(self, part: str) -> Any:
        """See Piece."""
        if part not in self._vectors:
            found = [self.union.vectors.get(text_hash(text)) for text in self._texts(part)]
            known = [data for data in found if data is not None]
            whole = found and len(known) == len(found)
            self._vectors[part] = np.frombuffer(b"".join(known), "<f2").reshape(len(known), -1) if whole else None
        return self._vectors[part]

    def compare_vectors(self, part: str) -> None:
        """See Piece. Memory is believed."""

    def text_keys(self, part: str) -> npt.NDArray[np.uint64]:
        """See Piece."""
        return text_keys(self._texts(part))

    def text_hashes(self) -> npt.NDArray[np.uint8]:
        """See Piece."""
        return keys_of(self._texts("verbatim"))

    def _texts(self, part: str) -> list[str]:
        if part == "verbatim":
            texts = dict.fromkeys(text for row in self._all("exchanges") for text in verbatim_chunks(row))
            return [text for text in texts if text_hash(text) in self.union.vectors]
        return texts_of(self._all("claims" if part == "claims" else "objects"), part)


def texts_of(rows: Sequence[Any], part: str) -> list[str]:
    """The texts of a part of objects, or of claims, that have a vector each."""
    return [row.text if part == "claims" else object_texts(row, (part,))[part] for row in rows]


def claim_keys(piece: Piece) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """([C] S16, [C] S16): subject and values of each claim, as `superseded.subject_keys`."""
    if isinstance(piece, FilePiece) and piece.vouched and (sums := piece.sums()):
        pair = (np.ascontiguousarray(sums[name]).reshape(-1) for name in ("claim-subject", "claim-values"))
        first, second = (array.view(ID) if len(array) else np.empty(0, ID) for array in pair)
        return first, second
    rows = piece.rows("claims", range(piece.n_rows("claims")))
    keys = [subject_keys(row) for row in rows]
    return (
        np.frombuffer(b"".join(k for k, _ in keys), ID),
        np.frombuffer(b"".join(v for _, v in keys), ID),
    )


def _vector_role(part: str) -> str:
    return {"claims": CLAIM_VECTORS, "verbatim": VERBATIM_VECTORS}.get(part, f"vectors:{part}")


def _first_bytes(hashes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(hashes[:, :8]).reshape(-1).view("<u8")


def distinct_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without copies: segments of one month whose rows and vectors are the same files."""
    seen: dict[Any, Piece] = {}
    for piece in pieces:
        key: Any = id(piece)
        if isinstance(piece, FilePiece) and piece.month:
            roles = (*TABLES, *(role for role in piece.files if role.startswith("vectors:")))
            key = (piece.month, *sorted((role, piece.files[role][1]) for role in roles if role in piece.files))
        other = seen.get(key)
        # Of two copies the one that is vouched for, whose derived files need not be made again.
        if other is None or (isinstance(piece, FilePiece) and piece.vouched and not getattr(other, "vouched", False)):
            seen[key] = piece
    return list(seen.values())


def key_columns(table: str) -> tuple[str, ...]:
    """The columns of a table that decide what is visible and where a row lies."""
    return _EACH[table]
