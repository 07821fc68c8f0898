"""Stage 1: source files to exchanges, occurrences and ledger, in shards frozen by the plan.

Reads the source folders, writes RUN/01-exchanges. Deliberately absent: any knowledge of formats (`sources`) and of
what opens an exchange (`segment`).
"""

from __future__ import annotations

import gc
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from backfill import tables
from backfill.checkpoints import ROLE, Checkpoints, write_checkpoints
from backfill.cold import MARKER as COLD_MARKER
from backfill.cold import cold_roots, is_cold, unpacked
from backfill.cold import source_of as cold_source_of
from backfill.config import Config, ScanConfig, to_tree
from backfill.errors import BackfillError, Interrupted, ShardError, UsageError
from backfill.ids import fingerprint
from backfill.manifest import ShardManifest, publish
from backfill.rundir import Plan, PlannedUnit, RunDir, ScanShard, shard_fingerprint
from backfill.sources import SOURCES_VERSION, read_unit
from backfill.sources.checkpoint import Checkpoint
from backfill.sources.registry import reader_named
from backfill.sources.result import UnitResult
from backfill.sources.units import UnitFile, gather
from backfill.spill import exchange_rows, joined, ledger_rows, occurrence_rows
from backfill.totals import scan_summary as scan_summary
from backfill.totals import shard_stats
from backfill.types import LedgerRow

STAGE_VERSION = 1
_LARGE_BYTES = 64 << 20
_COLLECT_AFTER_OBJECTS = 50_000  # more than a session of a megabyte makes; a few megabytes at the most wait for it


@dataclass(frozen=True, slots=True)
class Listing:
    """The files below the sources, sorted by name, and what could not be looked into."""

    roots: tuple[str, ...]
    units: tuple[PlannedUnit, ...]
    warnings: tuple[str, ...]


def list_units(sources: Sequence[str]) -> Listing:
    """All regular files below the sources; links to folders are not followed. Raises UsageError on a missing one.

    Files over which one session is spread are one unit (`sources.units.gather`). A cold storage stands for the files
    that it holds.

    A source that is a file is its own unit, named by its file name; below a folder, a unit is named by its POSIX path
    relative to the folder.
    """
    units: list[PlannedUnit] = []
    warnings: list[str] = []
    roots: list[str] = []
    for given in dict.fromkeys(str(Path(s).expanduser().absolute()) for s in sources):
        root = Path(given)
        try:
            there = root.exists()
        except OSError as error:
            raise UsageError(f"the source {root} cannot be looked at: {error.strerror}") from error
        if not there:
            raise UsageError(f"the source {root} does not exist")
        if is_cold(root):
            for part, files in cold_roots(root):
                roots.append(str(part))
                units += [PlannedUnit(len(roots) - 1, f.path, f.size_bytes, f.mtime_ns) for f in files]
            continue
        roots.append(str(root))
        for source, path in walk_files(root, warnings):
            try:
                status = path.stat()
            except OSError as error:
                warnings.append(f"{path}: {error.strerror}")
                continue
            if stat.S_ISREG(status.st_mode):
                units.append(PlannedUnit(len(roots) - 1, source, status.st_size, status.st_mtime_ns))
    units = sorted(gather(units), key=lambda u: (u.source, u.root))
    return Listing(tuple(roots), tuple(units), tuple(warnings))


def scan_fingerprint(config: Config) -> str:
    """Decides what a unit yields: readers, segmentation, privacy, caps, the zone that is assumed."""
    return fingerprint(scan_parts(config))


def scan_parts(config: Config) -> dict[str, Any]:
    """What the fingerprint of a scan is made of, by name."""
    reading = {k: v for k, v in to_tree(config.scan).items() if k not in ("workers", "shard_bytes")}
    return {"stage": STAGE_VERSION, "sources": SOURCES_VERSION, "scan": reading, "split": config.distill.split_tokens}


def plan_scan(run: RunDir, config: Config, sources: Sequence[str]) -> Plan:
    """Makes or extends the plan: files that are new or have changed since go into shards of their own.

    Raises UsageError for a missing source, ConfigError for a reader that is not known.
    """
    if config.scan.agent != "auto":
        reader_named(config.scan.agent)
    listing = list_units(sources)
    print_of_scan = scan_fingerprint(config)
    whole = _cut(listing.units, config.scan.shard_bytes)
    parts = {"scan": scan_parts(config)}
    first = Plan(to_tree(config), print_of_scan, listing.roots, whole, warnings=listing.warnings, parts=parts)
    if not run.has_plan() and run.create_plan(first):
        return first
    return run.revise_plan(partial(_extended, listing=listing, first=first, shard_bytes=config.scan.shard_bytes))


def _extended(previous: Plan, listing: Listing, first: Plan, shard_bytes: int) -> Plan:
    """The plan with what was listed and it does not have; of another fingerprint, `first` stands in its place.

    What engine and encoder the run has is not a scan's to change.
    """
    if previous.scan_fingerprint != first.scan_fingerprint:
        return first
    roots = list(previous.roots) + [r for r in listing.roots if r not in previous.roots]
    known = {u for shard in previous.scan_shards for u in shard.units}
    moved = (replace(u, root=roots.index(listing.roots[u.root])) for u in listing.units)
    fresh = tuple(u for u in moved if u not in known)
    return replace(
        previous,
        config=previous.config if previous.distill_fingerprint else first.config,
        roots=tuple(roots),
        scan_shards=previous.scan_shards + _cut(fresh, shard_bytes),
        warnings=listing.warnings,
    )


