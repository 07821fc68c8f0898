"""Writing the bundle of many pieces: segments that nothing touches are taken over whole, the others are composed.

Rows are read and written in blocks; in memory are the overview of keys, and some numbers for each row of one month.
What decides is in `overview` and `documents`; here is only which segment is made from which rows. Taken over are files
that this user's own commands wrote; of a stranger's bundle every segment is composed from its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill import tables
from backfill import visibility as vis
from backfill.bundle_writer import BundleWriter
from backfill.compose import write_segment
from backfill.greater import GreaterVectors, greater_vectors
from backfill.inputs import Settings
from backfill.merge_totals import RoomKey, Totals
from backfill.month import Members, Month, MonthVectors, read_month
from backfill.overview import Keys, Overview, overview_of
from backfill.piece_columns import ID, ids_of
from backfill.pieces import TABLES, FilePiece, Piece, claim_keys
from backfill.trust import record_segments, segment_digest
from backfill.types import Claim, Room, Tombstone
from backfill.union import digest_of_sum, visible_sum
from backfill.verbatim_vectors import VerbatimVectors

# Key, label, exchanges, first and last time of a room.
Rooms: TypeAlias = tuple[RoomKey, str, int, int | None, int | None]


def write_merged(
    pieces: Sequence[Piece],
    tombstones: Sequence[Tombstone],
    settings: Settings,
    encoder_files: Sequence[Path],
    out: Path,
    lineage: Mapping[str, Any],
    *,
    expected: str | None = None,
) -> dict[str, Any]:
    """Writes the bundle of the union of all pieces; returns counts, logical_digest and whether anything changed.

    The bytes are those of `compose.write_bundle` for the same rows. Raises BundleError when a vector is missing or a
    file does not hold, BundleChanged as `BundleWriter.commit`.
    """
    forgotten = {t.exchange_id for t in tombstones}
    view = overview_of(pieces, forgotten)
    parts = (*settings.parts, "claims") if settings.encoder else ()
    if settings.encoder and settings.index.get("verbatim_vectors"):
        parts = (*parts, "verbatim")
    greater = greater_vectors(pieces, parts)
    verbatim = VerbatimVectors(pieces if "verbatim" in parts else ())
    totals = Totals(view)
    with BundleWriter(out) as writer:
        months = {table: view.months_of(getattr(view, table)) for table in TABLES}
        if vis.UNDATED in view.months:
            claims = months["claims"]
            claims[claims < 0] = view.months.index(vis.UNDATED)
        for code, name in enumerate(view.months):
            here = _members(pieces, view, months, code)
            whole = _untouched(pieces, view, here, name, months, greater)
            if whole is not None:
                _take_over(writer, whole, totals)
            else:
                month = read_month(pieces, view, here, writer.scratch)
                vectors = MonthVectors(month, pieces, settings, greater, verbatim)
                _compose(writer, name, month, vectors, settings, totals)
                del month, vectors  # not beside the next one
        manifest = _write_rest(writer, tombstones, settings, encoder_files, totals)
        changed = writer.commit(manifest, lineage, expected=expected)
        record_segments(_segment_digests(writer.files))
    return {"counts": manifest["counts"], "logical_digest": manifest["logical_digest"], "changed": changed}


def _members(pieces: Sequence[Piece], view: Overview, months: Mapping[str, Any], code: int) -> Members:
    """Per piece that has any: the positions of its rows of this month, by table."""
    found: dict[int, dict[str, npt.NDArray[np.int64]]] = {}
    for table in TABLES:
        keys: Keys = getattr(view, table)
        rows = np.flatnonzero(months[table] == code)
        owners = np.searchsorted(keys.starts, rows, side="right") - 1
        for piece in np.unique(owners).tolist():
            found.setdefault(piece, {})[table] = rows[owners == piece] - int(keys.starts[piece])
    none = np.empty(0, np.int64)
    return [(p, {table: found[p].get(table, none) for table in TABLES}) for p in sorted(found)]


def _untouched(
    pieces: Sequence[Piece],
    view: Overview,
    here: Members,
    name: str,
    months: Mapping[str, Any],
    greater: GreaterVectors,
) -> FilePiece | None:
    """The segment whose files are those of this month as they stand, or None."""
    if len(here) != 1:
        return None
    number, rows = here[0]
    piece = pieces[number]
    if not isinstance(piece, FilePiece) or not piece.vouched or piece.month != name:
        return None
    if any(len(rows[table]) != piece.n_rows(table) for table in TABLES):
        return None  # some of its rows go to another month
    docs = piece.docs()
    shown = np.flatnonzero(view.occurrences_shown[view.occurrences.of(number)])
    claims = np.flatnonzero(view.claims_shown[view.claims.of(number)])
    if not np.array_equal(shown, np.sort(docs["occ_row"])) or not np.array_equal(claims, docs["claim_row"]):
        return None
    return None if greater.changes(piece) else piece


def _take_over(writer: BundleWriter, piece: FilePiece, totals: Totals) -> None:
    for entry in piece.entries:
        writer.keep(piece.root / str(entry["path"]), entry)
    docs, sums = piece.docs(), piece.sums()
    totals.sum_ += sums["visible"]
    first = docs["occ_row"][docs["occ_indptr"][:-1]]
    places = piece.columns("occurrences", ("exchange_id", "started_at", "project"))
    ids, started = ids_of(places["exchange_id"]), places["started_at"].to_pylist()
    projects = places["project"].to_pylist()
    at = first.tolist()
    totals.places(ids[first], ((started[i], projects[i]) for i in at))
    _count(totals, docs, {table: piece.n_rows(table) for table in TABLES})
    _note_claims(totals, piece, docs["claim_row"])
    totals.add_rooms(_rooms_of(piece, docs, [started[i] for i in at], [projects[i] for i in at]))


def _compose(
    writer: BundleWriter, name: str, month: Month, vectors: MonthVectors, settings: Settings, totals: Totals
) -> None:
    """Writes the segment of a month from its rows."""
    docs = month.docs
    sums = write_segment(writer, name, month.rows, docs, vectors, settings)
    totals.sum_ += sums["visible"]
    _count(totals, docs, {table: len(getattr(month.rows, table)) for table in TABLES})
    first = docs["occ_row"][docs["occ_indptr"][:-1]]
    places = (month.rows.occurrences[row] for row in first)
    totals.places(docs["exchange_id"].reshape(-1).view(ID), ((o.started_at, o.project) for o in places))
    totals.add_rooms(_rooms_of_rows(month, first))
    _note_rows(totals, month.rows.claims, docs["claim_row"], sums)


def _rooms_of_rows(month: Month, first: npt.NDArray[np.int32]) -> Iterator[Rooms]:
    """The rooms of a segment's documents, whose first places are given; see `visibility.derive_rooms`."""
    for row, place in zip(month.docs["object_row"], first, strict=True):
        rooms = month.rows.objects[row].room_assignments if row >= 0 else ()
        if rooms:
            at = month.rows.occurrences[place]
            for room in rooms:
                key = (room.room_type, room.room_key, at.project)
                yield key, room.room_label, 1, at.started_at, at.started_at


