"""The merge stage: run folders and bundles in, one bundle out.

Set union of tables, then `compose`. Associative, commutative and idempotent because nothing else happens here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backfill.bundle_writer import MANIFEST
from backfill.compose import write_bundle
from backfill.errors import UsageError
from backfill.inputs import Input, combine, join_settings, read_bundle
from backfill.lineage import host_record
from backfill.rundir import PLAN


def merge(paths: Sequence[Path], out: Path, read_run: Callable[[Path], Input]) -> dict[str, Any]:
    """Merges runs and bundles into the bundle `out` (which may be one of them); returns the `merge --json` record.

    `read_run` reads a finished run folder. Raises UsageError for a path that is neither, MergeRefused for bundles
    that do not fit together, BundleError or ShardError for damaged ones.
    """
    started = time.monotonic()
    inputs = [_read(path, read_run) for path in paths]
    total, added = combine(inputs)
    lineage = {
        "kind": "merge",
        **host_record(),
        "inputs": [{"path": one.name, "added": added[one.name]} for one in inputs],
    }
    # Equal encoders may carry probes of different processors: one of them, whatever the order of the inputs.
    encoder_files = max((one.encoder_files for one in inputs), key=lambda files: [f.read_bytes() for f in files])
    result = write_bundle(total, join_settings([one.settings for one in inputs]), encoder_files, out, lineage)
    counts = result["counts"]
    return {
        "out": str(out),
        "inputs": lineage["inputs"],
        "exchanges": counts["visible_exchanges"],
        "added": counts["exchanges"] - len({r.exchange_id for r in inputs[0].union.exchanges.values()}),
        "superseded": 0,
        "tombstoned": counts["tombstones"],
        "logical_digest": result["logical_digest"],
        "seconds": round(time.monotonic() - started, 3),
    }


def _read(path: Path, read_run: Callable[[Path], Input]) -> Input:
    if (path / MANIFEST).is_file():
        return read_bundle(path)
    if (path / PLAN).is_file():
        return read_run(path)
    raise UsageError(f"{path} is neither a run folder nor a bundle")