def scan_shard(run: RunDir, plan: Plan, shard: int, should_stop: Callable[[], bool]) -> ShardManifest:
    """Reads the units of one shard and publishes its tables. Raises Interrupted between files when asked to stop."""
    with _rare_collections():
        return _scan_shard(run, plan, shard, should_stop)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Lets Python look for cycles a seventieth as often: of what a scan makes nearly nothing is in one."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _scan_shard(run: RunDir, plan: Plan, shard: int, should_stop: Callable[[], bool]) -> ShardManifest:
    config = plan.bound_config()
    started = time.monotonic()
    results: list[UnitResult] = []
    before = Checkpoints(run, plan, shard)
    for unit in plan.scan_shards[shard].units:
        if should_stop():
            raise Interrupted("stopped while reading transcripts")
        root, checkpoint = Path(plan.roots[unit.root]), before.of(unit)
        results.append(_read(root, unit, config.scan, config.distill.split_tokens, checkpoint))
    if sum(unit.total_bytes for unit in plan.scan_shards[shard].units) > _LARGE_BYTES:
        gc.collect()  # exchanges and their parts know each other; the tables need the room
    writers: dict[tuple[str, str], Callable[[Path], int]] = {
        (table.name, ".parquet"): partial(tables.write_table, table, rows)
        for table, rows in (
            (tables.EXCHANGES, joined([result.exchanges for result in results], exchange_rows())),
            (tables.OCCURRENCES, joined([result.occurrences for result in results], occurrence_rows())),
            (tables.LEDGER, joined([result.ledger for result in results], ledger_rows())),
        )
    }
    kept = [(unit.root, result.kept) for unit, result in zip(plan.scan_shards[shard].units, results, strict=True)]
    if any(checkpoint for _, checkpoint in kept):
        writers[ROLE, ".zst"] = partial(write_checkpoints, [(root, c) for root, c in kept if c is not None])
    stats = shard_stats(results, plan.scan_shards[shard].units, time.monotonic() - started)
    return publish(run.exchanges, "scan", shard, shard_fingerprint(plan, shard), writers, stats=stats)


def walk_files(root: Path, warnings: list[str]) -> Iterable[tuple[str, Path]]:
    """(source, path) of the file `root`, or of all files below the folder `root`; cold storages below it are left out.

    A name that is not UTF-8 is shown with replacement characters.
    """

    def refuse(error: OSError) -> None:
        warnings.append(f"{error.filename}: {error.strerror}")

    if root.is_file():
        yield _shown(root.name), root
        return
    for folder, below, names in os.walk(root, onerror=refuse):
        if COLD_MARKER in names and is_cold(Path(folder)):
            warnings.append(f"{folder}: a cold storage inside a source is not read; name it as a source of its own")
            below.clear()
            continue
        for name in names:
            path = Path(folder) / name
            yield _shown(path.relative_to(root).as_posix()), path


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _cut(units: Sequence[PlannedUnit], shard_bytes: int) -> tuple[ScanShard, ...]:
    shards: list[ScanShard] = []
    batch: list[PlannedUnit] = []
    size = 0
    for unit in units:
        if batch and size + unit.total_bytes > shard_bytes:
            shards.append(ScanShard(tuple(batch)))
            batch, size = [], 0
        batch.append(unit)
        size += unit.total_bytes
    if batch:
        shards.append(ScanShard(tuple(batch)))
    return tuple(shards)


def _read(
    root: Path, unit: PlannedUnit, config: ScanConfig, split_tokens: int, checkpoint: Checkpoint | None
) -> UnitResult:
    try:
        folder = cold_source_of(root)
        if folder is None:
            path = root if root.is_file() else root / unit.source
            return _read_files(unit, [path, *(root / m.source for m in unit.members)], config, split_tokens, checkpoint)
        keys = [(unit.source, unit.size_bytes, unit.mtime_ns)]
        keys += [(m.source, m.size_bytes, m.mtime_ns) for m in unit.members]
        with unpacked(folder, keys) as paths:
            return _read_files(unit, paths, config, split_tokens, checkpoint)
    except ShardError:
        reason = "damaged"
    except OSError as error:
        reason = "vanished" if isinstance(error, FileNotFoundError) else "unreadable"
    except BackfillError:
        raise
    except Exception as error:  # a fault of one reader must not cost the files of all the others
        reason = f"reader_failed: {type(error).__name__}"
    rows = [LedgerRow(name, 0, size, 0, "quarantined", reason, None, bytes(16)) for name, size in unit.sizes.items()]
    return UnitResult(agent="", exchanges=[], occurrences=[], ledger=rows)


def _read_files(
    unit: PlannedUnit, paths: Sequence[Path], config: ScanConfig, split_tokens: int, checkpoint: Checkpoint | None
) -> UnitResult:
    members = [UnitFile(p, m.source, m.size_bytes) for p, m in zip(paths[1:], unit.members, strict=True)]
    return read_unit(
        paths[0],
        unit.source,
        unit.size_bytes,
        config,
        split_tokens=split_tokens,
        members=members,
        checkpoint=checkpoint,
        keep=True,
    )
