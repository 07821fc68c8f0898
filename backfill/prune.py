"""Leaving out of a bundle what nothing shows: superseded readings, weaker objects, all that was forgotten.

What is visible is a maximum over rows, so leaving out what is below the maximum changes nothing that shows, now or
after any later merge. Tombstones stay: another copy of a forgotten exchange stays hidden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backfill.bundle_writer import current_digest
from backfill.compose import write_bundle
from backfill.inputs import read_bundle
from backfill.lineage import host_record
from backfill.union import Union, view_of

_TABLES = ("exchanges", "occurrences", "objects", "claims")


def visible_rows(union: Union) -> Union:
    """The rows that show, with the exchange rows that shown objects were made from, and the tombstones."""
    view = view_of(union)
    kept = Union(tombstones=union.tombstones, vectors=union.vectors)
    kept.add("exchanges", view.exchanges.values())
    kept.add("exchanges", [r for o in view.objects.values() if (r := union.exchanges.get(o.source_row)) is not None])
    kept.add("occurrences", view.occurrences)
    kept.add("objects", view.objects.values())
    kept.add("claims", view.claims)
    return kept


def prune(bundle: Path, *, dry_run: bool = False) -> dict[str, Any]:
    """Writes the bundle anew without hidden rows; returns how many rows of each table went. The switch is atomic."""
    expected = current_digest(bundle)
    whole = read_bundle(bundle)
    kept = visible_rows(whole.union)
    gone = {name: len(getattr(whole.union, name)) - len(getattr(kept, name)) for name in _TABLES}
    if any(gone.values()) and not dry_run:
        lineage = {"kind": "gc", **host_record(), "rows": gone}
        write_bundle(kept, whole.settings, whole.encoder_files, bundle, lineage, expected=expected)
    return {"changed": any(gone.values()), "rows": gone}
