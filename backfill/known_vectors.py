"""Vectors that were computed before: in the user's cache, and in a bundle that grows.

Keyed by (text hash, encoder fingerprint). The cache is a folder an encoder, in it one append-only file of equal records
a process: no locks, nothing is ever rewritten, and a record that was torn or damaged does not have its checksum and
counts as none. Vectors of a GPU are kept apart: its last bits are other ones. Deliberately absent: eviction; 100,000
vectors of 384 numbers are 79 MB, and the folder may be deleted at any time.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from backfill.durable import attempt_name
from backfill.embed import CLAIM_VECTORS, part_text
from backfill.union import text_hash

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

F16 = npt.NDArray[np.float16]
_SUFFIX = ".vectors"


@dataclass(frozen=True, slots=True)
class Known:
    """A vector [D] f2, and whether its text was cut; None where the place does not say."""

    row: F16
    cut: bool | None


class VectorSource(Protocol):
    """A place where vectors are found."""

    def find(self, texts: Sequence[str]) -> dict[str, Known]:
        """The vectors that are there for these texts."""
        ...


@dataclass(slots=True)
class _File:
    """One process's records, mapped; `order` sorts them by the first eight bytes of their keys."""

    records: Any
    keys: npt.NDArray[np.uint64]
    order: npt.NDArray[np.int64]


@dataclass(slots=True)
class VectorCache:
    """The vectors of one encoder in a folder. In memory are 16 bytes a vector."""

    folder: Path
    dim: int
    _files: dict[Path, _File] = field(default_factory=dict)
    _own: Path = field(init=False)

    def __post_init__(self) -> None:
        self._own = self.folder / f"{os.getpid()}-{attempt_name()}{_SUFFIX}"

    def find(self, texts: Sequence[str]) -> dict[str, Known]:
        """See VectorSource. Looks for what other processes have added since."""
        self._look_again()
        hashes = [text_hash(text) for text in texts]
        firsts = np.array([int.from_bytes(key[:8], "little") for key in hashes], np.uint64)
        found: dict[str, Known] = {}
        for file in self._files.values():
            low = np.searchsorted(file.keys, firsts)
            high = np.searchsorted(file.keys, firsts, side="right")
            for i in np.flatnonzero(high > low).tolist():
                for at in file.order[low[i] : high[i]].tolist():
                    record = file.records[at]
                    if record["key"].tobytes() == hashes[i] and _sum_of(record) == record["sum"]:
                        found[texts[i]] = Known(np.array(record["row"]), bool(record["cut"]))
        return found

    def add(self, texts: Sequence[str], rows: F16, cut: Sequence[bool]) -> None:
        """Appends the vectors [N, D] of N texts. A cache that cannot be written is done without."""
        records = np.zeros(len(texts), self._record)
        for record, text, row, was_cut in zip(records, texts, rows, cut, strict=True):
            record["key"] = np.frombuffer(text_hash(text), np.uint8)
            record["cut"], record["row"] = was_cut, row
            record["sum"] = _sum_of(record)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._own.open("ab") as file:
                file.write(records.tobytes())
        except OSError:
            return

    @property
    def _record(self) -> np.dtype[Any]:
        return np.dtype([("key", "u1", 16), ("cut", "u1"), ("none", "u1", 3), ("sum", "<u4"), ("row", "<f2", self.dim)])

    def _look_again(self) -> None:
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            known = self._files.get(path)
            try:
                n = path.stat().st_size // self._record.itemsize
            except OSError:
                continue
            if n and (known is None or n > len(known.records)):
                records = np.memmap(path, self._record, "r", shape=(n,))
                firsts = np.ascontiguousarray(records["key"][:, :8]).reshape(-1).view("<u8")
                order = np.argsort(firsts, kind="stable")
                self._files[path] = _File(records, firsts[order], order)


class BundleVectors:
    """The vectors of a bundle's distilled texts and claims; a text is compared before its vector is taken."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def find(self, texts: Sequence[str]) -> dict[str, Known]:
        """See VectorSource."""
        encoder = self._bundle.manifest.encoder
        found: dict[str, Known] = {}
        if encoder is None or not texts:
            return found
        wanted = {int.from_bytes(text_hash(text)[:8], "little"): text for text in texts}
        keys = np.array(sorted(wanted), np.uint64)
        parts = [*((f"vectors:{part}", part) for part in self._bundle.manifest.index.parts), (CLAIM_VECTORS, "claims")]
        for segment in self._bundle.segments:
            sums = segment.arrays("sums") if segment.has("sums") else {}
            for role, part in parts:
                of_rows = sums.get(f"text-{part}")
                if of_rows is None or not segment.has(role):
                    continue
                rows = np.flatnonzero(np.isin(of_rows, keys)).tolist()
                matrix = segment.vectors(role, encoder.dim) if rows else None
                for row, text in _texts_at(segment, part, rows):
                    if matrix is not None and wanted.get(int(of_rows[row])) == text:
                        found[text] = Known(np.array(matrix[row]), None)
        return found


def _texts_at(segment: Segment, part: str, rows: Sequence[int]) -> Iterable[tuple[int, str]]:
    if part == "claims":
        found = segment.table("claims").rows_at(["text"], rows)
        return [(row, cells["text"]) for row, cells in found.items()]
    found = segment.table("objects").rows_at(["exchange_core", "specific_context"], rows)
    return [(row, part_text(part, *cells.values())) for row, cells in found.items()]


def _sum_of(record: Any) -> int:
    return zlib.crc32(record["row"].tobytes(), zlib.crc32(record["key"].tobytes() + record["cut"].tobytes()))