def _note_rows(totals: Totals, claims: Sequence[Claim], shown: npt.NDArray[np.int32], sums: Mapping[str, Any]) -> None:
    if not len(shown):
        return
    own, named, sizes = bytearray(), bytearray(), [0]
    for at in shown:
        row = claims[at]
        own += row.claim_id
        named += b"".join(row.exchange_ids)
        sizes.append(len(row.exchange_ids))
    subjects, values = (
        np.ascontiguousarray(sums[name][shown]).reshape(-1).view(ID) for name in ("claim-subject", "claim-values")
    )
    ids = np.frombuffer(bytes(own), ID)
    totals.claims.append((ids, subjects, values, np.cumsum(sizes), np.frombuffer(bytes(named), ID)))


def _count(totals: Totals, docs: Mapping[str, Any], rows: Mapping[str, int]) -> None:
    totals.count(
        exchange_rows=rows["exchanges"],
        occurrences=rows["occurrences"],
        objects=rows["objects"],
        claims=rows["claims"],
        visible_exchanges=len(docs["exchange_row"]),
        visible_occurrences=len(docs["occ_row"]),
        visible_objects=int((docs["object_row"] >= 0).sum()),
        visible_claims=len(docs["claim_row"]),
    )


def _note_claims(totals: Totals, piece: FilePiece, claim_row: npt.NDArray[np.int32]) -> None:
    if not len(claim_row):
        return
    columns = piece.columns("claims", ("claim_id", "exchange_ids"))
    subjects, values = claim_keys(piece)
    offsets = columns["exchange_ids"].offsets.to_numpy()
    flat = ids_of(columns["exchange_ids"].flatten())
    sizes = np.diff(offsets)[claim_row]
    starts = np.cumsum(np.append(0, sizes))
    base = offsets[claim_row] - offsets[0]
    named = flat[np.repeat(base - starts[:-1], sizes) + np.arange(int(starts[-1]))]
    own = ids_of(columns["claim_id"])[claim_row]
    totals.claims.append((own, subjects[claim_row], values[claim_row], starts, named))


