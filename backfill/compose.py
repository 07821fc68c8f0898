"""Composing a bundle: every file of it as a pure function of a union of rows.

Vectors and LLM outputs are recorded values and are carried, never computed; visibility, rooms, document lists and BM25
are derived. All rows are held in memory (about 3 KB an exchange). Deliberately absent: reading inputs (`inputs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill import tables
from backfill import visibility as vis
from backfill.arrays import write_arrays
from backfill.bundle_writer import BundleWriter
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, verbatim_layer
from backfill.embed import CLAIM_VECTORS, object_texts
from backfill.errors import BundleError
from backfill.ids import ID_BYTES, row_hash
from backfill.indexes.field import build_field
from backfill.indexes.vectors import write_vectors
from backfill.inputs import Settings
from backfill.links import claim_links, session_numbers
from backfill.rows import sort_rows
from backfill.sums import SEGMENT_TABLES, segment_sums
from backfill.superseded import derive_superseded
from backfill.types import Claim, Exchange, Occurrence, PalaceObject
from backfill.union import Union, View, logical_digest, segments_of, text_hash, view_of

BM25_FIELDS = ("verbatim", "core", "context", "rooms", "files", "title")


def write_bundle(
    union: Union,
    settings: Settings,
    encoder_files: Sequence[Path],
    out: Path,
    lineage: dict[str, Any],
    *,
    expected: str | None = None,
) -> dict[str, Any]:
    """Writes the bundle of a union; returns its counts, logical_digest and whether anything changed.

    `expected` is the digest of the manifest that the union was read from: see `BundleWriter.commit`.

    Raises BundleError when an object row lacks a vector.
    """
    view = view_of(union)
    digest = logical_digest(view, union.tombstones.values())
    segments = segments_of(union)
    with BundleWriter(out) as writer:
        for segment in sorted(set(segments.values())):
            write_segment(writer, segment, _of_segment(union, segments, segment), view, union, settings)
        rooms = vis.derive_rooms(view.objects, view.places)
        writer.add("", "rooms", ".parquet", "rooms", partial(tables.write_table, tables.ROOMS, rooms))
        hidden = list(union.tombstones.values())
        writer.add("", "tombstones", ".parquet", "tombstones", partial(tables.write_table, tables.TOMBSTONES, hidden))
        marks = derive_superseded(view.claims, view.places)
        writer.add("", "superseded", ".parquet", "superseded", partial(tables.write_table, tables.SUPERSEDED, marks))
        for path in encoder_files:
            writer.add_copy(path, f"encoder/{path.name}", "encoder")
        counts = {
            "exchanges": len({r.exchange_id for r in union.exchanges.values()}),
            "exchange_rows": len(union.exchanges),
            "occurrences": len(union.occurrences),
            "objects": len(union.objects),
            "claims": len(union.claims),
            "rooms": len(rooms),
            "superseded": len(marks),
            "tombstones": len(union.tombstones),
            "visible_exchanges": len(view.exchanges),
            "visible_occurrences": len(view.occurrences),
            "visible_objects": len(view.objects),
            "visible_claims": len(view.claims),
        }
        manifest = {
            "logical_digest": digest,
            "counts": counts,
            "segments": sorted(set(segments.values())),
            "encoder": settings.encoder,
            "bm25": settings.bm25,
            "index": {**settings.index, "parts": list(settings.parts)},
            "fingerprints": settings.fingerprints,
            "gate": settings.gate,
        }
        changed = writer.commit(manifest, lineage, expected=expected)
    return {"counts": counts, "logical_digest": digest, "changed": changed}


@dataclass(slots=True)
class SegmentRows:
    """The rows of one segment, distinct and in canonical order."""

    exchanges: list[Exchange]
    occurrences: list[Occurrence]
    objects: list[PalaceObject]
    claims: list[Claim]


def _of_segment(union: Union, segments: dict[bytes, str], name: str) -> SegmentRows:
    def here(xid: bytes) -> bool:
        return segments.get(xid, vis.UNDATED) == name

    return SegmentRows(
        sort_rows("exchanges", [r for r in union.exchanges.values() if here(r.exchange_id)]),
        sort_rows("occurrences", [r for r in union.occurrences.values() if here(r.exchange_id)]),
        sort_rows("objects", [r for r in union.objects.values() if here(r.exchange_id)]),
        sort_rows("claims", [r for r in union.claims.values() if here(min(r.exchange_ids))]),
    )


def write_segment(
    writer: BundleWriter, name: str, segment: SegmentRows, view: View, union: Union, settings: Settings
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Writes the files of one segment; returns the arrays of its `docs` and `sums`.

    `view` and `union` need to know the segment's own rows and vectors alone.
    """
    folder = f"seg/{name}"
    for table in (tables.EXCHANGES, tables.OCCURRENCES, tables.OBJECTS, tables.CLAIMS):
        rows = getattr(segment, table.name)
        writer.add(folder, table.name, ".parquet", table.name, partial(tables.write_table, table, rows))
    for part in settings.parts if settings.encoder else ():
        texts = [object_texts(row, (part,))[part] for row in segment.objects]
        matrix = _vectors(texts, f"{part} text", union, settings)
        writer.add(folder, f"distilled-{part}", ".f16", f"vectors:{part}", partial(write_vectors, matrix))
    if settings.encoder and settings.index.get("verbatim_vectors"):
        matrix, places = verbatim_layer(segment.exchanges, union.vectors, int(settings.encoder["dim"]))
        if len(matrix):
            writer.add(folder, "verbatim", ".f16", VERBATIM_VECTORS, partial(write_vectors, matrix))
            writer.add(folder, "verbatim-rows", ".arrays", VERBATIM_ROWS, partial(_write_arrays, places))
    docs = _documents(segment, view)
    if segment.claims:
        _write_claims(writer, folder, segment.claims, docs["claim_row"], union, settings)
    writer.add(folder, "docs", ".arrays", "docs", partial(_write_docs, docs))
    rows = {table: getattr(segment, table) for table in SEGMENT_TABLES}
    sums = segment_sums(rows, docs, settings.parts if settings.encoder else ())
    writer.add(folder, "sums", ".arrays", "sums", partial(_write_arrays, sums))
    shown = [segment.exchanges[row] for row in docs["exchange_row"]]
    for field_name in BM25_FIELDS:
        texts = [field_text(field_name, row, view) for row in shown]
        writer.add(f"{folder}/bm25", field_name, ".arrays", f"bm25:{field_name}", partial(_write_field, texts))
    return docs, sums


