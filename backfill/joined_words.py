"""One BM25 index over all segments of a bundle, in ann/: a term is looked for once there, not once a month.

Joined from the segments' own, whose sums it gives to the bit, and passed over where one of these is another now, as
after `add` or `forget`: search then reads the segments. As with `ann_files`, a card names what it was made of, and only
what this user's own commands joined is read. Its size is compared, its checksum by `verify` alone, which is how the
segments' own are read too. Deliberately absent: fields that the bundle's default search does not use.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from backfill.ann_files import FOLDER, FORMAT, AnnCard, cards_of, digests_of, publish
from backfill.arrays import open_arrays
from backfill.durable import make_dirs
from backfill.errors import BundleError
from backfill.trust import known_segments

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.indexes.field import FieldIndex

KIND = "words"
# With fewer a search reads its few segments as fast, and a bundle that is added to daily stays as it is.
FROM_DOCUMENTS = 2_000


def open_joined(bundle: Bundle, field: str) -> FieldIndex | None:
    """The field over all documents of the bundle as it stands, if this user's own commands joined it; or None."""
    from backfill.indexes.field import FieldIndex

    for card, _, path in cards_of(bundle.path, bundle.manifest, kind=KIND):
        if card.roles != f"bm25:{field}" or card.sha256 not in known_segments() or path.is_symlink():
            continue
        try:
            if path.stat().st_size == card.bytes:
                return FieldIndex.open(open_arrays(path), None if bundle.keep_mapped else path)
        except (OSError, BundleError):
            continue
    return None


def join_words(bundle: Bundle) -> list[AnnCard]:
    """Joins the fields of the default search that are not joined yet, where that pays; returns a card for each.

    Memory: some 20 bytes a term of each segment; about 2 us of one core for each of these terms. Raises BundleError
    where a segment's index is damaged.
    """
    n_documents = bundle.manifest.counts.get("visible_exchanges", 0)
    if len(bundle.segments) < 2 or n_documents < FROM_DOCUMENTS:
        return []
    weights = bundle.manifest.index.weights
    fields = ("verbatim", *(name for name in ("title", "rooms", "files") if weights.get(name)))
    known = {card.roles: card for card, *_ in cards_of(bundle.path, bundle.manifest, kind=KIND)}
    wanted = [f for f in fields if all(segment.has(f"bm25:{f}") for segment in bundle.segments)]
    return [known.get(f"bm25:{field}") or _join(bundle, field) for field in wanted]


def _join(bundle: Bundle, field: str) -> AnnCard:
    from backfill.indexes.field import FieldIndex
    from backfill.indexes.field_blocks import join_fields

    role, started = f"bm25:{field}", time.monotonic()
    make_dirs(bundle.path / FOLDER)
    blocks = [FieldIndex.open(segment.arrays(role)).arrays for segment in bundle.segments]
    n_documents = sum(len(block["lengths"]) for block in blocks)
    reason = f"{n_documents:,} documents of {len(blocks)} months as one, so that a term is looked for once"
    card = AnnCard(FORMAT, role, digests_of(bundle.manifest, [role]), n_documents, KIND, "", reason)
    with tempfile.TemporaryDirectory(dir=bundle.path, prefix="tmp-", ignore_cleanup_errors=True) as name:
        temporary = Path(name) / "joined.arrays"
        try:
            join_fields(blocks, temporary)
        except (ValueError, IndexError) as error:
            raise BundleError(
                f"a BM25 index {field} of {bundle.path} is damaged", hint="backfill verify names every damaged file"
            ) from error
        return publish(bundle.path, card, temporary, seconds=round(time.monotonic() - started, 3))
