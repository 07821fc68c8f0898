"""What is visible over all pieces of a merge, from key columns alone: the rules of `visibility` as array operations.

An exchange's rows lie in one segment, so only two questions need all pieces at once: which occurrences and which claims
show, and in which month an exchange lies. Rows themselves are read where keys tie. Memory: about 200 bytes an
occurrence and 150 a claim. `visibility` is the specification; a property test compares the bundles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill import visibility as vis
from backfill.ids import row_bytes
from backfill.piece_columns import I32, ID, hashed, ids_of, numbers, tier_ranks
from backfill.pieces import Piece, key_columns

Ids = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NO_TIME = np.iinfo(np.int64).max
# Rows of 1 KB: 16 MB where each run has two.
_RUNS_AT_ONCE = 8192


@dataclass(slots=True)
class Keys:
    """Key columns of a table over all pieces, in order of pieces; `starts` [P + 1] are each piece's first row."""

    starts: I64
    exchange_id: Ids

    def of(self, piece: int) -> slice:
        """The rows of a piece."""
        return slice(int(self.starts[piece]), int(self.starts[piece + 1]))


@dataclass(slots=True)
class Overview:
    """What a merge knows before it reads rows.

    `ids` [X] S16, sorted, are the exchanges that any exchange, occurrence or object row names; `month` [X] i4 indexes
    `months`. `occurrences_shown` and `claims_shown` are masks over the rows of their keys. `shown` [X]: visible.
    """

    ids: Ids
    month: npt.NDArray[np.int32]
    months: list[str]
    shown: Bools
    exchanges: Keys
    occurrences: Keys
    objects: Keys
    claims: Keys
    occurrences_shown: Bools
    claims_shown: Bools

    def months_of(self, keys: Keys, rows: slice | I64 = slice(None)) -> npt.NDArray[np.int32]:
        """[n] i4: the month of each row; -1 for one whose exchange no table names."""
        wanted = keys.exchange_id[rows]
        if not len(self.ids):
            return np.full(len(wanted), -1, np.int32)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        return np.where(self.ids[at] == wanted, self.month[at], -1).astype(np.int32)


def overview_of(pieces: Sequence[Piece], forgotten: Collection[bytes]) -> Overview:
    """Reads the key columns of all pieces. `forgotten` are the exchange ids of all tombstones."""
    exchanges = _simple_keys(pieces, "exchanges")
    objects = _simple_keys(pieces, "objects")
    places = _places(pieces)
    occurrences = places.keys
    ids = np.unique(np.concatenate([exchanges.exchange_id, occurrences.exchange_id, objects.exchange_id]))
    month, months = _months(ids, occurrences.exchange_id, places.started)
    best = _best_occurrences(pieces, places)
    del places
    hidden = np.isin(ids, _id_array(forgotten))
    with_row = np.zeros(len(ids), np.bool_)
    with_row[np.searchsorted(ids, exchanges.exchange_id)] = True
    named = np.zeros(len(ids), np.bool_)
    named[np.searchsorted(ids, occurrences.exchange_id[best])] = True
    shown = named & with_row & ~hidden
    at = np.searchsorted(ids, occurrences.exchange_id)
    claims, claims_shown = _claims(pieces, ids, shown, forgotten)
    return Overview(
        ids, month, months, shown, exchanges, occurrences, objects, claims, best & shown[at] if len(at) else best,
        claims_shown,
    )  # fmt: skip


@dataclass(slots=True)
class _Places:
    """What decides between occurrences: `key` [N] S16 hashes their key, times are microseconds."""

    keys: Keys
    key: Ids
    started: I64
    version: npt.NDArray[np.int32]
    records: npt.NDArray[np.int32]


def _places(pieces: Sequence[Piece]) -> _Places:
    """Columns of one piece are held at a time: their texts take more than all that is kept of them."""
    found: list[tuple[Any, ...]] = []
    for piece in pieces:
        c = piece.columns("occurrences", key_columns("occurrences"))
        found.append(
            (
                ids_of(c["exchange_id"]),
                hashed(*(c[name] for name in ("agent", "session_id", "anchor", "part"))),
                numbers(c["started_at"], np.int64, _NO_TIME),
                numbers(c["scan_version"]),
                numbers(c["n_records"]),
            )
        )
    ids, key, started, version, records = zip(*found, strict=True) if found else [()] * 5
    keys = Keys(_starts([len(one) for one in ids]), _joined(ids))
    return _Places(keys, _joined(key), _joined(started, np.int64), _joined(version, I32), _joined(records, I32))


