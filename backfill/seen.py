"""What a bundle has read already: files by root, name, size and time of change, as lineage/ records them.

Only spares reading again; a file that is read twice changes nothing. A record counts while the bundle still holds the
state that it was read into, so that what was rolled back is read again. Records are local to the machine that wrote
them and are never exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from backfill.bundle_writer import LINEAGE, add_lineage, current_digest, states_within, steps
from backfill.errors import BackfillError
from backfill.lineage import host_record
from backfill.rundir import PLAN, PlannedUnit, RunDir

_Key = tuple[str, str, int, int]
RECORD = "read"


class Seen:
    """The files that a bundle has read, and the roots below which they lay."""

    def __init__(self) -> None:
        self._files: set[_Key] = set()
        self.roots: list[str] = []

    @classmethod
    def of(cls, bundle: Path) -> Seen:
        """From the bundle's lineage, and from the plan of the run that it lies in. Damaged records are passed over."""
        seen = cls()
        held = states_within(bundle)
        runs = [step.manifest for step in steps(bundle) if step.kind == "run"]
        if bundle.name == "bundle" and (bundle.parent / PLAN).is_file() and (not runs or runs[-1] in held):
            seen._take_run(bundle.parent)
        for path in sorted((bundle / LINEAGE).glob("*.json")):
            try:
                record = msgspec.json.decode(path.read_bytes())
                roots = [str(root) for root in record.get("roots", ())]
                seen._take_roots(roots)
                if record.get("into", "") not in {"", *held}:
                    continue
                for root, source, size, mtime in record.get("files", ()):
                    seen._files.add((roots[root], str(source), int(size), int(mtime)))
            except (OSError, msgspec.MsgspecError, AttributeError, TypeError, ValueError, IndexError):
                continue
        return seen

    def has(self, root: str, unit: PlannedUnit) -> bool:
        """Whether every file of the unit was read in its present state."""
        return all(key in self._files for key in _keys(root, unit))

    def place(self, source: Path) -> tuple[str, str]:
        """(root, POSIX path below it) of a source: below the longest root that was read before, else its own root."""
        path = source.expanduser().absolute()
        below = [root for root in self.roots if Path(root).is_dir() and path.is_relative_to(root)]
        if not below:
            return str(path), ""
        root = max(below, key=len)
        relative = path.relative_to(root).as_posix()
        return root, "" if relative == "." else relative

    def record(self, bundle: Path, units: Sequence[tuple[str, PlannedUnit]]) -> None:
        """Notes in the bundle's lineage that these units were read."""
        if not units:
            return
        roots = sorted({root for root, _ in units})
        files = sorted([roots.index(root), *key[1:]] for root, unit in units for key in _keys(root, unit))
        into = current_digest(bundle)
        add_lineage(bundle, RECORD, {"kind": "read", **host_record(), "into": into, "roots": roots, "files": files})
        self._take_roots(roots)
        self._files.update(key for root, unit in units for key in _keys(root, unit))

    def _take_run(self, path: Path) -> None:
        try:
            run = RunDir(path)
            plan = run.plan()
            self._take_roots(plan.roots)
            done = [s for i, s in enumerate(plan.scan_shards) if run.scan_manifest(plan, i) is not None]
        except BackfillError:
            return
        for shard in done:
            self._files.update(key for unit in shard.units for key in _keys(plan.roots[unit.root], unit))

    def _take_roots(self, roots: Iterable[str]) -> None:
        self.roots += [root for root in roots if root not in self.roots]


def _keys(root: str, unit: PlannedUnit) -> list[_Key]:
    files: list[Any] = [unit, *unit.members]
    return [(root, f.source, f.size_bytes, f.mtime_ns) for f in files]
