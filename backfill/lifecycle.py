"""The life of a bundle after it was made: going back to an earlier state, and freeing what no state needs.

Reads and switches manifests; files of segments are immutable, so an earlier state is one manifest away until `gc`.
Deliberately absent: taking rows out of files in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill.ann_files import cards_of
from backfill.bundle_manifest import BundleManifest, check_files, decode_manifest, read_manifest
from backfill.bundle_writer import EARLIER, LINEAGE, MANIFEST, MANIFEST_SUM, current_digest, steps, switch
from backfill.durable import fsync_dir, sha256_bytes, sha256_file
from backfill.errors import BundleError, UsageError
from backfill.lineage import host_record
from backfill.turns import taking_turns


@dataclass(frozen=True, slots=True)
class Earlier:
    """A kept state: SHA-256 of its manifest, when it was switched to (ISO 8601, "" if unknown) and by what."""

    manifest: str
    path: Path
    at: str
    kind: str
    exchanges: int
    complete: bool


def earlier_states(bundle: Path) -> list[Earlier]:
    """The kept states of a bundle, the one before the current first, each once."""
    order = {s.manifest: s for s in steps(bundle)}
    found = []
    for path in (bundle / EARLIER).glob("manifest-*.json"):
        digest = sha256_file(path)
        if not digest.startswith(path.stem.removeprefix("manifest-")) or digest == current_digest(bundle):
            continue
        step = order.get(digest)
        try:
            manifest = decode_manifest(path.read_bytes(), path)
            complete = all((bundle / entry.path).is_file() for entry in manifest.files)
        except BundleError:
            continue
        shown = manifest.counts.get("visible_exchanges", 0)
        rank = (step.seq if step else 0, path.stat().st_mtime_ns)
        found.append((rank, Earlier(digest, path, step.at if step else "", step.kind if step else "", shown, complete)))
    return [state for _, state in sorted(found, key=lambda item: item[0], reverse=True)]


def rollback(bundle: Path, to: str = "") -> dict[str, Any]:
    """Switches to the state before the current one, or to that whose manifest's SHA-256 starts with `to`.

    Every file of it is compared with its checksum first. The current state stays and can be gone to again. Raises
    UsageError where there is none, BundleError where files of it are gone or damaged.
    """
    read_manifest(bundle)
    states = earlier_states(bundle)
    if to:
        states = [s for s in states if s.manifest.startswith(to.lower())]
        if len(states) != 1:
            raise UsageError(
                f"{len(states)} kept states of {bundle} start with {to}", hint="`rollback --list` shows them"
            )
    else:
        previous = _previous(bundle)
        states = [s for s in states if s.manifest == previous] or (states if previous is None else [])
    if not states:
        raise UsageError(f"{bundle} has no earlier state to go back to", hint="gc frees them; `rollback --list` shows")
    target = states[0]
    manifest = decode_manifest(target.path.read_bytes(), target.path)
    check_files(bundle, manifest.files)
    for entry in manifest.files:
        if sha256_file(bundle / entry.path) != entry.sha256:
            raise BundleError(f"{entry.path} differs from the manifest of that state", hint="choose another with --to")
    before = current_digest(bundle)
    with taking_turns(bundle):
        switch(bundle, target.path.read_bytes(), {"kind": "rollback", **host_record()})
    return {
        "bundle": str(bundle),
        "from": before,
        "to": target.manifest,
        "exchanges": target.exchanges,
        "logical_digest": manifest.logical_digest,
    }


def _previous(bundle: Path) -> str | None:
    """The manifest before the current one; None where lineage does not say.

    Steps back are no progress: after a rollback from C to B, the state before B is still A.
    """
    now = current_digest(bundle)
    reached = [s for s in steps(bundle) if s.manifest == now and s.kind != "rollback"]
    return reached[-1].previous if reached else None


def garbage(bundle: Path, kept: Sequence[Earlier] = ()) -> list[Path]:
    """Files that neither the current state nor the kept ones name, lineage apart."""
    named = {bundle / MANIFEST, bundle / MANIFEST_SUM, *(state.path for state in kept)}
    for manifest in _manifests(bundle, kept):
        named |= {bundle / entry.path for entry in manifest.files}
        named |= {path for _, *paths in cards_of(bundle, manifest) for path in paths}
    loose = []
    for folder, below, names in os.walk(bundle):
        if Path(folder) == bundle:
            below[:] = [name for name in below if name != LINEAGE and not name.startswith("tmp-")]
        loose += [p for name in names if (p := Path(folder) / name) not in named and not name.startswith("tmp-")]
    return sorted(loose)


def collect(bundle: Path, kept: Sequence[Earlier] = (), *, dry_run: bool = False) -> dict[str, Any]:
    """Deletes that garbage; readers that have files open keep reading them. Returns most of the `gc --json` record."""
    read_manifest(bundle)
    with taking_turns(bundle):
        loose = garbage(bundle, kept)
        freed = sum(path.lstat().st_size for path in loose)
        states = [p for p in loose if p.parent.name == EARLIER]
        if not dry_run:
            for path in loose:
                path.unlink(missing_ok=True)
            for folder in {p.parent for p in loose}:
                _drop_empty(folder, bundle)
    return {
        "bundle": str(bundle),
        "files": len(loose),
        "freed_bytes": freed,
        "states_dropped": len(states),
        "states_kept": len(kept),
        "dry_run": dry_run,
    }


def _drop_empty(folder: Path, bundle: Path) -> None:
    while folder != bundle and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        fsync_dir(folder.parent)
        folder = folder.parent


def _manifests(bundle: Path, states: Sequence[Earlier]) -> Iterator[BundleManifest]:
    yield read_manifest(bundle)
    for state in states:
        data = state.path.read_bytes()
        if sha256_bytes(data) == state.manifest:
            yield decode_manifest(data, state.path)