def _simple_keys(pieces: Sequence[Piece], table: str) -> Keys:
    found = [ids_of(piece.columns(table, ("exchange_id",))["exchange_id"]) for piece in pieces]
    return Keys(_starts([len(ids) for ids in found]), _joined(found))


def _months(ids: Ids, named: Ids, started: I64) -> tuple[npt.NDArray[np.int32], list[str]]:
    """The month (UTC) of the earliest occurrence of each exchange, visible or not."""
    earliest = np.full(len(ids), _NO_TIME, np.int64)
    np.minimum.at(earliest, np.searchsorted(ids, named), started)
    days, inverse = np.unique(np.where(earliest == _NO_TIME, _NO_TIME, earliest // 86_400_000_000), return_inverse=True)
    names = [_month(int(day)) for day in days]
    months = sorted(set(names))
    code = np.array([months.index(name) for name in names], np.int32)
    return (code[inverse].reshape(-1) if len(ids) else np.empty(0, np.int32)), months


def _month(day: int) -> str:
    if day == _NO_TIME:
        return vis.UNDATED
    try:
        moment = datetime.fromtimestamp(day * 86_400, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the calendar, as `trees.iso` has it
        return vis.UNDATED
    return f"{moment.year:04d}-{moment.month:02d}"


def _best_occurrences(pieces: Sequence[Piece], places: _Places) -> Bools:
    """Per key one row, the greatest by (scan_version, n_records, exchange_id, row bytes); none that was read again."""
    n = len(places.key)
    best = np.zeros(n, np.bool_)
    rows = np.arange(n)
    if n and places.version.min() != places.version.max():
        rows = np.flatnonzero(~_read_again(pieces, places.version))
    rank = (places.version[rows], places.records[rows], places.keys.exchange_id[rows])
    best[_greatest(pieces, "occurrences", places.keys, rows, places.key[rows], *rank)] = True
    return best


def _greatest(pieces: Sequence[Piece], table: str, keys: Keys, rows: I64, same: Any, *rank: Any) -> I64:
    """Of rows with one value in `same` the greatest by (rank, row bytes); of copies the first.

    `rows` [n] rise; `same` and the columns of `rank`, the first of which counts most, are [n] too.
    """
    if not len(rows):
        return rows
    order = np.lexsort((*rank[::-1], same))
    beside = same[order[1:]] == same[order[:-1]]
    tied = beside.copy()
    for column in rank:
        tied &= column[order[1:]] == column[order[:-1]]
    run = np.cumsum(np.append(False, ~tied))  # rows of one run are equal in all but their bytes
    tops = run[np.flatnonzero(np.append(~beside, True))]
    top = np.searchsorted(tops, run)
    of_top = tops[top] == run
    return _by_bytes(pieces, table, keys, rows[order[of_top]], top[of_top])


def _by_bytes(pieces: Sequence[Piece], table: str, keys: Keys, rows: I64, run: I64) -> I64:
    """Of each run of rows (numbered from 0, together) the row whose bytes are greatest; of copies the first."""
    starts = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
    sizes = np.diff(np.append(starts, len(rows)))
    chosen: I64 = rows[starts].copy()
    several = np.flatnonzero(sizes > 1)
    # Pieces are sorted alike, so runs that follow each other in one lie together in the others, and are read together.
    several = several[np.argsort(chosen[several], kind="stable")]
    for at in range(0, len(several), _RUNS_AT_ONCE):
        block = several[at : at + _RUNS_AT_ONCE]
        members = np.concatenate([np.arange(starts[i], starts[i] + sizes[i]) for i in block])
        members = members[np.argsort(rows[members], kind="stable")]
        best: dict[int, bytes] = {}
        for member, data in zip(members.tolist(), _bytes_of(pieces, table, keys, rows[members]), strict=True):
            i = int(run[member])
            if i not in best or data > best[i]:
                best[i], chosen[i] = data, rows[member]
    return chosen


def _bytes_of(pieces: Sequence[Piece], table: str, keys: Keys, rows: I64) -> Iterator[bytes]:
    """The bytes of rising rows."""
    bounds = np.searchsorted(rows, keys.starts)
    for number, (start, end) in enumerate(pairwise(bounds.tolist())):
        if end > start:
            positions = rows[start:end] - int(keys.starts[number])
            yield from map(row_bytes, pieces[number].each(table, positions))


def _read_again(pieces: Sequence[Piece], version: npt.NDArray[np.int32]) -> Bools:
    """Rows for which a higher scan_version has a row of the same session and source that ends at or after them."""
    columns = (piece.columns("occurrences", ("agent", "session_id", "source", "byte_end")) for piece in pieces)
    found = [(hashed(c["agent"], c["session_id"], c["source"]), numbers(c["byte_end"], np.int64)) for c in columns]
    session, ends = _joined([one for one, _ in found]), _joined([one for _, one in found], np.int64)
    _, code = np.unique(session, return_inverse=True)
    reach = np.full(int(code.max()) + 1, -1, np.int64)
    again = np.zeros(len(version), np.bool_)
    for step in np.unique(version)[::-1]:
        here = version == step
        again |= here & (reach[code] >= ends)
        np.maximum.at(reach, code[here], ends[here])
    return again


def _claims(pieces: Sequence[Piece], ids: Ids, shown: Bools, forgotten: Collection[bytes]) -> tuple[Keys, Bools]:
    """Keys of claims (by the least exchange that each names) and which of them show."""
    found = [_claim_columns(piece) for piece in pieces]
    starts = _starts([len(one.claim_id) for one in found])
    if not starts[-1]:
        return Keys(starts, np.empty(0, ID)), np.empty(0, np.bool_)
    flat = _joined([one.named for one in found])
    first = np.cumsum(np.append(0, _joined([one.sizes for one in found])))[:-1]
    keys = Keys(starts, flat[first])  # exchange_ids are sorted: the first is the least
    at = np.minimum(np.searchsorted(ids, flat), max(len(ids) - 1, 0))
    visible = (ids[at] == flat) & shown[at] if len(ids) else np.zeros(len(flat), np.bool_)
    gone = np.isin(flat, _id_array(forgotten))
    wanted = np.logical_or.reduceat(visible, first) & ~np.logical_or.reduceat(gone, first)
    rank_of = {name: i for i, name in enumerate(sorted({name for one in found for name in one.prints}))}
    rank = (
        *(_joined([one.rank[:, column] for one in found]) for column in range(3)),
        _joined([np.array([rank_of[name] for name in one.prints], np.int64)[one.print_of] for one in found]),
    )
    window, claim_id = _joined([one.window for one in found]), _joined([one.claim_id for one in found])
    del found
    order = np.lexsort((*rank[::-1], window))
    last = np.flatnonzero(np.append(window[order[1:]] != window[order[:-1]], True))
    group = np.searchsorted(last, np.arange(len(order)))
    tops = order[last[group]]
    equal = np.ones(len(order), np.bool_)
    for column in rank:
        equal &= column[order] == column[tops]
    is_best = np.zeros(len(order), np.bool_)
    is_best[order] = equal
    rows = np.flatnonzero(wanted & is_best)
    distinct = np.zeros(len(order), np.bool_)
    distinct[_greatest(pieces, "claims", keys, rows, claim_id[rows], *(column[rows] for column in rank[1:]))] = True
    return keys, distinct


@dataclass(slots=True)
class _ClaimColumns:
    """What decides between the claims of a piece: `rank` [N, 3] i8 has reading, tier and generation.

    `named` are the exchange ids of all claims, `sizes` [N] how many each has; `print_of` [N] indexes `prints`.
    """

    claim_id: Ids
    named: Ids
    sizes: I64
    window: Ids
    rank: I64
    prints: list[str]
    print_of: I64


def _claim_columns(piece: Piece) -> _ClaimColumns:
    c = piece.columns("claims", key_columns("claims"))
    prints, print_of = np.unique(np.array(c["fingerprint"].to_pylist(), object), return_inverse=True)
    return _ClaimColumns(
        ids_of(c["claim_id"]),
        ids_of(c["exchange_ids"].flatten()),
        np.diff(c["exchange_ids"].offsets.to_numpy()).astype(np.int64),
        hashed(c["session_id"], c["source"], c["window"]),
        np.stack([numbers(c["reading"], np.int64), tier_ranks(c["tier"]), numbers(c["generation"])], axis=1),
        prints.tolist(),
        print_of.reshape(-1),
    )


def _starts(counts: Sequence[int]) -> I64:
    return np.cumsum([0, *counts]).astype(np.int64)


def _joined(arrays: Sequence[Any], dtype: Any = ID) -> Any:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _id_array(ids: Collection[bytes]) -> Ids:
    return np.frombuffer(b"".join(sorted(ids)), ID)
