"""What is visible over all pieces of a merge, from key columns alone: the rules of `visibility` as array operations.

An exchange's rows lie in one segment, so only two questions need all pieces at once: which occurrences and which claims
show, and in which month an exchange lies. Rows themselves are read where keys tie. Memory: about 200 bytes an
occurrence and 150 a claim. `visibility` is the specification; a property test compares the bundles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill import visibility as vis
from backfill.ids import row_bytes
from backfill.pieces import ID, Piece, hashed, ids_of, key_columns, numbers, tier_ranks

Ids = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NO_TIME = np.iinfo(np.int64).max


@dataclass(slots=True)
class Keys:
    """Key columns of a table over all pieces, in order of pieces; `starts` [P + 1] are each piece's first row."""

    starts: I64
    exchange_id: Ids

    def of(self, piece: int) -> slice:
        """The rows of a piece."""
        return slice(int(self.starts[piece]), int(self.starts[piece + 1]))

    def place(self, row: int) -> tuple[int, int]:
        """(piece, position in it) of a row."""
        piece = int(np.searchsorted(self.starts, row, side="right")) - 1
        return piece, row - int(self.starts[piece])


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
    columns = [piece.columns("occurrences", key_columns("occurrences")) for piece in pieces]
    occurrences = Keys(_starts([len(c["part"]) for c in columns]), _joined([ids_of(c["exchange_id"]) for c in columns]))
    started = _joined([numbers(c["started_at"], np.int64, _NO_TIME) for c in columns])
    ids = np.unique(np.concatenate([exchanges.exchange_id, occurrences.exchange_id, objects.exchange_id]))
    month, months = _months(ids, occurrences.exchange_id, started)
    best = _best_occurrences(pieces, columns, occurrences)
    del columns
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
    moment = datetime.fromtimestamp(day * 86_400, UTC)
    return f"{moment.year:04d}-{moment.month:02d}"


def _best_occurrences(pieces: Sequence[Piece], columns: Sequence[Any], keys: Keys) -> Bools:
    """Per key one row, the greatest by (scan_version, n_records, exchange_id, row bytes); none that was read again."""
    n = len(keys.exchange_id)
    version = _joined([numbers(c["scan_version"]) for c in columns], np.int32)
    best = np.zeros(n, np.bool_)
    candidates = (
        np.flatnonzero(~_read_again(columns, version)) if n and version.min() != version.max() else np.arange(n)
    )
    if not len(candidates):
        return best
    names = ("agent", "session_id", "anchor", "part")
    key = _joined([hashed(*(c[name] for name in names)) for c in columns])[candidates]
    records = _joined([numbers(c["n_records"]) for c in columns], np.int32)[candidates]
    ids = keys.exchange_id[candidates]
    order = np.lexsort((ids, records, version[candidates], key))
    last = np.append(key[order[1:]] != key[order[:-1]], True)
    tops = order[last]
    best[candidates[tops]] = True
    # Rows that tie with their key's best in everything but their bytes stand right before it.
    ends = np.flatnonzero(last)
    before = ends[ends > 0]
    tied = before[_ties(order, before, key, version[candidates], records, ids)]
    for end in tied:
        group = [int(order[end])]
        at = int(end) - 1
        while at >= 0 and _equal(order[at], order[end], key, version[candidates], records, ids):
            group.append(int(order[at]))
            at -= 1
        rows = candidates[np.array(group)]
        best[rows] = False
        best[_greatest(pieces, "occurrences", keys, rows)] = True
    return best


def _ties(order: I64, ends: I64, *columns: Any) -> Bools:
    same = np.ones(len(ends), np.bool_)
    for column in columns:
        same &= column[order[ends]] == column[order[ends - 1]]
    return same


def _equal(a: Any, b: Any, *columns: Any) -> bool:
    return all(column[a] == column[b] for column in columns)


def _greatest(pieces: Sequence[Piece], table: str, keys: Keys, rows: I64) -> int:
    """The row whose bytes are greatest; of copies the first."""

    def data(row: int) -> bytes:
        piece, position = keys.place(row)
        return row_bytes(pieces[piece].rows(table, [position])[0])

    return max(sorted(int(r) for r in rows), key=lambda r: (data(r), -r))


