"""Adding new files to a bundle: scan what is new, distill it on the way in, embed it with the bundle's encoder, merge.

A small delta, read and made in this process. An engine that fails or takes too long never keeps text out: what it has
not answered lands raw, and `sweep` distills it later. Deliberately absent: bulk (`run`), and any setting that sends
text elsewhere taken from a bundle; engines come from a config that the caller names.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill import tables
from backfill.answer_cache import cache_places, open_shelf
from backfill.bundle import Bundle
from backfill.chunks import verbatim_chunks
from backfill.claim_rounds import plan_claims, shard_windows
from backfill.config import Config, EngineConfig
from backfill.distill import claims_fingerprint, distill
from backfill.embed import embed_texts, object_texts
from backfill.embedders.remembering import RememberingEmbedder
from backfill.engines import make_engine
from backfill.errors import BundleError, EngineError, Interrupted, ModelError, UsageError
from backfill.extractive import raw_object
from backfill.gate import LLM_KINDS
from backfill.ids import fingerprint, row_hash
from backfill.inputs import Settings
from backfill.known_vectors import BundleVectors
from backfill.made_before import MadeBefore
from backfill.rows import ROW_TYPES, rows_of
from backfill.rundir import Plan, PlannedUnit, RunDir, ScanShard
from backfill.scan import plan_scan, scan_shard, scan_summary
from backfill.seen import Seen
from backfill.union import Union
from backfill.windows import Window, Windows

if TYPE_CHECKING:
    from backfill.distill_shard import DistilledShard
    from backfill.embedders.base import Embedder
    from backfill.types import Claim, Exchange, PalaceObject

ShouldStop = Callable[[], bool]
# Rows that an engine has not answered are settled shard by shard, so shards are small.
_SHARD_ROWS, _SHARD_WINDOWS = 16, 4
_DRAIN_S = 5.0
RAW_FINGERPRINT = fingerprint({"stage": "distill", "engine": "raw"})


@dataclass(frozen=True, slots=True)
class Ingest:
    """How new text is read and distilled. `engine` is the small-volume engine, `print_` and `claims_print` its
    fingerprints, `verdict` its gate's; at most `timeout_s` are given to it."""

    config: Config
    engine: EngineConfig
    print_: str
    claims_print: str = ""
    verdict: str = ""
    timeout_s: float = 120.0
    trust_encoder: bool = False


