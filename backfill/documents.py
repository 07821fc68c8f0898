"""What a segment shows, as the arrays of its `docs` file, from its rows in canonical order and marks of which show.

The rules are those of `visibility`, which is the specification; here they are walks over sorted rows that may lie in a
file, so that nothing of a row is held. Memory: about 100 bytes a visible exchange. Deliberately absent: which
occurrences and claims show, which takes all segments (`overview`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.ids import ID_BYTES, row_bytes, row_hash
from backfill.links import session_number
from backfill.types import TIER_RANK, Claim, Exchange, Occurrence, PalaceObject
from backfill.visibility import exchange_rank

Mask = npt.NDArray[np.bool_]
Arrays = dict[str, npt.NDArray[Any]]
_ID = np.dtype(f"S{ID_BYTES}")


def documents_of(
    exchanges: Sequence[Exchange],
    occurrences: Sequence[Occurrence],
    objects: Sequence[PalaceObject],
    claims: Sequence[Claim],
    occurrences_shown: Mask,
    claims_shown: Mask,
) -> Arrays:
    """The arrays of a segment's documents. Every shown occurrence names an exchange that has a row here."""
    ids, places = _places(occurrences, np.flatnonzero(occurrences_shown))
    exchange_row, hashes = _shown_exchanges(exchanges, ids.tobytes())
    return {
        "exchange_id": ids.view(np.uint8).reshape(-1, ID_BYTES),
        "exchange_row": exchange_row,
        "object_row": _shown_objects(objects, ids.tobytes(), hashes),
        "claim_row": np.flatnonzero(claims_shown).astype("<i4"),
        **places,
        **_claim_links(claims, np.flatnonzero(claims_shown), ids),
    }


def _places(occurrences: Sequence[Occurrence], shown: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], Arrays]:
    """The ids of the documents, sorted, and where each stands: its places with the earliest first, its session."""
    named = bytearray()
    started, undated, sessions = array("q"), array("b"), array("Q")
    known: dict[tuple[str, str], int] = {}
    for at in shown.tolist():
        row = occurrences[at]
        named += row.exchange_id
        started.append(row.started_at or 0)
        undated.append(row.started_at is None)
        session = (row.agent, row.session_id)
        if session not in known:
            known[session] = session_number(*session)
        sessions.append(known[session])
    ids, doc = np.unique(np.frombuffer(bytes(named), _ID), return_inverse=True)
    keys = (np.array(started, np.int64), np.array(undated, np.int8), doc.reshape(-1))
    order = np.lexsort(keys)
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    for start, end in _runs(same):
        order[start:end] = sorted(order[start:end].tolist(), key=lambda i: row_bytes(occurrences[int(shown[i])]))
    indptr = np.cumsum([0, *np.bincount(keys[-1], minlength=len(ids))], dtype="<i8")
    return ids, {
        "occ_indptr": indptr,
        "occ_row": shown[order].astype("<i4"),
        "session": np.array(sessions, "<u8")[order[indptr[:-1]]],
    }


def _runs(same: Mask) -> Iterator[tuple[int, int]]:
    """(first, after the last) of each run of things that are the same as the one before; `same` begins with the 2nd."""
    edges = np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))
    yield from zip(np.flatnonzero(edges == 1).tolist(), (np.flatnonzero(edges == -1) + 1).tolist(), strict=True)


def _shown_exchanges(exchanges: Sequence[Exchange], ids: bytes) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The position [D] of the row of each document that shows, and its hash [D, 16]."""
    n = len(ids) // ID_BYTES
    chosen, hashes = np.zeros(n, "<i4"), np.zeros((n, ID_BYTES), np.uint8)
    for doc, members in _of_documents(exchanges, ids):
        at, row = members[0] if len(members) == 1 else max(members, key=lambda member: exchange_rank(member[1]))
        chosen[doc] = at
        hashes[doc] = np.frombuffer(row_hash(row), np.uint8)
    return chosen, hashes


def _shown_objects(objects: Sequence[PalaceObject], ids: bytes, hashes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """The position [D] of the object of each document, -1 where it has none; `hashes` are those of its exchange."""
    chosen = np.full(len(ids) // ID_BYTES, -1, "<i4")
    for doc, members in _of_documents(objects, ids):
        made_from = hashes[doc].tobytes()
        chosen[doc] = (
            members[0] if len(members) == 1 else max(members, key=lambda member: _object_rank(member[1], made_from))
        )[0]
    return chosen


def _object_rank(row: PalaceObject, shown_exchange: bytes) -> tuple[int, int, str, bool, bytes]:
    return TIER_RANK[row.tier], row.generation, row.fingerprint, row.source_row == shown_exchange, row_bytes(row)


def _of_documents(rows: Sequence[Any], ids: bytes) -> Iterator[tuple[int, list[tuple[int, Any]]]]:
    """(document, its rows with their positions) of rows that are sorted by exchange id; `ids` are those of all."""
    doc, n = 0, len(ids) // ID_BYTES
    for xid, group in groupby(enumerate(rows), key=lambda member: member[1].exchange_id):
        while doc < n and ids[doc * ID_BYTES : (doc + 1) * ID_BYTES] < xid:
            doc += 1
        if doc < n and ids[doc * ID_BYTES : (doc + 1) * ID_BYTES] == xid:
            yield doc, list(group)


def _claim_links(claims: Sequence[Claim], shown: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> Arrays:
    """See `links.claim_links`."""
    named, sizes = bytearray(), array("q", [0])
    for at in shown.tolist():
        cell = claims[at].exchange_ids
        sizes.append(len(cell))
        named += b"".join(cell)
    flat = np.frombuffer(bytes(named), _ID)
    doc = np.minimum(np.searchsorted(ids, flat), max(len(ids) - 1, 0))
    here = ids[doc] == flat if len(ids) else np.zeros(len(flat), np.bool_)
    return {
        "claim_indptr": np.cumsum(np.array(sizes, np.int64), dtype="<i8"),
        "claim_doc": np.where(here, doc, -1).astype("<i4"),
        "claim_far": flat[~here].view(np.uint8).reshape(-1, ID_BYTES),
    }
