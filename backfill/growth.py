"""What changes a bundle after its run: `add`, `sweep` and `forget`, each one small delta and one atomic merge.

Readers of the old state are undisturbed; of two writers at once the slower makes its delta again. Deliberately absent:
how a delta is read and distilled (`ingest`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from backfill.bundle import Bundle
from backfill.bundle_writer import current_digest
from backfill.errors import BundleChanged, UsageError
from backfill.ingest import (
    Ingest,
    ShouldStop,
    bundle_encoder,
    delta_settings,
    delta_union,
    make_objects,
    not_in,
    read_new,
    windows_not_in,
)
from backfill.inputs import Input, settings_of
from backfill.merge import grow
from backfill.seen import Seen
from backfill.spool import give_back, settle, take
from backfill.types import Tombstone
from backfill.union import Union

T = TypeVar("T")
ATTEMPTS = 5


def add(bundle: Path, sources: Sequence[Path], ingest: Ingest, should_stop: ShouldStop) -> dict[str, Any]:
    """Adds what is new below the sources; returns the `add --json` record. Raises as its parts do."""
    started = time.monotonic()
    seen = Seen.of(bundle)
    read = read_new(sources, seen, ingest.config, should_stop)
    opened = Bundle.open(bundle, trust_encoder=ingest.trust_encoder)
    read.exchanges = not_in(opened, read.exchanges)
    made = make_objects(read.exchanges, windows_not_in(opened, read.windows), ingest, should_stop)
    encoder = bundle_encoder(opened) if made.objects or made.claims else None
    n_cut = 0

    def delta() -> Input:
        nonlocal n_cut
        settings = settings_of(bundle)
        union, n_cut = delta_union(read, made, settings, encoder)
        return Input("add", union, delta_settings(settings, ingest, made))

    lineage = {"kind": "add", "ledger": {k: read.summary[k] for k in _LEDGER}, "tiers": made.tiers}
    merged = retried(bundle, lambda expected: grow(bundle, delta(), lineage, expected)) if read.occurrences else {}
    seen.record(bundle, read.units)
    return {
        "bundle": str(bundle),
        "files": len(read.units),
        "read": len(read.occurrences),
        "added": len(read.exchanges),
        "tiers": made.tiers,
        "claims": len(made.claims),
        "truncated": n_cut,
        "failures": made.failures,
        "engine_gave_up": made.gave_up,
        "quarantined": read.summary["quarantined"],
        "secrets": read.summary["secrets"],
        "balanced": read.summary["balanced"],
        "exchanges": merged.get("exchanges"),
        "logical_digest": merged.get("logical_digest"),
        "changed": merged.get("changed", False),
        "seconds": round(time.monotonic() - started, 3),
    }


_LEDGER = ("files", "records", "states", "bytes", "balanced")


def retried(bundle: Path, attempt: Callable[[str], T]) -> T:
    """Calls `attempt` with the digest of the current manifest, again while other writers are faster."""
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt(current_digest(bundle))
        except BundleChanged:
            continue
    return attempt(current_digest(bundle))


def forget(bundle: Path, ids: Sequence[str], reason: str, sessions: Sequence[str] = ()) -> dict[str, Any]:
    """Hides exchanges by id (6 or more hex digits) and all of the named sessions, here and in every later merge.

    A full id need not be in the bundle. Raises UsageError for a short id that is unknown or shared, or a session that
    is not there.
    """
    started = time.monotonic()
    opened = Bundle.open(bundle)
    chosen = {_full_id(opened, one) for one in ids}
    for session in sessions:
        found = _of_session(opened, session)
        if not found:
            raise UsageError(f"{bundle} shows no session {session}", hint="`show` names the session of an exchange")
        chosen |= found
    if not chosen:
        raise UsageError("nothing to forget", hint="name exchange ids, or --session")
    union = Union()
    union.add("tombstones", [Tombstone(xid, reason) for xid in chosen])
    lineage = {"kind": "forget", "forgotten": len(chosen)}
    merged = retried(
        bundle, lambda expected: grow(bundle, Input("forget", union, settings_of(bundle)), lineage, expected)
    )
    return {
        "bundle": str(bundle),
        "forgotten": sorted(xid.hex() for xid in chosen),
        "exchanges": merged["exchanges"],
        "tombstoned": merged["tombstoned"],
        "logical_digest": merged["logical_digest"],
        "seconds": round(time.monotonic() - started, 3),
    }


def _full_id(bundle: Bundle, text: str) -> bytes:
    if len(text) == 32 and set(text.lower()) <= set("0123456789abcdef"):
        return bytes.fromhex(text)
    segment, doc = bundle.find(text)
    return segment.document_id(doc)


def _of_session(bundle: Bundle, session: str) -> set[bytes]:
    found: set[bytes] = set()
    for segment in bundle.segments:
        names = segment.column("occurrences", "session_id")
        if session in names:
            ids = segment.column("occurrences", "exchange_id")
            found |= {xid for xid, name in zip(ids, names, strict=True) if name == session}
    return found


def add_with_spool(
    bundle: Path, sources: Sequence[Path], ingest: Ingest, should_stop: ShouldStop, *, spool: bool
) -> dict[str, Any]:
    """Adds the sources and what the spool holds for this bundle; entries stay in the spool unless they got in."""
    entries = take([str(bundle.absolute())]) if spool else []
    there = [entry for entry in entries if Path(entry.source).exists()]
    warnings = [f"{entry.source} was enqueued and is gone" for entry in entries if entry not in there]
    chosen = list(dict.fromkeys([*sources, *(Path(entry.source) for entry in there)]))
    if not chosen and not entries and not sources:
        if spool:
            return {**_nothing(bundle), "warnings": warnings}
        raise UsageError("no sources", hint="name files or folders to add")
    try:
        record = add(bundle, chosen, ingest, should_stop) if chosen else _nothing(bundle)
    except BaseException:
        give_back(entries)
        raise
    settle(entries)
    if record["engine_gave_up"]:
        warnings.append(f"the engine was given up ({record['engine_gave_up']}); what it left is raw until a sweep")
    return {**record, "spooled": len(entries), "warnings": warnings}


def _nothing(bundle: Path) -> dict[str, Any]:
    return {
        "bundle": str(bundle), "files": 0, "read": 0, "added": 0, "tiers": {}, "claims": 0, "truncated": 0,
        "failures": {}, "engine_gave_up": "",
        "quarantined": 0, "secrets": {}, "balanced": True, "exchanges": None, "logical_digest": None,
        "changed": False, "seconds": 0.0, "spooled": 0,
    }  # fmt: skip
