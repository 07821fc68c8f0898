"""Composing a bundle: every file of it as a pure function of a union of rows.

Vectors and LLM outputs are recorded values and are carried, never computed; visibility, rooms, document lists and BM25
are derived. `write_bundle` holds all rows in memory (about 3 KB an exchange) and is the specification of what a merge
writes; `write_segment`, which both share, takes rows one at a time. Deliberately absent: reading inputs (`inputs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from backfill import tables
from backfill import visibility as vis
from backfill.arrays import write_arrays
from backfill.bundle_writer import BundleWriter
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, verbatim_places
from backfill.embed import CLAIM_VECTORS
from backfill.errors import BundleError
from backfill.ids import ID_BYTES, row_hash
from backfill.indexes.field_blocks import write_field
from backfill.inputs import Settings
from backfill.links import claim_links, session_numbers
from backfill.pieces import texts_of
from backfill.rows import sort_rows
from backfill.sums import SEGMENT_TABLES, segment_sums
from backfill.superseded import derive_superseded
from backfill.types import Claim, Exchange, Occurrence, PalaceObject
from backfill.union import Union, View, logical_digest, segments_of, text_hash, view_of

F16 = npt.NDArray[np.float16]
# 4,096 rows of 384 numbers are 3 MB.
VECTOR_BLOCK_ROWS = 4096
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
            rows = _of_segment(union, segments, segment)
            write_segment(writer, segment, rows, _documents(rows, view), _UnionVectors(union, rows, settings), settings)
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
    """The rows of one segment, distinct and in canonical order; they may lie in a file."""

    exchanges: Sequence[Exchange]
    occurrences: Sequence[Occurrence]
    objects: Sequence[PalaceObject]
    claims: Sequence[Claim]


class SegmentVectors(Protocol):
    """The recorded vectors of a segment's rows."""

    def blocks(self, table: str, part: str) -> Iterable[F16]:
        """[n, D] f2 a block: of a part of the objects, or of the claims, in their order. Raises BundleError."""
        ...

    def verbatim(self, key: bytes) -> bytes | None:
        """The vector of a piece of verbatim text by the hash of the text; None where there is none."""
        ...


@dataclass(slots=True)
class _UnionVectors:
    """Vectors by the hashes of texts; see SegmentVectors."""

    union: Union
    segment: SegmentRows
    settings: Settings

    def blocks(self, table: str, part: str) -> Iterator[F16]:
        rows = getattr(self.segment, table)
        for start in range(0, len(rows), VECTOR_BLOCK_ROWS):
            yield self._matrix(texts_of(rows[start : start + VECTOR_BLOCK_ROWS], part), part)

    def verbatim(self, key: bytes) -> bytes | None:
        return self.union.vectors.get(key)

    def _matrix(self, texts: Sequence[str], part: str) -> F16:
        matrix = np.zeros((len(texts), dim_of(self.settings)), dtype="<f2")
        for i, text in enumerate(texts):
            data = self.union.vectors.get(text_hash(text))
            if data is None or len(data) != matrix.shape[1] * 2:
                raise no_vector(part, text, matrix.shape[1])
            matrix[i] = np.frombuffer(data, dtype="<f2")
        return matrix


def dim_of(settings: Settings) -> int:
    """Numbers of a vector, 0 without an encoder."""
    return int(settings.encoder["dim"]) if settings.encoder else 0


