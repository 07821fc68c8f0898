"""What a merge reads: run folders and bundles as unions of rows.

Ids are recomputed from the verbatim text of every exchange row, because a bundle may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from backfill.bundle import Bundle
from backfill.bundle_manifest import read_manifest
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS
from backfill.columns import ParquetFile
from backfill.durable import sha256_file
from backfill.embed import CLAIM_VECTORS, object_texts
from backfill.errors import BundleError, MergeRefused, ShardError
from backfill.ids import canonical_json
from backfill.manifest import ShardManifest
from backfill.pieces import TABLES, FilePiece, MemoryPiece, Piece, texts_of
from backfill.rows import ROW_TYPES, rows_of
from backfill.rundir import CLAIMS, Plan, RunDir
from backfill.trust import known_segments, segment_digest
from backfill.types import Exchange
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
    """One input of a merge: rows in memory (`union`), and rows in files (`pieces`)."""

    name: str
    union: Union
    settings: Settings
    encoder_files: list[Path] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def all_pieces(self) -> list[Piece]:
        """Everything as pieces."""
        in_memory = any(getattr(self.union, table) for table in TABLES)
        return [*self.pieces, MemoryPiece(self.name, self.union)] if in_memory else list(self.pieces)

    def whole(self) -> Union:
        """Everything in memory."""
        out = Union(tombstones=dict(self.union.tombstones))
        parts = (*self.settings.parts, "claims") if self.settings.encoder else ()
        for piece in self.all_pieces():
            rows = {table: piece.rows(table, range(piece.n_rows(table))) for table in TABLES}
            for table in TABLES:
                out.add(table, rows[table])
            for part in parts:
                matrix = piece.vectors(part)
                if matrix is not None:
                    out.add_vectors(texts_of(rows["claims" if part == "claims" else "objects"], part), matrix)
            add_verbatim(out, piece.text_hashes(), piece.vectors("verbatim"))
        return out


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
        if bundle.manifest.encoder and segment.has(VERBATIM_VECTORS):
            matrix = segment.vectors(VERBATIM_VECTORS, bundle.manifest.encoder.dim)
            add_verbatim(union, segment.arrays(VERBATIM_ROWS)["key"], matrix)
    hidden = ParquetFile(path / bundle.files["tombstones"].path).read(list(ROW_TYPES["tombstones"].__slots__))
    union.add("tombstones", rows_of("tombstones", hidden))
    encoder = [path / entry.path for entry in bundle.manifest.files if entry.role == "encoder"]
    return Input(str(path), union, settings, encoder)


def settings_of(path: Path) -> Settings:
    """The settings that a bundle's manifest states. Raises BundleError where it is damaged or of another format."""
    read_manifest(path)
    try:
        stated = msgspec.json.decode((path / "manifest.json").read_bytes(), type=_Stated)
        parts = msgspec.convert(stated.index.pop("parts"), tuple[str, ...])
    except (KeyError, msgspec.MsgspecError) as error:
        raise BundleError(f"{path / 'manifest.json'}: {error}", hint="the bundle is damaged, or not honest") from error
    return Settings(stated.encoder, stated.bm25, stated.index, parts, stated.fingerprints, stated.gate)


class _Stated(msgspec.Struct):
    """The settings in a manifest, as far as a merge joins them."""

    bm25: dict[str, Any]
    index: dict[str, Any]
    encoder: dict[str, Any] | None = None
    fingerprints: dict[str, list[str]] = {}
    gate: dict[str, str] = {}


def open_bundle(path: Path) -> Input:
    """A bundle as pieces, a segment each, read as a merge needs them.

    Segments that this user's own commands wrote are vouched for; of others every exchange's ids are recomputed.
    Raises BundleError as it is opened or read, where a file or an id does not hold.
    """
    bundle = Bundle.open(path)
    settings = settings_of(path)
    known = known_segments()
    pieces: list[Piece] = []
    for segment in bundle.segments:
        roles = {role: entry.sha256 for role, entry in segment.files.items()}
        vouched = "sums" in roles and segment_digest(roles) in known
        pieces.append(
            FilePiece(
                name=f"{path}/seg/{segment.name}",
                month=segment.name,
                files={role: (path / entry.path, entry.sha256) for role, entry in segment.files.items()},
                dim=bundle.manifest.encoder.dim if bundle.manifest.encoder else 0,
                vouched=vouched,
                check=None if vouched else partial(_refuse_forged, path=path),
                root=path,
                entries=tuple(asdict(entry) for entry in segment.files.values()),
            )
        )
    union = Union()
    entry = bundle.files.get("tombstones")
    if entry is not None:
        hidden = path / entry.path
        if sha256_file(hidden) != entry.sha256:
            raise BundleError(f"{hidden} differs from its checksum", hint="`backfill verify` names every damaged file")
        union.add(
            "tombstones", rows_of("tombstones", ParquetFile(hidden).read(list(ROW_TYPES["tombstones"].__slots__)))
        )
    encoder = [path / e.path for e in bundle.manifest.files if e.role == "encoder"]
    return Input(str(path), union, settings, encoder, pieces)


