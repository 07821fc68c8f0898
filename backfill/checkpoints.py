"""Where the checkpoints of a run lie: one file beside the tables of a scan shard, with those of its larger files.

A later shard that holds a file again, because it grew, asks for the newest one. Losing them costs time, nothing else:
whatever cannot be read is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard

from backfill.errors import ShardError
from backfill.rundir import Plan, PlannedUnit, RunDir
from backfill.sources.checkpoint import Checkpoint

ROLE = "checkpoints"
_MAX_BYTES = 1 << 30


class _Kept(msgspec.Struct, frozen=True):
    """A checkpoint and the root that its source lies below."""

    root: int
    checkpoint: Checkpoint


def write_checkpoints(kept: Sequence[tuple[int, Checkpoint]], path: Path) -> int:
    """Writes checkpoints with their roots; returns how many."""
    data = msgspec.msgpack.encode([_Kept(root, checkpoint) for root, checkpoint in kept])
    path.write_bytes(zstandard.ZstdCompressor(level=3).compress(data))
    return len(kept)


class Checkpoints:
    """The checkpoints of the shards before one, read when they are asked for."""

    def __init__(self, run: RunDir, plan: Plan, shard: int) -> None:
        self._run, self._plan, self._shard = run, plan, shard
        self._read: dict[int, dict[tuple[int, str], Checkpoint]] = {}
        wanted = {(u.root, u.source) for u in plan.scan_shards[shard].units if not u.members}
        self._shards: dict[tuple[int, str], list[int]] = {}  # of files that an earlier shard holds too
        for earlier in range(shard):
            for unit in plan.scan_shards[earlier].units:
                if (unit.root, unit.source) in wanted:
                    self._shards.setdefault((unit.root, unit.source), []).append(earlier)

    def of(self, unit: PlannedUnit) -> Checkpoint | None:
        """The newest checkpoint of a file that reaches no further than it is planned to be read."""
        key = (unit.root, unit.source)
        for shard in reversed(self._shards.get(key, ())):
            found = self._of_shard(shard).get(key)
            if found is not None and found.offset <= unit.size_bytes:
                return found
        return None

    def _of_shard(self, shard: int) -> dict[tuple[int, str], Checkpoint]:
        if shard not in self._read:
            self._read = {shard: self._load(shard)}  # one at a time: a state may be some megabytes
        return self._read[shard]

    def _load(self, shard: int) -> dict[tuple[int, str], Checkpoint]:
        try:
            manifest = self._run.scan_manifest(self._plan, shard)
            if manifest is None or all(file.role != ROLE for file in manifest.files):
                return {}
            packed = (self._run.exchanges / manifest.file(ROLE).name).read_bytes()
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=_MAX_BYTES)
            kept = msgspec.msgpack.decode(data, type=list[_Kept])
        except (OSError, ShardError, zstandard.ZstdError, msgspec.MsgspecError):
            return {}
        return {(one.root, one.checkpoint.source): one.checkpoint for one in kept}
