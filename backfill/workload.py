"""What a run has to do, counted from a scanned run folder or from a sample of the sources.

A run folder is counted as it is; of a config, units of every folder are read by turns, in the order of a hash of their
names, until `SAMPLE_BYTES` are read, into a folder that is thrown away, and counts are scaled by bytes, each folder's
by its own. Deliberately absent: time and money
(`estimate`), and engines; nothing is distilled here.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from backfill import tables
from backfill.config import Config, to_tree
from backfill.errors import UsageError
from backfill.rundir import CLAIMS, OBJECT, Plan, PlannedUnit, RunDir, ScanShard
from backfill.types import Exchange, Occurrence
from backfill.windows import Span, Window, Windows, cut_session, sessions_of

SAMPLE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Workload:
    """Counts of what was read; `scale` makes them those of the corpus, `scale_error` is its relative standard error.

    Of the `exchanges`, `short` ones stay raw, `cached` ones have an object or a logged answer, `repeats` share the
    content of another, and `to_distill` are asked about. `windows` are those to ask about claims. `scan_bytes_left`
    have not been read by the run yet; `scan_s` is what reading `read_bytes` took here.
    """

    exchanges: int
    short: int
    cached: int
    repeats: int
    to_distill: int
    windows: int
    source_bytes: int
    read_bytes: int
    scan_bytes_left: int
    scan_s: float
    table_bytes: int
    files: int
    scan_shards: int
    text_tokens: int
    scale: float
    scale_error: float
    rows: tuple[Exchange, ...]
    sample_windows: Windows


@contextmanager
def sampled_run(config: Config) -> Iterator[tuple[RunDir, Plan, float, list[PlannedUnit]]]:
    """A throw-away run folder with a sample of the sources read: the run, its plan, seconds, and all units.

    Raises UsageError for a missing source or where nothing can be read.
    """
    from backfill.scan import list_units, scan_fingerprint, scan_shard

    listing = list_units(config.sources)
    if not listing.units:
        raise UsageError(f"no file was found below {', '.join(config.sources)}", hint="check `sources`")
    with tempfile.TemporaryDirectory(prefix="backfill-plan-") as folder:
        run = RunDir(Path(folder))
        run.make()
        chosen = _sample(listing.units)
        shard = (ScanShard(tuple(chosen)),)
        plan = Plan(to_tree(config), scan_fingerprint(config), listing.roots, shard, warnings=listing.warnings)
        run.create_plan(plan)
        started = time.monotonic()
        scan_shard(run, plan, 0, lambda: False)
        yield run, plan, time.monotonic() - started, list(listing.units)


def _sample(units: Sequence[PlannedUnit]) -> list[PlannedUnit]:
    """Units of every stratum by turns, in the order of a hash, until `SAMPLE_BYTES` are read."""
    strata: dict[tuple[int, str], list[PlannedUnit]] = {}
    for unit in sorted(units, key=lambda u: hashlib.blake2b(u.source.encode("utf-8", "replace")).digest()):
        strata.setdefault(_stratum(unit), []).append(unit)
    turns = itertools.zip_longest(*(strata[key] for key in sorted(strata)))
    chosen: list[PlannedUnit] = []
    read = 0
    for unit in itertools.chain.from_iterable(turns):
        if unit is not None and (not chosen or read + unit.total_bytes <= SAMPLE_BYTES):
            chosen.append(unit)
            read += unit.total_bytes
    return sorted(chosen, key=lambda u: (u.source, u.root))


def _stratum(unit: PlannedUnit) -> tuple[int, str]:
    """Root and first folder: what one agent or project wrote is alike, and exchanges a byte differ a hundredfold."""
    folder, inside, _ = unit.source.partition("/")
    return unit.root, folder if inside else ""


def count(
    run: RunDir,
    plan: Plan,
    config: Config,
    *,
    units: Sequence[PlannedUnit],
    scan_s: float,
    known: frozenset[bytes],
    windows_done: int,
    n_rows: int,
) -> Workload:
    """Counts the finished scan shards of a run. `known` are contents that cost nothing any more, `n_rows` the items to
    sample. `units` are those of the corpus."""
    places: dict[bytes, tuple[int, int]] = {}
    tokens: dict[bytes, int] = {}
    kinds = {"short": 0, "cached": 0, "repeats": 0}
    fresh: dict[bytes, bytes] = {}
    table_bytes = 0
    for shard in range(len(plan.scan_shards)):
        manifest = run.scan_manifest(plan, shard)
        if manifest is None:
            continue
        table_bytes += sum(file.bytes for file in manifest.files)
        for row, (xid, cid, size) in enumerate(_keys(run, plan, shard)):
            if xid in places:
                continue
            places[xid] = (shard, row)
            tokens[xid] = size
            if size < config.distill.min_tokens:
                kinds["short"] += 1
            elif cid in known:
                kinds["cached"] += 1
            elif cid in fresh:
                kinds["repeats"] += 1
            else:
                fresh[cid] = xid
    spans = list(_spans(run, plan, tokens, config.distill.min_tokens)) if CLAIMS in config.distill.products else []
    windows = max(0, len(spans) - windows_done)
    share = n_rows / max(1, len(fresh) + windows)
    chosen = [places[fresh[cid]] for cid in sorted(fresh)[: math.ceil(len(fresh) * share)]]
    some = sorted(spans, key=lambda span: span.digest)[: math.ceil(windows * share)]
    rows = _rows_at(run, plan, chosen)
    read = [unit for shard in plan.scan_shards for unit in shard.units]
    scale, scale_error = _scaled(run, plan, read, units)
    source_bytes, read_bytes = sum(u.total_bytes for u in units), sum(u.total_bytes for u in read)
    return Workload(
        exchanges=len(places),
        **kinds,
        to_distill=len(fresh),
        windows=windows,
        source_bytes=source_bytes,
        read_bytes=read_bytes,
        scan_bytes_left=0,
        scan_s=scan_s,
        table_bytes=table_bytes,
        files=len(units),
        scan_shards=len(plan.scan_shards),
        text_tokens=sum(tokens.values()),
        scale=scale,
        scale_error=scale_error,
        rows=tuple(rows.values()),
        sample_windows=_windows(run, plan, some, places),
    )


def of_config(config: Config, *, known: frozenset[bytes], n_rows: int) -> Workload:
    """The workload of a config whose run has not begun, by a sample."""
    with sampled_run(config) as (run, plan, seconds, units):
        counted = count(
            run, plan, config, units=units, scan_s=seconds, known=known, windows_done=0, n_rows=n_rows
        )  # fmt: skip
    shards = math.ceil(counted.source_bytes / config.scan.shard_bytes)
    return replace(counted, scan_bytes_left=counted.source_bytes, scan_shards=shards)


def of_run(run: RunDir, plan: Plan, config: Config, *, known: frozenset[bytes], n_rows: int) -> Workload:
    """The workload of a run folder. Raises UsageError where its scan is not complete."""
    if run.missing(plan, "scan"):
        raise UsageError(
            f"{run.path} is not read completely", hint="finish `backfill scan`, or plan the config instead"
        )
    units = [unit for shard in plan.scan_shards for unit in shard.units]
    done = 0
    if plan.claims_fingerprint:
        manifests = (run.object_manifest(plan, shard) for shard in plan.distill_shards(CLAIMS))
        done = sum(int(m.stats.get("eligible", 0)) for m in manifests if m is not None)
    return count(run, plan, config, units=units, scan_s=0.0, known=known, windows_done=done, n_rows=n_rows)


def done_contents(run: RunDir, plan: Plan) -> frozenset[bytes]:
    """Contents whose objects are published under the plan's engine."""
    done: set[bytes] = set()
    for shard in plan.distill_shards(OBJECT):
        manifest = run.object_manifest(plan, shard)
        if manifest is not None:
            path = run.objects / manifest.file(OBJECT).name
            done.update(_column(path, "exchange_id"))
    if not done:
        return frozenset()
    keys = (row for shard in range(len(plan.scan_shards)) for row in _keys(run, plan, shard))
    return frozenset(cid for xid, cid, _ in keys if xid in done)