def _read_again(columns: Sequence[Any], version: npt.NDArray[np.int32]) -> Bools:
    """Rows for which a higher scan_version has a row of the same session and source that ends at or after them."""
    session = _joined([hashed(c["agent"], c["session_id"], c["source"]) for c in columns])
    ends = _joined([numbers(c["byte_end"], np.int64) for c in columns], np.int64)
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
    columns = [piece.columns("claims", key_columns("claims")) for piece in pieces]
    counts = [len(c["window"]) for c in columns]
    if not sum(counts):
        return Keys(_starts(counts), np.empty(0, ID)), np.empty(0, np.bool_)
    named = [ids_of(c["exchange_ids"].flatten()) for c in columns]
    sizes = _joined([np.diff(c["exchange_ids"].offsets.to_numpy()) for c in columns], np.int64)
    flat = _joined(named)
    first = np.cumsum(np.append(0, sizes))[:-1]
    keys = Keys(_starts(counts), flat[first])  # exchange_ids are sorted: the first is the least
    at = np.minimum(np.searchsorted(ids, flat), max(len(ids) - 1, 0))
    visible = (ids[at] == flat) & shown[at] if len(ids) else np.zeros(len(flat), np.bool_)
    gone = np.isin(flat, _id_array(forgotten))
    wanted = np.logical_or.reduceat(visible, first) & ~np.logical_or.reduceat(gone, first)
    window = _joined([hashed(c["session_id"], c["source"], c["window"]) for c in columns])
    prints = [c["fingerprint"].to_pylist() for c in columns]
    rank_of = {name: i for i, name in enumerate(sorted({name for found in prints for name in found}))}
    rank = (
        np.concatenate([numbers(c["reading"]) for c in columns]),
        np.concatenate([tier_ranks(c["tier"]) for c in columns]),
        np.concatenate([numbers(c["generation"]) for c in columns]),
        np.array([rank_of[name] for found in prints for name in found], np.int64),
    )
    order = np.lexsort((*rank[::-1], window))
    last = np.flatnonzero(np.append(window[order[1:]] != window[order[:-1]], True))
    group = np.searchsorted(last, np.arange(len(order)))
    tops = order[last[group]]
    equal = np.ones(len(order), np.bool_)
    for column in rank:
        equal &= column[order] == column[tops]
    is_best = np.zeros(len(order), np.bool_)
    is_best[order] = equal
    claim_id = _joined([ids_of(c["claim_id"]) for c in columns])
    return keys, _distinct_claims(pieces, keys, np.flatnonzero(wanted & is_best), claim_id, rank[1:])


def _distinct_claims(pieces: Sequence[Piece], keys: Keys, rows: I64, claim_id: Ids, rank: Sequence[Any]) -> Bools:
    """Of equal claims the greatest by (tier, generation, fingerprint, row bytes)."""
    shown = np.zeros(len(claim_id), np.bool_)
    if not len(rows):
        return shown
    order = rows[np.lexsort((*(column[rows] for column in rank[::-1]), claim_id[rows]))]
    last = np.append(claim_id[order[1:]] != claim_id[order[:-1]], True)
    shown[order[last]] = True
    ends = np.flatnonzero(last)
    ends = ends[ends > 0]
    for end in ends[_ties(order, ends, claim_id, *rank)]:
        at, top = int(end) - 1, order[end]
        group = [int(top)]
        while at >= 0 and _equal(order[at], top, claim_id, *rank):
            group.append(int(order[at]))
            at -= 1
        shown[group] = False
        shown[_greatest(pieces, "claims", keys, np.array(group))] = True
    return shown


def _starts(counts: Sequence[int]) -> I64:
    return np.cumsum([0, *counts]).astype(np.int64)


def _joined(arrays: Sequence[Any], dtype: Any = ID) -> Any:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _id_array(ids: Collection[bytes]) -> Ids:
    return np.frombuffer(b"".join(sorted(ids)), ID)
