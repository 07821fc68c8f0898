"""`verify` of claims: ids and provenance, what shows, vectors, words, and the marks of those that a later one replaced.

Everything derived is derived again from the rows. Light, as `verify` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from backfill.bundle import Bundle, Segment
from backfill.columns import ParquetFile
from backfill.embed import CLAIM_VECTORS
from backfill.ids import claim_id
from backfill.rows import ROW_TYPES, rows_of, sort_rows
from backfill.superseded import derive_superseded
from backfill.types import CLAIM_KINDS, Claim
from backfill.union import Union, View, segments_of

Fault: TypeAlias = tuple[str, str, str]
"""File (relative), kind of fault, what was seen."""


def claim_problems(bundle: Bundle, union: Union, view: View) -> Iterator[Fault]:
    """What does not hold of the claims of a bundle whose rows are `union`, of which `view` shows."""
    ids = {row.exchange_id for row in union.exchanges.values()}
    for row in union.claims.values():
        yield from _row_faults(row, ids)
    months = segments_of(union)
    shown = set(view.claims)
    for segment in bundle.segments:
        yield from _segment_faults(bundle, segment, months, shown)
    wanted = sort_rows("superseded", derive_superseded(view.claims, view.places))
    entry = bundle.files.get("superseded")
    columns = ParquetFile(bundle.path / entry.path).read(list(ROW_TYPES["superseded"].__slots__)) if entry else {}
    if (rows_of("superseded", columns) if columns else []) != wanted:
        yield entry.path if entry else "superseded", "visibility", "the marks are not those of the visible claims"


def _row_faults(row: Claim, ids: set[bytes]) -> Iterator[Fault]:
    name = row.claim_id.hex()
    if not row.exchange_ids or list(row.exchange_ids) != sorted(set(row.exchange_ids)):
        yield "claims", "reference", f"{name}: exchange_ids are empty or not sorted"
    for xid in row.exchange_ids:
        if xid not in ids:
            yield "claims", "reference", f"{name} names exchange {xid.hex()}, which is not there"
    if claim_id(row.text, row.kind, row.date, row.exchange_ids) != row.claim_id:
        yield "claims", "id", f"{name}: claim_id is not that of its words, kind, date and exchanges"
    if row.kind not in CLAIM_KINDS or not row.text.strip():
        yield "claims", "row", f"{name}: kind {row.kind!r} or an empty text"


def _segment_faults(bundle: Bundle, segment: Segment, months: dict[bytes, str], shown: set[Claim]) -> Iterator[Fault]:
    where = f"seg/{segment.name}"
    table = segment.table("claims").read(list(ROW_TYPES["claims"].__slots__))
    rows: list[Claim] = rows_of("claims", table)
    misplaced = sum(bool(r.exchange_ids) and months.get(min(r.exchange_ids)) != segment.name for r in rows)
    if misplaced:
        yield where, "segment", f"{misplaced} claims belong to another month"
    visible = [i for i, row in enumerate(rows) if row in shown]
    if segment.docs.claim_row.tolist() != visible:
        yield segment.files["docs"].path, "visibility", "the claims listed are not the visible ones"
    if not rows:
        return
    if not segment.has("bm25:claims"):
        yield where, "bm25", "the claims have no BM25 index"
    encoder = bundle.manifest.encoder
    if encoder is None:
        return
    entry = segment.files.get(CLAIM_VECTORS)
    if entry is None or entry.rows != len(rows):
        yield where, "vectors", f"{CLAIM_VECTORS} does not have a row for each claim"
    elif not _unit_rows(segment, encoder.dim):
        yield entry.path, "vectors", "a row is no unit vector"


def _unit_rows(segment: Segment, dim: int) -> bool:
    import numpy as np

    norms = np.linalg.norm(segment.vectors(CLAIM_VECTORS, dim).astype(np.float32), axis=1)
    return bool(((np.abs(norms - 1) < 1e-2) | (norms == 0)).all())