@dataclass(slots=True)
class Read:
    """What a scan of new files yielded."""

    exchanges: list[Exchange] = field(default_factory=list)
    occurrences: list[Any] = field(default_factory=list)
    units: list[tuple[str, PlannedUnit]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Made:
    """Objects of new rows, how many of each tier, and why the engine was given up, if it was; claims of new windows."""

    objects: list[PalaceObject]
    tiers: dict[str, int]
    failures: dict[str, int]
    gave_up: str = ""
    claims: list[Claim] = field(default_factory=list)


def read_new(sources: Sequence[Path], seen: Seen, config: Config, should_stop: ShouldStop) -> Read:
    """Reads the files below the sources that the bundle has not read in their present state.

    A source below a folder that was read before is named relative to that folder, as it would have been then. Raises
    UsageError for a missing source, Interrupted between files.
    """
    started = time.monotonic()
    wanted: dict[str, list[str]] = {}
    for source in sources:
        if not source.exists():
            raise UsageError(f"the source {source} does not exist")
        root, below = seen.place(source)
        wanted.setdefault(root, []).append(below)
    out = Read()
    with tempfile.TemporaryDirectory(prefix="backfill-add-") as scratch:
        run = RunDir(Path(scratch) / "run")
        run.make()
        plan_scan(run, config, list(wanted))
        plan = run.revise_plan(lambda planned: _fresh(planned, wanted, seen))
        for shard in range(len(plan.scan_shards)):
            manifest = scan_shard(run, plan, shard, should_stop)
            file = manifest.file
            out.exchanges += tables.read_table(tables.EXCHANGES, run.exchanges / file("exchanges").name)
            out.occurrences += tables.read_table(tables.OCCURRENCES, run.exchanges / file("occurrences").name)
        out.units = [(plan.roots[u.root], u) for shard in plan.scan_shards for u in shard.units]
        out.summary = scan_summary(run, plan, time.monotonic() - started)
        if "claims" in config.distill.products and out.occurrences:
            plan = plan_claims(run)
            out.windows = [w for shard in plan.distill_shards("claims") for w in shard_windows(run, plan, shard)]
    return out


def _fresh(plan: Plan, wanted: dict[str, list[str]], seen: Seen) -> Plan:
    def keep(unit: PlannedUnit) -> bool:
        root = plan.roots[unit.root]
        asked = wanted.get(root, [""])
        named = any(not b or s == b or s.startswith(f"{b}/") for b in asked for s in unit.sizes)
        return named and not seen.has(root, unit)

    shards = (ScanShard(tuple(u for u in shard.units if keep(u))) for shard in plan.scan_shards)
    return replace(plan, scan_shards=tuple(shard for shard in shards if shard.units))


def not_in(bundle: Bundle, rows: Iterable[Exchange]) -> list[Exchange]:
    """The distinct exchange rows that the bundle does not hold."""
    wanted = {row_hash(row): row for row in rows}
    ids = sorted({row.exchange_id for row in wanted.values()})
    columns = list(ROW_TYPES["exchanges"].__slots__)
    for segment in bundle.segments:
        column = segment.exchange_ids
        places = [p for xid in ids for p in range(bisect_left(column, xid), bisect_right(column, xid))]
        found = segment.table("exchanges").rows_at(columns, places)
        for row in rows_of("exchanges", {name: [cells[name] for cells in found.values()] for name in columns}):
            wanted.pop(row_hash(row), None)
    return list(wanted.values())


def windows_not_in(bundle: Bundle, windows: Sequence[Window]) -> list[Window]:
    """The windows of which the bundle has no claim from the same reading."""
    wanted = {(w.session_id, w.source, w.window, w.reading): w for w in windows}
    for segment in bundle.segments:
        if segment.has("claims") and segment.files["claims"].rows:
            names = ("session_id", "source", "window", "reading")
            for key in zip(*(segment.column("claims", name) for name in names), strict=True):
                wanted.pop(key, None)
    return list(wanted.values())


def make_objects(rows: Sequence[Exchange], windows: Sequence[Window], ingest: Ingest, should_stop: ShouldStop) -> Made:
    """An object for every row and claims of every window: by the engine while it answers; what it has not answered is
    raw, or claims by extraction.

    Raises Interrupted when asked to stop.
    """
    config = ingest.config.distill
    if ingest.engine.kind == "extractive":
        shards = list(_extracted((*_shards(rows), *_window_shards(windows)), ingest, should_stop))
        made = _counted([made for shard in shards for made in shard.objects], Counter())
        made.claims = [claim for shard in shards for claim in shard.claims]
        return made
    objects: dict[bytes, PalaceObject] = {}
    claims: list[Claim] = []
    open_windows = dict(_window_shards(windows))
    failures: Counter[str] = Counter()
    deadline = time.monotonic() + ingest.timeout_s
    late = False

    def stop() -> bool:
        nonlocal late
        late = late or time.monotonic() > deadline
        return late or should_stop()

    gave_up = ""
    engine = None
    try:
        engine = make_engine(replace(ingest.engine, load_timeout_s=min(ingest.engine.load_timeout_s, ingest.timeout_s)))
        cached = config.cache and not engine.deterministic
        runs, bundles = cache_places(config.cache_from)
        with (
            open_shelf(ingest.print_, cached=cached, others=runs) as log,
            open_shelf(ingest.claims_print, cached=cached, others=runs) as claims_log,
        ):
            for shard in distill(
                (*_shards(rows), *open_windows.items()),
                config,
                fingerprint=ingest.print_,
                claims_fingerprint=ingest.claims_print,
                engine=engine,
                max_new_tokens=ingest.engine.max_new_tokens,
                log=log,
                claims_log=claims_log,
                before=MadeBefore(bundles, ingest.print_, ingest.claims_print) if bundles else None,
                privacy=ingest.config.scan.privacy,
                should_stop=stop,
                drain_s=_DRAIN_S,
            ):
                failures.update(shard.stats.failures)
                objects.update((made.source_row, made) for made in shard.objects)
                claims += shard.claims
                open_windows.pop(shard.name, None)
    except Interrupted:
        if not late:
            raise
        gave_up = f"no answer within {ingest.timeout_s:.0f} s"
    except (EngineError, ModelError) as error:
        gave_up = str(error)
    finally:
        if engine is not None:
            engine.close()
    claims += [claim for shard in _extracted(open_windows.items(), ingest, should_stop) for claim in shard.claims]
    result = _counted([_or_raw(row, objects.get(row_hash(row)), ingest) for row in rows], failures, gave_up)
    result.claims = claims
    return result


def _extracted(
    shards: Iterable[tuple[str, Sequence[Exchange] | Windows]], ingest: Ingest, should_stop: ShouldStop
) -> Iterator[DistilledShard]:
    """Shards by extraction, under the fingerprints of the extractive engine."""
    config, engine = ingest.config, EngineConfig(kind="extractive")
    own = ingest.engine.kind == "extractive"
    yield from distill(
        shards,
        config.distill,
        fingerprint=ingest.print_,
        claims_fingerprint=ingest.claims_print if own else claims_fingerprint(config.distill, engine),
        should_stop=should_stop,
    )


def _or_raw(row: Exchange, made: PalaceObject | None, ingest: Ingest) -> PalaceObject:
    """What the engine made of a row; raw where it made nothing of it, with a fingerprint that no engine has."""
    if made is not None and (made.tier == "llm" or row.tokens_est < ingest.config.distill.min_tokens):
        return made
    return raw_object(row, generation=ingest.config.distill.generation, fingerprint=RAW_FINGERPRINT)


def _shards(rows: Sequence[Exchange]) -> Iterator[tuple[str, Sequence[Exchange]]]:
    for start in range(0, len(rows), _SHARD_ROWS):
        yield str(start), rows[start : start + _SHARD_ROWS]


def _window_shards(windows: Sequence[Window]) -> Iterator[tuple[str, Windows]]:
    for start in range(0, len(windows), _SHARD_WINDOWS):
        yield f"claims-{start}", Windows(windows[start : start + _SHARD_WINDOWS])


def _counted(objects: list[PalaceObject], failures: Counter[str], gave_up: str = "") -> Made:
    return Made(objects, dict(Counter(made.tier for made in objects)), dict(failures.most_common()), gave_up)


def bundle_encoder(bundle: Bundle) -> Embedder | None:
    """The bundle's own encoder; None where it has no vectors. Raises BundleError where it may not be loaded."""
    if bundle.manifest.encoder is None:
        return None
    encoder, reason = bundle.encoder()
    if encoder is None:
        raise BundleError(f"new text cannot be embedded: {reason}", hint="pass --trust-encoder if you know its maker")
    return RememberingEmbedder(encoder, [BundleVectors(bundle)])


def delta_union(read: Read, made: Made, base: Settings, encoder: Embedder | None) -> tuple[Union, int]:
    """The union of new rows and their vectors, as the bundle's settings want them, and how many texts the encoder
    cut."""
    union = Union()
    union.add("exchanges", read.exchanges)
    union.add("occurrences", read.occurrences)
    union.add("objects", made.objects)
    union.add("claims", made.claims)
    n_cut = 0
    if encoder is not None:
        before = encoder.truncated()
        texts = [text for row in made.objects for text in object_texts(row, base.parts).values()]
        texts += [claim.text for claim in made.claims]
        if base.index.get("verbatim_vectors"):
            texts += [chunk for row in read.exchanges for chunk in verbatim_chunks(row)]
        union.add_vectors(texts, embed_texts(encoder, texts))
        n_cut = encoder.truncated() - before
    return union, n_cut


def delta_settings(base: Settings, ingest: Ingest, made: Made) -> Settings:
    """The bundle's settings, with the fingerprints that the new objects carry and the engine's verdict."""
    prints = sorted({row.fingerprint for row in made.objects if row.fingerprint != RAW_FINGERPRINT})
    gated = ingest.engine.kind in LLM_KINDS and ingest.print_ in prints
    gate = {ingest.print_: ingest.verdict} if gated else {}
    return replace(base, fingerprints={"distill": prints} if prints else {}, gate=gate)
