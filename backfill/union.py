"""The union of tables and what is visible of it. Light: shared by `merge` and `verify`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill import visibility as vis
from backfill.ids import row_bytes, row_hash
from backfill.types import Claim, Exchange, Occurrence, PalaceObject, Row, Tombstone

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
    """64 hex digits over the visible rows of every table in canonical order, independent of files and segments."""
    digest = hashlib.blake2b(digest_size=32)
    groups: dict[str, Iterable[Row]] = {
        "exchanges": view.exchanges.values(),
        "occurrences": view.occurrences,
        "objects": view.objects.values(),
        "claims": view.claims,
        "tombstones": tombstones,
    }
    for name, rows in groups.items():
        encoded = sorted(row_bytes(row) for row in rows)
        digest.update(f"{name} {len(encoded)}\n".encode())
        for data in encoded:
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


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
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment.year:04d}-{moment.month:02d}"
