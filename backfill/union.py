"""The union of tables and what is visible of it. Light: shared by `merge` and `verify`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill import visibility as vis
from backfill.ids import row_bytes, row_hash
from backfill.types import Claim, Exchange, Occurrence, PalaceObject, Row, Tombstone

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SUM_LANES = 1024


@dataclass(slots=True)
class Union:
    """Sets of rows by row hash, and vectors by text hash (of two for one text the bytewise larger stays)."""

    exchanges: dict[bytes, Exchange] = field(default_factory=dict)
    occurrences: dict[bytes, Occurrence] = field(default_factory=dict)
    objects: dict[bytes, PalaceObject] = field(default_factory=dict)
    claims: dict[bytes, Claim] = field(default_factory=dict)
    tombstones: dict[bytes, Tombstone] = field(default_factory=dict)
    vectors: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, name: str, rows: Iterable[Row]) -> int:
        """Adds rows to the set of a table; returns how many were new."""
        target = getattr(self, name)
        before = len(target)
        target.update((row_hash(row), row) for row in rows)
        return len(target) - before

    def add_vectors(self, texts: Sequence[str], rows: npt.NDArray[np.float16]) -> None:
        """Records the vectors [N, D] of N texts."""
        for text, vector in zip(texts, rows, strict=True):
            key, data = text_hash(text), vector.tobytes()
            self.vectors[key] = max(data, self.vectors.get(key, b""))


def text_keys(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """[N] u8: the first eight bytes of each text's hash."""
    import numpy as np

    keys = bytearray()  # joining would hold a bytes object for each
    for text in texts:
        keys += text_hash(text)[:8]
    return np.frombuffer(bytes(keys), "<u8")


@dataclass(slots=True)
class View:
    """What is visible of a union."""

    occurrences: list[Occurrence]
    exchanges: dict[bytes, Exchange]
    objects: dict[bytes, PalaceObject]
    claims: list[Claim]
    places: dict[bytes, list[Occurrence]]


def text_hash(text: str) -> bytes:
    """Key of a vector beside its encoder: BLAKE2b-128 of the text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def view_of(union: Union) -> View:
    """The visible rows of a union; an occurrence shows only when its exchange does."""
    forgotten = {t.exchange_id for t in union.tombstones.values()}
    occurrences = vis.visible_occurrences(union.occurrences.values())
    exchanges = vis.visible_exchanges(union.exchanges.values(), occurrences, forgotten)
    occurrences = [o for o in occurrences if o.exchange_id in exchanges]
    objects = vis.visible_objects(union.objects.values(), exchanges)
    claims = vis.visible_claims(union.claims.values(), exchanges.keys(), forgotten)
    return View(occurrences, exchanges, objects, claims, vis.best_occurrences(occurrences))


def logical_digest(view: View, tombstones: Iterable[Tombstone]) -> str:
    """64 hex digits over the set of visible rows of every table, independent of order, files and segments."""
    return digest_of_sum(
        visible_sum(
            {
                "exchanges": view.exchanges.values(),
                "occurrences": view.occurrences,
                "objects": view.objects.values(),
                "claims": view.claims,
                "tombstones": tombstones,
            }
        )
    )


def visible_sum(tables: Mapping[str, Iterable[Row]]) -> npt.NDArray[np.uint16]:
    """The sum [SUM_LANES] u2 of a set of distinct rows: that of two disjoint sets is the sum of theirs.

    LtHash16 of 1,024 lanes (Lewi, Kim, Maykov and Weis 2019, after Bellare and Micciancio 1997), so that a digest of
    all rows follows from those of the segments. Each lane is a sum modulo 2^16 of an expanded hash of the row.
    """
    import numpy as np

    total = np.zeros(SUM_LANES, "<u2")
    for name, rows in tables.items():
        for row in rows:
            inner = hashlib.blake2b(row_bytes(row), digest_size=32, person=name.encode()[:16]).digest()
            total += np.frombuffer(hashlib.shake_128(inner).digest(2 * SUM_LANES), "<u2")
    return total


def digest_of_sum(total: npt.NDArray[np.uint16]) -> str:
    """The logical digest of rows whose sum is `total`."""
    return hashlib.blake2b(total.astype("<u2").tobytes(), digest_size=32).hexdigest()


def segments_of(union: Union) -> dict[bytes, str]:
    """By exchange_id: the month (UTC) of its earliest occurrence, visible or not; "undated" where none has a time."""
    earliest: dict[bytes, int] = {}
    for row in union.occurrences.values():
        if row.started_at is not None:
            earliest[row.exchange_id] = min(row.started_at, earliest.get(row.exchange_id, row.started_at))
    ids = {row.exchange_id for row in union.exchanges.values()} | {o.exchange_id for o in union.occurrences.values()}
    ids |= {row.exchange_id for row in union.objects.values()}
    return {xid: _month(earliest.get(xid)) for xid in ids}


def _month(micros: int | None) -> str:
    if micros is None:
        return vis.UNDATED
    try:
        moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the calendar, as `trees.iso` has it
        return vis.UNDATED
    return f"{moment.year:04d}-{moment.month:02d}"