def no_vector(part: str, text: str, dim: int) -> BundleError:
    """The error of a row that was never embedded."""
    return BundleError(
        f"the {part} text {text[:60]!r} has no vector of {dim} numbers", hint="run the embedding stage to its end first"
    )


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
    writer: BundleWriter,
    name: str,
    segment: SegmentRows,
    docs: Mapping[str, npt.NDArray[Any]],
    vectors: SegmentVectors,
    settings: Settings,
) -> dict[str, npt.NDArray[Any]]:
    """Writes the files of one segment; returns the arrays of its `sums`.

    `docs` are the arrays of its documents. In memory are blocks of rows, of vectors and of postings.
    """
    folder = f"seg/{name}"
    parts = settings.parts if settings.encoder else ()
    for table in (tables.EXCHANGES, tables.OCCURRENCES, tables.OBJECTS, tables.CLAIMS):
        write = partial(tables.write_table, table, getattr(segment, table.name), sorted_already=True)
        writer.add(folder, table.name, ".parquet", table.name, write)
    for part in parts:
        write = partial(_write_vectors, vectors.blocks("objects", part))
        writer.add(folder, f"distilled-{part}", ".f16", f"vectors:{part}", write)
    if settings.encoder and settings.index.get("verbatim_vectors"):
        _write_verbatim(writer, folder, segment.exchanges, vectors, dim_of(settings))
    if segment.claims:
        if settings.encoder:
            write = partial(_write_vectors, vectors.blocks("claims", "claims"))
            writer.add(folder, "claims", ".f16", CLAIM_VECTORS, write)
        texts = (segment.claims[row].text for row in docs["claim_row"])
        writer.add(f"{folder}/bm25", "claims", ".arrays", "bm25:claims", partial(write_field, texts))
    writer.add(folder, "docs", ".arrays", "docs", partial(_write_docs, docs))
    sums = segment_sums({table: getattr(segment, table) for table in SEGMENT_TABLES}, docs, parts)
    writer.add(folder, "sums", ".arrays", "sums", partial(_write_arrays, sums))
    for field_name in BM25_FIELDS:
        write = partial(write_field, field_texts(field_name, segment, docs))
        writer.add(f"{folder}/bm25", field_name, ".arrays", f"bm25:{field_name}", write)
    return sums


def _write_verbatim(
    writer: BundleWriter, folder: str, exchanges: Sequence[Exchange], vectors: SegmentVectors, dim: int
) -> None:
    """The verbatim vectors of a segment that has any, and what they belong to."""
    places = verbatim_places(exchanges, lambda key: len(vectors.verbatim(key) or b"") == 2 * dim)
    if len(places["key"]):
        found = (np.frombuffer(vectors.verbatim(key.tobytes()) or b"", "<f2")[None] for key in places["key"])
        writer.add(folder, "verbatim", ".f16", VERBATIM_VECTORS, partial(_write_vectors, found))
        writer.add(folder, "verbatim-rows", ".arrays", VERBATIM_ROWS, partial(_write_arrays, places))


def field_texts(name: str, segment: SegmentRows, docs: Mapping[str, npt.NDArray[Any]]) -> Iterator[str]:
    """The text of each document that a BM25 field indexes."""
    if name == "verbatim":
        for row in docs["exchange_row"]:
            exchange = segment.exchanges[row]
            yield f"{exchange.user_text}\n{exchange.agent_text}"
    elif name == "title":
        for row in docs["occ_row"][docs["occ_indptr"][:-1]]:
            yield segment.occurrences[row].title
    else:
        for row in docs["object_row"]:
            yield _object_text(name, segment.objects[row]) if row >= 0 else ""


def _object_text(name: str, row: PalaceObject) -> str:
    if name == "core":
        return row.exchange_core
    if name == "context":
        return row.specific_context
    if name == "rooms":
        return "\n".join(room.room_key for room in row.room_assignments)
    return "\n".join(file.path for file in row.files_touched)


def _documents(segment: SegmentRows, view: View) -> dict[str, npt.NDArray[Any]]:
    """What `documents.documents_of` must equal."""
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


def _write_arrays(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> int:
    write_arrays(path, arrays)
    return 0


def _write_vectors(blocks: Iterable[F16], path: Path) -> int:
    n_rows = 0
    with path.open("wb") as file:
        for block in blocks:
            file.write(block.astype("<f2", copy=False).tobytes())
            n_rows += len(block)
    return n_rows


def _write_docs(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> int:
    write_arrays(path, arrays)
    return len(arrays["exchange_row"])