def _write_claims(
    writer: BundleWriter,
    folder: str,
    claims: Sequence[Claim],
    claim_row: npt.NDArray[Any],
    union: Union,
    settings: Settings,
) -> None:
    """A vector for each claim of a segment that has any, and the words of those that show."""
    if settings.encoder:
        matrix = _vectors([row.text for row in claims], "claim", union, settings)
        writer.add(folder, "claims", ".f16", CLAIM_VECTORS, partial(write_vectors, matrix))
    texts = [claims[row].text for row in claim_row]
    writer.add(f"{folder}/bm25", "claims", ".arrays", "bm25:claims", partial(_write_field, texts))


def field_text(name: str, exchange: Exchange, view: View) -> str:
    """The text of a visible exchange that a BM25 field indexes."""
    if name == "verbatim":
        return f"{exchange.user_text}\n{exchange.agent_text}"
    if name == "title":
        return view.places[exchange.exchange_id][0].title
    row = view.objects.get(exchange.exchange_id)
    if row is None:
        return ""
    if name == "core":
        return row.exchange_core
    if name == "context":
        return row.specific_context
    if name == "rooms":
        return "\n".join(room.room_key for room in row.room_assignments)
    return "\n".join(file.path for file in row.files_touched)


def _documents(segment: SegmentRows, view: View) -> dict[str, npt.NDArray[Any]]:
    exchange_row = {row_hash(row): i for i, row in enumerate(segment.exchanges)}
    object_row = {row_hash(row): i for i, row in enumerate(segment.objects)}
    occurrence_row = {row_hash(row): i for i, row in enumerate(segment.occurrences)}
    shown = sorted(xid for xid in {r.exchange_id for r in segment.exchanges} if xid in view.exchanges)
    objects = [view.objects.get(xid) for xid in shown]
    claims = set(view.claims)
    places = [[occurrence_row[row_hash(o)] for o in view.places[xid]] for xid in shown]
    best = [view.places[xid][0] for xid in shown]
    return {
        "exchange_id": np.frombuffer(b"".join(shown), np.uint8).reshape(-1, ID_BYTES),
        "exchange_row": np.array([exchange_row[row_hash(view.exchanges[xid])] for xid in shown], dtype="<i4"),
        "object_row": np.array([-1 if o is None else object_row[row_hash(o)] for o in objects], dtype="<i4"),
        "occ_indptr": np.cumsum([0, *map(len, places)], dtype="<i8"),
        "occ_row": np.array([row for rows in places for row in rows], dtype="<i4"),
        "claim_row": np.array([i for i, row in enumerate(segment.claims) if row in claims], dtype="<i4"),
        "session": session_numbers((place.agent, place.session_id) for place in best),
        **claim_links(
            (row.exchange_ids for row in segment.claims if row in claims), {xid: i for i, xid in enumerate(shown)}
        ),
    }


def _write_arrays(arrays: dict[str, npt.NDArray[Any]], path: Path) -> int:
    write_arrays(path, arrays)
    return 0


def _vectors(texts: Sequence[str], what: str, union: Union, settings: Settings) -> npt.NDArray[np.float16]:
    dim = int(settings.encoder["dim"]) if settings.encoder else 0
    matrix = np.zeros((len(texts), dim), dtype="<f2")
    for i, text in enumerate(texts):
        data = union.vectors.get(text_hash(text))
        if data is None or len(data) != 2 * dim:
            raise BundleError(
                f"the {what} {text[:60]!r} has no vector of {dim} numbers",
                hint="run the embedding stage to its end first",
            )
        matrix[i] = np.frombuffer(data, dtype="<f2")
    return matrix


def _write_docs(arrays: dict[str, npt.NDArray[Any]], path: Path) -> int:
    write_arrays(path, arrays)
    return len(arrays["exchange_row"])


def _write_field(texts: Sequence[str], path: Path) -> int:
    write_arrays(path, build_field(texts))
    return len(texts)