def read_run(run: RunDir, plan: Plan, settings: Settings, encoder_files: Sequence[Path]) -> Input:
    """A finished run as pieces, a shard each. Raises ShardError naming the first shard that is missing; one that is
    damaged is named when it is read."""
    pieces: list[Piece] = []
    for shard in range(len(plan.scan_shards)):
        manifest = _done(run.scan_manifest(plan, shard), "scan", shard)
        pieces.append(_shard_piece(run.exchanges, manifest, ("exchanges", "occurrences")))
    for shard in plan.distill_shards():
        manifest = _done(run.object_manifest(plan, shard), "distill", shard)
        vectors = _done(run.vector_manifest(plan, shard), "embed", shard)
        table = "claims" if plan.product_of(shard) == CLAIMS else "objects"
        piece = _shard_piece(run.objects, manifest, (table,))
        if settings.encoder:
            roles = (CLAIM_VECTORS,) if table == "claims" else tuple(f"vectors:{part}" for part in settings.parts)
            if table == "objects" and settings.index.get("verbatim_vectors"):
                roles = (*roles, VERBATIM_VECTORS, VERBATIM_ROWS)
            piece.files = {**piece.files, **_shard_piece(run.vectors, vectors, roles).files}
            piece.dim = int(settings.encoder["dim"])
        pieces.append(piece)
    return Input(str(run.path), Union(), settings, list(encoder_files), pieces)


def _shard_piece(folder: Path, manifest: ShardManifest, roles: Sequence[str]) -> FilePiece:
    files = {role: (folder / manifest.file(role).name, manifest.file(role).sha256) for role in roles}
    hint = f"delete the manifest of shard {manifest.shard} in {folder} and run again: the shard is redone"
    return FilePiece(f"{folder.name} shard {manifest.shard}", "", files, hint=hint)


def add_verbatim(union: Union, keys: Any, matrix: Any) -> None:
    """Adds vectors [M, D] by the hashes [M, 16] u1 of their texts; nothing where there are none."""
    for key, row in zip(keys, matrix, strict=True) if matrix is not None else ():
        name, data = key.tobytes(), row.tobytes()
        union.vectors[name] = max(data, union.vectors.get(name, b""))


def combine(unions: Sequence[Union]) -> Union:
    """The union of unions, all in memory: what a merge of pieces must equal."""
    total = Union()
    for one in unions:
        for name in (*TABLES, "tombstones"):
            total.add(name, getattr(one, name).values())
        for key, data in one.vectors.items():
            total.vectors[key] = max(data, total.vectors.get(key, b""))
    return total


def join_settings(settings: Sequence[Settings]) -> Settings:
    """Settings of the union. Raises MergeRefused when encoders, tokenizers or vector parts differ."""
    first = settings[0]
    for other in settings[1:]:
        if canonical_json(other.encoder) != canonical_json(first.encoder) or other.parts != first.parts:
            raise MergeRefused(
                "the inputs were embedded with different encoders or vector parts",
                hint="re-run the smaller one with the other's embedder settings, then merge",
            )
        if other.bm25.get("tokenizer_version") != first.bm25.get("tokenizer_version"):
            raise MergeRefused("the inputs were indexed with different BM25 tokenizers; merge with one version")
    greatest = max(settings, key=lambda s: canonical_json([s.bm25, s.index]))
    index = greatest.index
    if any(s.index.get("verbatim_vectors") for s in settings):
        # Exchanges of an input without them have none until they are embedded.
        index = {**index, "verbatim_vectors": True}
    kinds = sorted({kind for s in settings for kind in s.fingerprints})
    prints = {kind: sorted({p for s in settings for p in s.fingerprints.get(kind, [])}) for kind in kinds}
    gate: dict[str, str] = {}
    for one in settings:
        for engine, verdict in one.gate.items():
            gate[engine] = max(verdict, gate.get(engine, verdict))
    return Settings(first.encoder, greatest.bm25, index, first.parts, prints, gate)


def _done(manifest: ShardManifest | None, stage: str, shard: int) -> ShardManifest:
    if manifest is None:
        raise ShardError(f"shard {shard} of stage {stage} is not done", hint="run it first: `backfill run` resumes")
    return manifest


def _refuse_forged(rows: Sequence[Exchange], path: Path) -> None:
    for row in rows:
        problem = check_ids(row)
        if problem:
            raise BundleError(f"{path}: exchange {row.exchange_id.hex()}: {problem}", hint="the bundle is not honest")
