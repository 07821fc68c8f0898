"""A bundle's visible claims as numbers: which exchanges they came from, which of them a later claim replaced.

Claims are counted through the segments in order, as documents are. Deliberately absent: their text, which is read for
those that are shown alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.columns import ParquetFile
from backfill.signals import Mask, Units, starts

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.types import Claim


class ClaimIndex(msgspec.Struct, frozen=True):
    """Claims and documents of each other, in compressed rows.

    Claim c came from the documents docs[docs_indptr[c]:docs_indptr[c + 1]]; document d has the claims
    claims[claims_indptr[d]:claims_indptr[d + 1]]. `current` [C] is false where a later claim replaced it.
    """

    docs_indptr: Units
    docs: Units
    claims_indptr: Units
    claims: Units
    current: Mask

    def __len__(self) -> int:
        return len(self.docs_indptr) - 1

    def docs_of(self, claim: int) -> Units:
        """The documents of one claim."""
        return self.docs[self.docs_indptr[claim] : self.docs_indptr[claim + 1]]

    def claims_of(self, doc: int) -> Units:
        """The claims of one document."""
        return self.claims[self.claims_indptr[doc] : self.claims_indptr[doc + 1]]

    def pairs(self, claims: Units) -> tuple[Units, Units]:
        """(position in `claims`, document) of every document of the given claims."""
        return _runs(self.docs_indptr, self.docs, claims)

    def pairs_of_docs(self, docs: Units) -> tuple[Units, Units]:
        """(position in `docs`, claim) of every claim of the given documents."""
        return _runs(self.claims_indptr, self.claims, docs)

    def any_doc(self, docs: Mask) -> Mask:
        """[C] true where a document of the claim is true in `docs`."""
        allowed = np.zeros(len(self), np.bool_)
        claim_of = np.repeat(np.arange(len(self)), np.diff(self.docs_indptr))
        allowed[claim_of[docs[self.docs]]] = True
        return allowed

    def any_claim(self, claims: Mask, n_docs: int) -> Mask:
        """[documents] true where a claim of the document is true in `claims`."""
        docs = np.zeros(n_docs, np.bool_)
        docs[self.docs[np.repeat(claims, np.diff(self.docs_indptr))]] = True
        return docs


def claim_index(bundle: Bundle) -> ClaimIndex:
    """The bundle's claim index, made once."""
    return bundle.once("claim_index", _open, bundle)


def claim_kinds(bundle: Bundle) -> npt.NDArray[Any]:
    """[C] the kinds of the visible claims, as text."""
    return bundle.once("claim_kinds", _kinds, bundle)


def replaced_by(bundle: Bundle) -> dict[bytes, bytes]:
    """Claim id -> the id of the later claim that replaced it."""

    def read() -> dict[bytes, bytes]:
        entry = bundle.files.get("superseded")
        if entry is None or not entry.rows:
            return {}
        columns = ParquetFile(bundle.path / entry.path).read(("claim_id", "superseded_by"))
        return dict(sorted(zip(columns["claim_id"], columns["superseded_by"], strict=True)))

    return bundle.once("replaced_by", read)


def claim_rows(bundle: Bundle, units: Units) -> list[Claim]:
    """The rows of the claims of the given numbers, in their order, read from the row groups they stand in."""
    from backfill.rows import rows_of
    from backfill.types import Claim

    base = starts(bundle, "claims")
    numbers = np.searchsorted(base, units, side="right") - 1
    names = tuple(Claim.__slots__)
    found: dict[int, Claim] = {}
    for number in np.unique(numbers).tolist():
        segment = bundle.segments[number]
        mine = units[numbers == number]
        positions = segment.docs.claim_row[mine - base[number]].tolist()
        rows = segment.table("claims").rows_at(names, positions)
        claims = rows_of("claims", {name: [rows[at][name] for at in positions] for name in names})
        found.update(zip(mine.tolist(), claims, strict=True))
    return [found[unit] for unit in units.tolist()]


def _open(bundle: Bundle) -> ClaimIndex:
    base = starts(bundle, "documents")
    sizes, docs = [np.zeros(1, np.int64)], []
    for number, segment in enumerate(bundle.segments):
        links = segment.claim_links
        found = links["claim_doc"].astype(np.int64)
        here = found >= 0
        found[here] += base[number]
        if not here.all():
            found[~here] = [_document(bundle, base, bytes(one)) for one in links["claim_far"]]
        kept = found >= 0
        lengths = np.diff(links["claim_indptr"])
        claim_of = np.repeat(np.arange(len(lengths)), lengths)
        sizes.append(np.bincount(claim_of[kept], minlength=len(lengths)).astype(np.int64))
        docs.append(found[kept])
    docs_indptr = np.cumsum(np.concatenate(sizes))
    flat = np.concatenate([np.zeros(0, np.int64), *docs])
    order = np.argsort(flat, kind="stable")
    claim_of = np.repeat(np.arange(len(docs_indptr) - 1), np.diff(docs_indptr))
    per_doc = np.bincount(flat, minlength=int(base[-1]))
    claims_indptr = np.concatenate([[0], np.cumsum(per_doc)]).astype(np.int64)
    return ClaimIndex(docs_indptr, flat, claims_indptr, claim_of[order].astype(np.int64), _current(bundle))


def _document(bundle: Bundle, base: Units, exchange_id: bytes) -> int:
    """The number of the visible exchange of that id, -1 where there is none."""
    for number, segment in enumerate(bundle.segments):
        for doc in segment.docs_between(exchange_id, exchange_id):
            return int(base[number]) + doc
    return -1


def _current(bundle: Bundle) -> Mask:
    gone = replaced_by(bundle)
    masks = [np.zeros(0, np.bool_)]
    for segment in bundle.segments:
        rows = segment.docs.claim_row
        mask = np.ones(len(rows), np.bool_)
        if gone and len(rows):
            ids = segment.table("claims").ids("claim_id")
            mask = np.fromiter((ids[row] not in gone for row in rows.tolist()), np.bool_, len(rows))
        masks.append(mask)
    return np.concatenate(masks)


def _kinds(bundle: Bundle) -> npt.NDArray[Any]:
    kinds = [np.zeros(0, "<U16")]
    for segment in bundle.segments:
        rows = segment.docs.claim_row
        if len(rows):
            kinds.append(np.array(segment.table("claims").read(["kind"])["kind"], "<U16")[rows])
    return np.concatenate(kinds)


def _runs(indptr: Units, values: Units, units: Units) -> tuple[Units, Units]:
    lengths = indptr[units + 1] - indptr[units]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(total) + np.repeat(indptr[units] - (ends - lengths), lengths)
    return np.repeat(np.arange(len(units)), lengths), values[at]