def _column(path: Path, name: str) -> list[Any]:
    return pq.read_table(path, columns=[name], partitioning=None).column(0).to_pylist()


def _keys(run: RunDir, plan: Plan, shard: int) -> Iterator[tuple[bytes, bytes, int]]:
    path = run.scan_file(plan, shard, "exchanges")
    names = ["exchange_id", "content_id", "tokens_est"]
    data = pq.read_table(path, columns=names, memory_map=True, partitioning=None)
    return zip(*(data.column(name).to_pylist() for name in names), strict=True)


def _spans(run: RunDir, plan: Plan, tokens: dict[bytes, int], min_tokens: int) -> Iterator[Span]:
    """The windows that an engine is asked about."""
    for shard in range(len(plan.scan_shards)):
        if run.scan_manifest(plan, shard) is None:
            continue
        rows = tables.read_table(tables.OCCURRENCES, run.scan_file(plan, shard, "occurrences"))
        for (unit, session), places in sessions_of((row.source.partition("!")[0], row) for row in rows).items():
            for span in cut_session(session, unit, places, tokens):
                if any(tokens.get(place.exchange_id, 0) >= min_tokens for place in span.places):
                    yield span


def _rows_at(run: RunDir, plan: Plan, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Exchange]:
    found: dict[tuple[int, int], Exchange] = {}
    wanted: dict[int, set[int]] = {}
    for shard, row in places:
        wanted.setdefault(shard, set()).add(row)
    for shard, numbers in wanted.items():
        order = sorted(numbers)
        rows = tables.read_rows_at(tables.EXCHANGES, run.scan_file(plan, shard, "exchanges"), order)
        found.update(zip(((shard, row) for row in order), rows, strict=True))
    return found


