"""What a merge reads: run folders and bundles as unions of rows.

Ids are recomputed from the verbatim text of every exchange row, because a bundle may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill import tables
from backfill.bundle import Bundle
from backfill.bundle_manifest import read_manifest
from backfill.columns import ParquetFile
from backfill.durable import sha256_file
from backfill.embed import CLAIM_VECTORS, object_texts
from backfill.errors import BundleError, MergeRefused, ShardError
from backfill.ids import canonical_json
from backfill.indexes.vectors import open_vectors
from backfill.manifest import ShardManifest
from backfill.rows import ROW_TYPES, rows_of
from backfill.rundir import CLAIMS, Plan, RunDir
from backfill.types import Claim, Exchange, PalaceObject
from backfill.union import Union
from backfill.verify import check_ids, checksum_problems, read_rows


@dataclass(slots=True)
class Settings:
    """What bundles must agree on, or what is joined when they meet."""

    encoder: dict[str, Any] | None
    bm25: dict[str, Any]
    index: dict[str, Any]
    parts: tuple[str, ...]
    fingerprints: dict[str, list[str]] = field(default_factory=dict)
    gate: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Input:
    """One input of a merge, read whole."""

    name: str
    union: Union
    settings: Settings
    encoder_files: list[Path] = field(default_factory=list)


def read_bundle(path: Path) -> Input:
    """All rows and vectors of a bundle. Raises BundleError when a file or an id does not hold."""
    for problem in checksum_problems(path):
        raise BundleError(f"{path}: {problem.file}: {problem.detail}", hint="restore it or merge without it")
    bundle = Bundle.open(path)
    settings = settings_of(path)
    union = Union()
    parts = settings.parts
    for segment in bundle.segments:
        for table in ("exchanges", "occurrences", "objects", "claims"):
            rows = read_rows(segment, table)
            if table == "exchanges":
                _refuse_forged(rows, path)
            union.add(table, rows)
            if table == "claims" and rows and bundle.manifest.encoder and segment.has(CLAIM_VECTORS):
                matrix = segment.vectors(CLAIM_VECTORS, bundle.manifest.encoder.dim)
                union.add_vectors([row.text for row in rows], matrix)
            if table == "objects" and bundle.manifest.encoder:
                for part in parts:
                    matrix = segment.vectors(f"vectors:{part}", bundle.manifest.encoder.dim)
                    union.add_vectors([object_texts(row, (part,))[part] for row in rows], matrix)
    hidden = ParquetFile(path / bundle.files["tombstones"].path).read(list(ROW_TYPES["tombstones"].__slots__))
    union.add("tombstones", rows_of("tombstones", hidden))
    encoder = [path / entry.path for entry in bundle.manifest.files if entry.role == "encoder"]
    return Input(str(path), union, settings, encoder)


def settings_of(path: Path) -> Settings:
    """The settings that a bundle's manifest states. Raises BundleError where it is damaged or of another format."""
    read_manifest(path)
    raw = msgspec.json.decode((path / "manifest.json").read_bytes())
    try:
        parts = tuple(raw["index"].pop("parts"))
        return Settings(raw["encoder"], raw["bm25"], raw["index"], parts, raw["fingerprints"], raw["gate"])
    except (KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{path / 'manifest.json'} lacks {error}") from error


def read_run(run: RunDir, plan: Plan, settings: Settings, encoder_files: Sequence[Path]) -> Input:
    """All rows and vectors of a finished run. Raises ShardError naming the first shard that is missing or damaged."""
    union = Union()
    for shard in range(len(plan.scan_shards)):
        manifest = _done(run.scan_manifest(plan, shard), "scan", shard)
        union.add("exchanges", tables.read_table(tables.EXCHANGES, _checked(run.exchanges, manifest, "exchanges")))
        rows = tables.read_table(tables.OCCURRENCES, _checked(run.exchanges, manifest, "occurrences"))
        union.add("occurrences", rows)
    for shard in plan.distill_shards():
        manifest = _done(run.object_manifest(plan, shard), "distill", shard)
        if plan.product_of(shard) == CLAIMS:
            _read_claims(run, plan, shard, manifest, settings, union)
            continue
        objects: list[PalaceObject] = tables.read_table(tables.OBJECTS, _checked(run.objects, manifest, "objects"))
        union.add("objects", objects)
        vectors = _done(run.vector_manifest(plan, shard), "embed", shard)
        for part in settings.parts if settings.encoder else ():
            path = _checked(run.vectors, vectors, f"vectors:{part}")
            matrix = open_vectors(path, int(settings.encoder["dim"]) if settings.encoder else 0, len(objects))
            union.add_vectors([object_texts(row, (part,))[part] for row in objects], matrix)
    return Input(str(run.path), union, settings, list(encoder_files))


def _read_claims(
    run: RunDir, plan: Plan, shard: int, manifest: ShardManifest, settings: Settings, union: Union
) -> None:
    claims: list[Claim] = tables.read_table(tables.CLAIMS, _checked(run.objects, manifest, CLAIMS))
    union.add(CLAIMS, claims)
    vectors = _done(run.vector_manifest(plan, shard), "embed", shard)
    if settings.encoder:
        path = _checked(run.vectors, vectors, CLAIM_VECTORS)
        union.add_vectors([row.text for row in claims], open_vectors(path, int(settings.encoder["dim"]), len(claims)))


def combine(inputs: Sequence[Input]) -> tuple[Union, dict[str, Any]]:
    """The union of inputs, and how many exchange rows and objects each one added."""
    total = Union()
    added: dict[str, Any] = {}
    for one in inputs:
        fresh = sum(total.add(name, getattr(one.union, name).values()) for name in ("exchanges", "objects", "claims"))
        total.add("occurrences", one.union.occurrences.values())
        total.add("tombstones", one.union.tombstones.values())
        for key, data in one.union.vectors.items():
            total.vectors[key] = max(data, total.vectors.get(key, b""))
        added[one.name] = fresh
    return total, added


def join_settings(settings: Sequence[Settings]) -> Settings:
    """Settings of the union. Raises MergeRefused when encoders, tokenizers or vector parts differ."""
    first = settings[0]
    for other in settings[1:]:
        if canonical_json(other.encoder) != canonical_json(first.encoder) or other.parts != first.parts:
            raise MergeRefused(
                "the inputs were embedded with different encoders or vector parts",
                hint="re-run the smaller one with the other's embedder settings, then merge",
            )
        if other.bm25["tokenizer_version"] != first.bm25["tokenizer_version"]:
            raise MergeRefused("the inputs were indexed with different BM25 tokenizers; merge with one version")
    greatest = max(settings, key=lambda s: canonical_json([s.bm25, s.index]))
    kinds = sorted({kind for s in settings for kind in s.fingerprints})
    prints = {kind: sorted({p for s in settings for p in s.fingerprints.get(kind, [])}) for kind in kinds}
    gate: dict[str, str] = {}
    for one in settings:
        for engine, verdict in one.gate.items():
            gate[engine] = max(verdict, gate.get(engine, verdict))
    return Settings(first.encoder, greatest.bm25, greatest.index, first.parts, prints, gate)


def _done(manifest: ShardManifest | None, stage: str, shard: int) -> ShardManifest:
    if manifest is None:
        raise ShardError(f"shard {shard} of stage {stage} is not done", hint="run it first: `backfill run` resumes")
    return manifest


def _checked(folder: Path, manifest: ShardManifest, role: str) -> Path:
    file = manifest.file(role)
    path = folder / file.name
    if not path.is_file() or sha256_file(path) != file.sha256:
        raise ShardError(
            f"{path} is missing or differs from its manifest",
            hint=f"delete the manifest of shard {manifest.shard} in {folder} and run again: the shard is redone",
        )
    return path


def _refuse_forged(rows: Sequence[Exchange], path: Path) -> None:
    for row in rows:
        problem = check_ids(row)
        if problem:
            raise BundleError(f"{path}: exchange {row.exchange_id.hex()}: {problem}", hint="the bundle is not honest")
