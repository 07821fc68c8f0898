"""`sweep`: distills what landed in a bundle raw, extractive or ungated, with the engine of the caller's config; where
that makes claims, also the windows whose claims are extractive.

Goes on where an earlier sweep was stopped: answers are logged in this user's state folder until the bundle has them,
and what this engine has tried already is left alone. Deliberately absent: reading new files (`ingest`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backfill.answer_cache import shelved
from backfill.answers import AnswerLog
from backfill.bundle import Bundle, Segment
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.errors import UsageError
from backfill.gate import LLM_KINDS, UNGATED
from backfill.growth import retried
from backfill.ids import digest_fields
from backfill.ingest import Ingest, Made, Read, ShouldStop, bundle_encoder, delta_settings, delta_union
from backfill.inputs import Input, settings_of
from backfill.merge import grow
from backfill.rows import ROW_TYPES, rows_of
from backfill.rundir import CLAIMS
from backfill.sweep_claims import DueWindows, due_windows
from backfill.trust import record_path
from backfill.types import Exchange
from backfill.windows import Windows

# A merge every so many exchanges: an hour or so of a small engine, seconds of a large one.
BATCH_ROWS = 4096
_SHARD_ROWS, _SHARD_WINDOWS, _BATCH_WINDOWS = 64, 16, 1024


@dataclass(slots=True)
class Due:
    """What a bundle has to distill: exchange rows by the generation that their new objects need."""

    rows: dict[int, list[Exchange]]
    by_tier: Counter[str]
    same_engine: int = 0  # objects of this very engine, made before it had a verdict


def bundles_below(path: Path) -> list[Path]:
    """The bundle itself, or the bundles in a folder of bundles or of runs, in order. Raises UsageError for none."""
    if (path / "manifest.json").is_file():
        return [path]
    children = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    found = [c for child in children for c in (child, child / "bundle") if (c / "manifest.json").is_file()]
    if not found:
        raise UsageError(f"{path} is no bundle and holds none")
    return found


def due_in(bundle: Bundle, ingest: Ingest) -> Due:
    """The visible exchanges of at least `min_tokens` whose object is below tier llm, or of an engine without a verdict.

    What this engine has tried (a row of any tier carries its fingerprint) is not due again. An ungated object counts
    only where this engine is gated, and needs a greater generation to be replaced.
    """
    generation = ingest.config.distill.generation
    ungated = {print_ for print_, verdict in bundle.manifest.gate.items() if verdict == UNGATED}
    better = ingest.verdict == "PASS"
    due = Due({}, Counter())
    for segment in bundle.segments:
        if not segment.has("objects"):
            continue
        docs = segment.docs
        tiers, prints = segment.column("objects", "tier"), segment.column("objects", "fingerprint")
        generations, ids = segment.column("objects", "generation"), segment.column("objects", "exchange_id")
        tried = {xid for xid, print_ in zip(ids, prints, strict=True) if print_ == ingest.print_}
        sizes = segment.column("exchanges", "tokens_est")
        wanted: dict[int, list[int]] = {}
        for row, made in zip(docs.exchange_row.tolist(), docs.object_row.tolist(), strict=True):
            if sizes[row] < ingest.config.distill.min_tokens:
                continue
            if made >= 0 and prints[made] == ingest.print_ and prints[made] in ungated and better:
                due.same_engine += 1
                continue
            old = made >= 0 and tiers[made] == "llm"
            if (old and not (better and prints[made] in ungated)) or (made >= 0 and ids[made] in tried):
                continue
            if ingest.engine.kind == "extractive" and made >= 0 and tiers[made] != "raw":
                continue
            due.by_tier[tiers[made] if made >= 0 else "none"] += 1
            wanted.setdefault(max(generation, generations[made] + 1) if old else generation, []).append(row)
        for needed, places in wanted.items():
            due.rows.setdefault(needed, []).extend(_rows(segment, places))
    return due


def _rows(segment: Segment, places: Sequence[int]) -> list[Exchange]:
    columns = list(ROW_TYPES["exchanges"].__slots__)
    found = segment.table("exchanges").rows_at(columns, places)
    rows: list[Exchange] = rows_of("exchanges", {name: [c[name] for c in found.values()] for name in columns})
    return rows


def sweep(bundle: Path, ingest: Ingest, should_stop: ShouldStop, *, dry_run: bool = False) -> dict[str, Any]:
    """Distills what is due in one bundle and merges it, batch by batch; returns its part of the `sweep --json` record.

    Raises Interrupted when asked to stop, EngineError where the engine does not live; what was merged by then stays,
    and answers that were not are replayed by the next sweep.
    """
    started = time.monotonic()
    opened = Bundle.open(bundle, trust_encoder=ingest.trust_encoder)
    due = due_in(opened, ingest)
    n_due = sum(len(rows) for rows in due.rows.values())
    claims = _claims_due(opened, ingest)
    record = {
        "bundle": str(bundle),
        "due": n_due,
        "due_tiers": dict(due.by_tier),
        "due_windows": len(claims.windows),
        "left_windows": claims.left,
        "claims": 0,
        "truncated": 0,
        "tiers": {},
        "failures": {},
        "gated": due.same_engine,
        "exchanges": opened.manifest.counts.get("visible_exchanges", 0),
        "logical_digest": opened.manifest.logical_digest,
        "seconds": 0.0,
    }
    n_new = n_due + len(claims.windows)
    if dry_run or (not n_new and not due.same_engine):
        return record
    encoder = bundle_encoder(opened) if n_new else None
    tiers: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    n_claims = 0
    with _answers(bundle, ingest, ingest.print_) as log, _answers(bundle, ingest, ingest.claims_print) as claims_log:
        for made in _batches(due, claims, ingest, (log, claims_log), should_stop):
            tiers.update(made.tiers)
            failures.update(made.failures)
            n_claims += len(made.claims)
            lineage = {"kind": "sweep", "tiers": dict(tiers), "claims": n_claims}
            merged = _merge(bundle, ingest, made, encoder, lineage)
            record |= {**merged, "truncated": record["truncated"] + merged["truncated"]}
        if due.same_engine and not n_new:
            record |= _merge(bundle, ingest, Made([], {}, {}), None, {"kind": "sweep", "gated": due.same_engine})
        log.unlink()
        claims_log.unlink()
    return {
        **record,
        "tiers": dict(tiers),
        "claims": n_claims,
        "failures": dict(failures.most_common()),
        "seconds": round(time.monotonic() - started, 3),
    }


class _Log:
    """The answer log of one bundle and engine; `open` is None for an engine that answers no prompts."""

    def __init__(self, path: Path, print_: str, *, wanted: bool, cached: bool) -> None:
        self.path = path
        self.open = AnswerLog(path, print_, replay=shelved(print_) if cached else ()) if wanted else None

    def unlink(self) -> None:
        """The bundle has everything: the log is not needed any more."""
        if self.open is not None:
            self.open.close()
            self.path.unlink(missing_ok=True)


def _claims_due(bundle: Bundle, ingest: Ingest) -> DueWindows:
    """None for the extractive engine: whatever has claims has those that it would make."""
    if ingest.engine.kind == "extractive" or CLAIMS not in ingest.config.distill.products:
        return DueWindows([])
    return due_windows(bundle, ingest.claims_print)


@contextmanager
def _answers(bundle: Path, ingest: Ingest, print_: str) -> Iterator[_Log]:
    folder = record_path().parent / "sweeps"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = digest_fields([str(bundle.absolute()).encode("utf-8", "surrogateescape")], size=8).hex()
    path = folder / f"{name}.{print_[:8]}.jsonl"
    wanted = ingest.engine.kind != "extractive" and bool(print_)
    log = _Log(path, print_, wanted=wanted, cached=ingest.config.distill.cache)
    try:
        yield log
    finally:
        if log.open is not None:
            log.open.close()


def _batches(
    due: Due, claims: DueWindows, ingest: Ingest, logs: tuple[_Log, _Log], should_stop: ShouldStop
) -> Iterator[Made]:
    """What was made of one batch after the other: objects generation by generation, then claims."""
    extractive = ingest.engine.kind == "extractive"
    engine = None if extractive or not (due.rows or claims.windows) else make_engine(ingest.engine)
    try:
        for generation, shards in _shards(due, claims, ingest.config.distill.generation):
            made = Made([], {}, {})
            tiers: Counter[str] = Counter()
            failures: Counter[str] = Counter()
            for shard in distill(
                shards,
                replace(ingest.config.distill, generation=generation),
                fingerprint=ingest.print_,
                claims_fingerprint=ingest.claims_print,
                engine=engine,
                max_new_tokens=ingest.engine.max_new_tokens,
                log=logs[0].open,
                claims_log=logs[1].open,
                privacy=ingest.config.scan.privacy,
                should_stop=should_stop,
            ):
                made.objects += shard.objects
                made.claims += shard.claims
                tiers.update(row.tier for row in shard.objects)
                failures.update(shard.stats.failures)
            made.tiers, made.failures = dict(tiers), dict(failures)
            yield made
    finally:
        if engine is not None:
            engine.close()


def _shards(
    due: Due, claims: DueWindows, generation: int
) -> Iterator[tuple[int, list[tuple[str, Sequence[Exchange] | Windows]]]]:
    """(generation, shards) of each batch."""
    for needed, rows in sorted(due.rows.items()):
        for start in range(0, len(rows), BATCH_ROWS):
            batch = rows[start : start + BATCH_ROWS]
            yield needed, [(str(i), batch[i : i + _SHARD_ROWS]) for i in range(0, len(batch), _SHARD_ROWS)]
    for start in range(0, len(claims.windows), _BATCH_WINDOWS):
        windows = claims.windows[start : start + _BATCH_WINDOWS]
        sizes = range(0, len(windows), _SHARD_WINDOWS)
        yield generation, [(f"claims-{i}", Windows(windows[i : i + _SHARD_WINDOWS])) for i in sizes]


def _merge(bundle: Path, ingest: Ingest, made: Made, encoder: Any, lineage: dict[str, Any]) -> dict[str, Any]:
    cut = {"truncated": 0}

    def attempt(expected: str) -> dict[str, Any]:
        settings = settings_of(bundle)
        union, n_cut = delta_union(Read(), made, settings, encoder)
        cut["truncated"] = n_cut
        gated = delta_settings(settings, ingest, made)
        if ingest.engine.kind in LLM_KINDS and ingest.verdict == "PASS":
            gated.gate[ingest.print_] = ingest.verdict
        return grow(bundle, Input("sweep", union, gated), lineage, expected)

    merged = retried(bundle, attempt)
    return {"exchanges": merged["exchanges"], "logical_digest": merged["logical_digest"], **cut}