def _rooms_of(
    piece: FilePiece, docs: Mapping[str, Any], started: Sequence[int | None], projects: Sequence[str]
) -> Iterator[Rooms]:
    """The rooms of an untouched segment; see `visibility.derive_rooms`."""
    lists = piece.columns("objects", ("room_assignments",))["room_assignments"]
    offsets, items = lists.offsets.to_numpy(), lists.flatten()
    kinds, keys, labels = (items.field(n).to_pylist() for n in ("room_type", "room_key", "room_label"))
    base = int(offsets[0]) if len(offsets) else 0
    for row, time, project in zip(docs["object_row"].tolist(), started, projects, strict=True):
        for i in range(int(offsets[row]) - base, int(offsets[row + 1]) - base) if row >= 0 else ():
            yield (kinds[i], keys[i], project), labels[i], 1, time, time


def _write_rest(
    writer: BundleWriter,
    tombstones: Sequence[Tombstone],
    settings: Settings,
    encoder_files: Sequence[Path],
    totals: Totals,
) -> dict[str, Any]:
    rooms = [Room(kind, key, label, project, *rest) for (kind, key, project), (label, *rest) in totals.rooms.items()]
    marks = totals.marks()
    for table, rows in ((tables.ROOMS, rooms), (tables.TOMBSTONES, tombstones), (tables.SUPERSEDED, marks)):
        writer.add("", table.name, ".parquet", table.name, partial(tables.write_table, table, rows))
    for path in encoder_files:
        writer.add_copy(path, f"encoder/{path.name}", "encoder")
    names = ("exchange_rows", "occurrences", "objects", "claims", "visible_exchanges", "visible_occurrences",
             "visible_objects", "visible_claims")  # fmt: skip
    distinct = set(tombstones)
    return {
        "logical_digest": digest_of_sum(totals.sum_ + visible_sum({"tombstones": distinct})),
        "counts": {
            "exchanges": len(np.unique(totals.view.exchanges.exchange_id)),
            "rooms": len(rooms),
            "superseded": len(marks),
            "tombstones": len(distinct),
            **{name: totals.counts.get(name, 0) for name in names},
        },
        "segments": totals.view.months,
        "encoder": settings.encoder,
        "bm25": settings.bm25,
        "index": {**settings.index, "parts": list(settings.parts)},
        "fingerprints": settings.fingerprints,
        "gate": settings.gate,
    }


def _segment_digests(files: Sequence[Mapping[str, Any]]) -> list[str]:
    by_segment: dict[str, dict[str, str]] = {}
    for entry in files:
        parts = str(entry["path"]).split("/")
        if parts[0] == "seg":
            by_segment.setdefault(parts[1], {})[str(entry["role"])] = str(entry["sha256"])
    return [segment_digest(roles) for roles in by_segment.values()]
