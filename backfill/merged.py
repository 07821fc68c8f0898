"""Writing the bundle of many pieces: segments that nothing touches are taken over whole, the others are composed.

One segment's rows are in memory at a time, beside the overview of keys. What decides is in `overview` and `compose`;
here is only which segment is made from which rows. Taken over are files that this user's own commands wrote; of a
stranger's bundle every segment is composed from its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill import tables
from backfill import visibility as vis
from backfill.bundle_writer import BundleWriter
from backfill.compose import SegmentRows, write_segment
from backfill.inputs import Settings
from backfill.overview import Keys, Overview, overview_of
from backfill.pieces import ID, TABLES, FilePiece, Piece, claim_keys, id_at, ids_of, texts_of
from backfill.rows import sort_rows
from backfill.superseded import marks_in
from backfill.trust import record_segments, segment_digest
from backfill.types import Room, Superseded, Tombstone
from backfill.union import SUM_LANES, Union, View, digest_of_sum, visible_sum
from backfill.verbatim_vectors import VerbatimVectors

_NO_TIME = np.iinfo(np.int64).min
_RoomKey: TypeAlias = tuple[Any, str, str]  # type, key, project


@dataclass(slots=True)
class _Totals:
    """What is summed over segments while they are written."""

    view: Overview
    sum_: npt.NDArray[np.uint16] = field(default_factory=lambda: np.zeros(SUM_LANES, "<u2"))
    counts: dict[str, int] = field(default_factory=dict)
    rooms: dict[_RoomKey, list[Any]] = field(default_factory=dict)
    projects: dict[str, int] = field(default_factory=dict)
    started: Any = None
    project: Any = None
    claims: list[tuple[Any, Any, Any, Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = np.full(len(self.view.ids), _NO_TIME, np.int64)
        self.project = np.full(len(self.view.ids), -1, np.int32)

    def count(self, **more: int) -> None:
        for name, n in more.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def places(self, ids: npt.NDArray[Any], started: Sequence[int | None], projects: Sequence[str]) -> None:
        """Notes time and project of the first place of visible exchanges."""
        at = np.searchsorted(self.view.ids, ids)
        self.started[at] = [_NO_TIME if t is None else t for t in started]
        self.project[at] = [self.projects.setdefault(name, len(self.projects)) for name in projects]

    def add_rooms(self, rooms: Iterable[tuple[_RoomKey, str, int, int | None, int | None]]) -> None:
        """Adds (key, label, exchanges, first, last) to what is known of each room."""
        for key, label, n, first, last in rooms:
            found = self.rooms.get(key)
            if found is None:
                self.rooms[key] = [label, n, first, last]
                continue
            found[1] += n
            if label < found[0]:
                found[0] = label
            if first is not None and (found[2] is None or first < found[2]):
                found[2] = first
            if last is not None and (found[3] is None or last > found[3]):
                found[3] = last

    def marks(self) -> list[Superseded]:
        """Which claims later ones replace; see `superseded.derive_superseded`."""
        names = [name for name, _ in sorted(self.projects.items(), key=lambda item: item[1])]
        groups: dict[tuple[str, bytes], list[tuple[int, bytes, Any]]] = {}
        for claim_ids, subjects, values, starts, named in self.claims:
            at = np.minimum(np.searchsorted(self.view.ids, named), max(len(self.view.ids) - 1, 0))
            known = (self.view.ids[at] == named) & (self.project[at] >= 0)
            for i in np.flatnonzero(subjects != b""):
                rows = at[starts[i] : starts[i + 1]][known[starts[i] : starts[i + 1]]]
                times = self.started[rows]
                times = times[times != _NO_TIME]
                if len(times):
                    project = min(names[p] for p in self.project[rows])
                    member = (int(times.max()), id_at(claim_ids, i), id_at(values, i))
                    groups.setdefault((project, id_at(subjects, i)), []).append(member)
        return marks_in(groups.values())


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
    greater = _greater_vectors(pieces, parts)
    verbatim = VerbatimVectors(pieces if "verbatim" in parts else ())
    totals = _Totals(view)
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
                _compose(writer, name, pieces, view, here, forgotten, settings, greater, verbatim, totals)
        manifest = _write_rest(writer, tombstones, settings, encoder_files, totals)
        changed = writer.commit(manifest, lineage, expected=expected)
        record_segments(_segment_digests(writer.files))
    return {"counts": manifest["counts"], "logical_digest": manifest["logical_digest"], "changed": changed}


_Members = list[tuple[int, dict[str, npt.NDArray[np.int64]]]]


def _members(pieces: Sequence[Piece], view: Overview, months: Mapping[str, Any], code: int) -> _Members:
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
    pieces: Sequence[Piece], view: Overview, here: _Members, name: str, months: Mapping[str, Any], greater: _Greater
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


def _take_over(writer: BundleWriter, piece: FilePiece, totals: _Totals) -> None:
    for entry in piece.entries:
        writer.keep(piece.root / str(entry["path"]), entry)
    docs, sums = piece.docs(), piece.sums()
    totals.sum_ += sums["visible"]
    first = docs["occ_row"][docs["occ_indptr"][:-1]]
    places = piece.columns("occurrences", ("exchange_id", "started_at", "project"))
    ids, started = ids_of(places["exchange_id"]), places["started_at"].to_pylist()
    projects = places["project"].to_pylist()
    at = first.tolist()
    totals.places(ids[first], [started[i] for i in at], [projects[i] for i in at])
    _count(totals, docs, {table: piece.n_rows(table) for table in TABLES})
    _note_claims(totals, piece, docs["claim_row"])
    totals.add_rooms(_rooms_of(piece, docs, [started[i] for i in at], [projects[i] for i in at]))


def _compose(
    writer: BundleWriter,
    name: str,
    pieces: Sequence[Piece],
    view: Overview,
    here: _Members,
    forgotten: set[bytes],
    settings: Settings,
    greater: _Greater,
    verbatim: VerbatimVectors,
    totals: _Totals,
) -> None:
    """Reads the rows of one month from all pieces and writes its segment."""
    union = Union()
    occurrences: dict[Any, None] = {}
    claims: dict[Any, None] = {}
    for number, rows in here:
        piece = pieces[number]
        for table in TABLES:
            found = piece.rows(table, rows[table])
            union.add(table, found)
            _take_vectors(union, piece, table, found, rows[table], settings)
            if table in ("occurrences", "claims"):
                keys: Keys = getattr(view, table)
                flags = (view.occurrences_shown if table == "occurrences" else view.claims_shown)[keys.of(number)]
                kept = occurrences if table == "occurrences" else claims
                kept.update((row, None) for row, at in zip(found, rows[table], strict=True) if flags[at])
    verbatim.give(union)
    greater.apply(union)
    shown = _view(union, list(occurrences), list(claims), forgotten)
    segment = SegmentRows(*(sort_rows(table, getattr(union, table).values()) for table in TABLES))
    docs, sums = write_segment(writer, name, segment, shown, union, settings)
    totals.sum_ += sums["visible"]
    _count(totals, docs, {table: len(getattr(segment, table)) for table in TABLES})
    first = [shown.places[xid][0] for xid in shown.exchanges]
    ids = np.frombuffer(b"".join(shown.exchanges), ID)
    totals.places(ids, [o.started_at for o in first], [o.project for o in first])
    totals.add_rooms(
        ((r.room_type, r.room_key, r.project), r.room_label, r.n_exchanges, r.first_at, r.last_at)
        for r in vis.derive_rooms(shown.objects, shown.places)
    )
    visible = [segment.claims[i] for i in docs["claim_row"]]
    pick = docs["claim_row"]
    subjects = np.ascontiguousarray(sums["claim-subject"][pick]).reshape(-1).view(ID) if len(pick) else np.empty(0, ID)
    values = np.ascontiguousarray(sums["claim-values"][pick]).reshape(-1).view(ID) if len(pick) else np.empty(0, ID)
    starts = np.cumsum([0, *(len(row.exchange_ids) for row in visible)])
    named = np.frombuffer(b"".join(xid for row in visible for xid in row.exchange_ids), ID)
    own = np.frombuffer(b"".join(row.claim_id for row in visible), ID)
    totals.claims.append((own, subjects, values, starts, named))


def _view(union: Union, occurrences: list[Any], claims: list[Any], forgotten: set[bytes]) -> View:
    exchanges = vis.visible_exchanges(union.exchanges.values(), occurrences, forgotten)
    places = [o for o in occurrences if o.exchange_id in exchanges]
    objects = vis.visible_objects(union.objects.values(), exchanges)
    return View(places, exchanges, objects, claims, vis.best_occurrences(places))


def _take_vectors(
    union: Union, piece: Piece, table: str, rows: list[Any], positions: npt.NDArray[np.int64], settings: Settings
) -> None:
    if not settings.encoder or not rows or table not in ("objects", "claims"):
        return
    for part in ("claims",) if table == "claims" else settings.parts:
        matrix = piece.vectors(part)
        if matrix is not None:
            piece.compare_vectors(part)
            union.add_vectors(texts_of(rows, part), matrix[positions])


class _Greater:
    """Texts that have several vectors among the pieces, and the greatest of each, by the first bytes of their hash."""

    def __init__(self, best: Mapping[int, bytes], parts: Sequence[str]) -> None:
        self._best = best
        self._keys = np.array(sorted(best), np.uint64)
        self._parts = parts

    def changes(self, piece: Piece) -> bool:
        """Whether a vector of the piece has to give way."""
        for part in self._parts if len(self._keys) else ():
            keys = piece.text_keys(part)
            for row in np.flatnonzero(np.isin(keys, self._keys)):
                matrix = piece.vectors(part)
                if matrix is None or matrix[row].tobytes() != self._best[int(keys[row])]:
                    return True
        return False

    def apply(self, union: Union) -> None:
        """Puts the greatest vectors in the place of those that a union holds."""
        for key, data in union.vectors.items() if self._best else ():
            best = self._best.get(int.from_bytes(key[:8], "little"))
            if best is not None:
                union.vectors[key] = max(data, best)


def _greater_vectors(pieces: Sequence[Piece], parts: Sequence[str]) -> _Greater:
    """Compares the vectors of every text that several rows have."""
    keys, owners, rows, kinds = [], [], [], []
    for number, piece in enumerate(pieces):
        for kind, part in enumerate(parts):
            if piece.vectors(part) is not None:
                found = piece.text_keys(part)
                keys.append(found)
                owners.append(np.full(len(found), number, np.int32))
                kinds.append(np.full(len(found), kind, np.int8))
                rows.append(np.arange(len(found), dtype=np.int64))
    if not keys:
        return _Greater({}, parts)
    key, owner, row, kind_of = (np.concatenate(found) for found in (keys, owners, rows, kinds))
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    best: dict[int, bytes] = {}

    def data(at: int) -> bytes:
        vector: bytes = pieces[owner[at]].vectors(parts[kind_of[at]])[row[at]].tobytes()
        return vector

    for i in same.tolist():
        a, b = data(order[i]), data(order[i + 1])
        if a != b:
            for at in (order[i], order[i + 1]):
                pieces[owner[at]].compare_vectors(parts[kind_of[at]])
            k = int(key[order[i]])
            best[k] = max(a, b, best.get(k, b""))
    return _Greater(best, parts)


def _count(totals: _Totals, docs: Mapping[str, Any], rows: Mapping[str, int]) -> None:
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


def _note_claims(totals: _Totals, piece: FilePiece, claim_row: npt.NDArray[np.int32]) -> None:
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
) -> Iterator[tuple[_RoomKey, str, int, int | None, int | None]]:
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
    totals: _Totals,
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