def _windows(run: RunDir, plan: Plan, spans: Sequence[Span], places: dict[bytes, tuple[int, int]]) -> Windows:
    found = _rows_at(run, plan, (places[p.exchange_id] for span in spans for p in (*span.places, *span.lead)))

    def rows(of: Sequence[Occurrence]) -> tuple[Exchange, ...]:
        return tuple(found[places[place.exchange_id]] for place in of)

    return Windows(
        Window(
            span.session_id,
            span.source,
            span.window,
            span.reading,
            rows(span.places),
            tuple(place.started_at for place in span.places),
            rows(span.lead),
        )
        for span in spans
    )


def _scaled(run: RunDir, plan: Plan, read: Sequence[PlannedUnit], units: Sequence[PlannedUnit]) -> tuple[float, float]:
    """(scale, its relative standard error): exchanges of the corpus over those that were read.

    A ratio estimate of exchanges a byte in each stratum, their variances added up (Cochran 1977, 6.11); a stratum of
    which nothing was read has the mean of all, and one of which a single unit was read the variance of all.
    """
    if sum(u.total_bytes for u in read) >= sum(u.total_bytes for u in units):
        return 1.0, 0.0
    counts = dict.fromkeys(((u.root, u.source) for u in read), 0)
    by_name = {u.source: (u.root, u.source) for u in read}
    for shard in range(len(plan.scan_shards)):
        for source in _column(run.scan_file(plan, shard, "occurrences"), "source"):
            if (name := source.partition("!")[0]) in by_name:
                counts[by_name[name]] += 1
    found = sum(counts.values())
    if not found:
        return sum(u.total_bytes for u in units) / max(1, sum(u.total_bytes for u in read)), 1.0
    total = variance = 0.0
    pooled = _ratio(read, counts)
    for key, of in itertools.groupby(sorted(units, key=_stratum), _stratum):
        corpus = sum(u.total_bytes for u in of)
        own = [u for u in read if _stratum(u) == key]
        ratio, spread = _ratio(own, counts) if len(own) > 1 else pooled
        own_bytes = sum(u.total_bytes for u in own)
        if own_bytes >= corpus:
            total += sum(counts[u.root, u.source] for u in own)
            continue
        total += ratio * corpus if len(own) != 1 else _ratio(own, counts)[0] * corpus
        # Of a stratum that was not read the ratio itself is a guess: its whole part counts as uncertain.
        variance += (corpus - own_bytes) * corpus / own_bytes * spread if own else (ratio * corpus) ** 2
    return total / found, min(1.0, math.sqrt(variance) / total) if total else 1.0


def _ratio(units: Sequence[PlannedUnit], counts: dict[tuple[int, str], int]) -> tuple[float, float]:
    """(exchanges a byte, variance a byte around it) of some units."""
    size = max(1, sum(u.total_bytes for u in units))
    ratio = sum(counts[u.root, u.source] for u in units) / size
    spread = sum((counts[u.root, u.source] - ratio * u.total_bytes) ** 2 for u in units)
    return ratio, spread / size * len(units) / max(1, len(units) - 1)
