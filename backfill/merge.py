"""The merge stage: run folders and bundles in, one bundle out.

Set union of tables. Associative, commutative and idempotent because nothing else happens here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfill.bundle_writer import MANIFEST, current_digest, steps
from backfill.errors import UsageError
from backfill.inputs import Input, join_settings, open_bundle
from backfill.lineage import host_record
from backfill.merged import write_merged
from backfill.piece_columns import ID, ids_of
from backfill.pieces import distinct_pieces
from backfill.rundir import PLAN

_BRINGING = frozenset({"add", "sweep", "forget", "merge"})


def merge(
    paths: Sequence[Path], out: Path, read_run: Callable[[Path], Input], *, reembed: bool = False, trust: bool = False
) -> dict[str, Any]:
    """Merges runs and bundles into the bundle `out` (which may be one of them); returns the `merge --json` record.

    `read_run` reads a finished run folder. With `reembed`, inputs of another encoder than the first's get its vectors
    (`trust` loads that encoder whoever made it), and `truncated` counts the texts that it cut then.

    Raises UsageError for a path that is neither, MergeRefused for bundles that do not fit together, BundleError or
    ShardError for damaged ones, BundleChanged where another writer switched `out` meanwhile.
    """
    started = time.monotonic()
    expected = current_digest(out)
    inputs = [_read(path, read_run) for path in paths]
    n_cut = 0
    if reembed:
        from backfill.reembed import reembedded

        inputs, n_cut = reembedded(inputs, trust=trust)
    merged = merge_inputs(inputs, out, {"kind": "merge", "truncated": n_cut}, expected)
    return {**merged, "truncated": n_cut, "seconds": round(time.monotonic() - started, 3)}


def grow(bundle: Path, delta: Input, lineage: dict[str, Any], expected: str) -> dict[str, Any]:
    """Merges a delta into a bundle in place. `expected` is the digest of the manifest that the delta was made for.

    Raises BundleChanged when another writer was faster: make the delta again and retry.
    """
    return merge_inputs([open_bundle(bundle), delta], bundle, lineage, expected)


def write_run(run: Input, bundle: Path, lineage: dict[str, Any]) -> dict[str, Any]:
    """Writes the bundle of a run, as `write_merged`; what other commands brought into it since is kept, and merged.

    Raises MergeRefused where these were embedded otherwise than the run is now.
    """
    expected = current_digest(bundle)
    inputs = [run]
    if any(step.kind in _BRINGING for step in steps(bundle)):
        inputs.append(open_bundle(bundle))
    return _write(inputs, bundle, lineage, expected, run.encoder_files)


def merge_inputs(inputs: Sequence[Input], out: Path, lineage: dict[str, Any], expected: str) -> dict[str, Any]:
    """Writes the union of inputs; returns the `merge --json` record but for its seconds."""
    added = _added(inputs)
    record = {
        **lineage,
        **host_record(),
        "inputs": [{"path": one.name, "added": n} for one, n in zip(inputs, added, strict=True)],
    }
    # Equal encoders may carry probes of different processors: one of them, whatever the order of the inputs. The model
    # itself, 90 MB and more, is the one that encoder.json names.
    encoder_files = max(
        (one.encoder_files for one in inputs), key=lambda files: [f.read_bytes() for f in files if f.suffix == ".json"]
    )
    result = _write(inputs, out, record, expected, encoder_files)
    counts = result["counts"]
    return {
        "out": str(out),
        "inputs": record["inputs"],
        "exchanges": counts["visible_exchanges"],
        "added": sum(added[1:]),
        "superseded": counts["superseded"],
        "tombstoned": counts["tombstones"],
        "logical_digest": result["logical_digest"],
        "changed": result["changed"],
    }


def _write(
    inputs: Sequence[Input], out: Path, lineage: dict[str, Any], expected: str, encoder_files: Sequence[Path]
) -> dict[str, Any]:
    tombstones = {row for one in inputs for row in one.union.tombstones.values()}
    settings = join_settings([one.settings for one in inputs])
    pieces = distinct_pieces([piece for one in inputs for piece in one.all_pieces()])
    return write_merged(pieces, list(tombstones), settings, encoder_files, out, lineage, expected=expected)


def _added(inputs: Sequence[Input]) -> list[int]:
    """How many exchanges each input has that none before it has."""
    known = np.empty(0, ID)
    added = []
    for one in inputs:
        found = [ids_of(p.columns("exchanges", ("exchange_id",))["exchange_id"]) for p in one.all_pieces()]
        joined = np.unique(np.concatenate([known, *found]))
        added.append(len(joined) - len(known))
        known = joined
    return added


def _read(path: Path, read_run: Callable[[Path], Input]) -> Input:
    if (path / MANIFEST).is_file():
        return open_bundle(path)
    if (path / PLAN).is_file():
        return read_run(path)
    raise UsageError(f"{path} is neither a run folder nor a bundle")
