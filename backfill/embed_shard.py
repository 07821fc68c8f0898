"""The embed stage over the shards of a run: reads 02-objects, and exchanges for verbatim vectors; writes 03-vectors.

A text is computed once, whatever shard, run or bundle it was met in before (`known_vectors`). Deliberately absent:
which texts get a vector (`embed`, `chunks`), and the encoder itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill import tables
from backfill.arrays import write_arrays
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, keys_of, verbatim_chunks
from backfill.embed import CLAIM_VECTORS, embed_texts, encoder_fingerprint, object_texts
from backfill.embedders.remembering import RememberingEmbedder
from backfill.errors import Interrupted, ShardError
from backfill.indexes.vectors import write_vectors
from backfill.known_vectors import VectorCache
from backfill.manifest import publish
from backfill.rundir import CLAIMS, Plan, RunDir, vector_fingerprint

if TYPE_CHECKING:
    from backfill.config import EmbedderConfig
    from backfill.embedders.base import Embedder

_Writers = dict[tuple[str, str], Callable[[Path], int]]


def embed_shards(
    run: RunDir,
    plan: Plan,
    shards: Iterable[int],
    should_stop: Callable[[], bool],
    on_done: Callable[[int, dict[str, Any]], None],
) -> None:
    """Embeds and publishes shards. Raises Interrupted between two of them, ShardError for one that has no objects."""
    from backfill.encoders import make_embedder

    config = plan.bound_config().embedder
    embedder = remembering(make_embedder(config), config, run)
    for shard in shards:
        if should_stop():
            raise Interrupted("stopped while embedding", hint="the same command resumes")
        manifest = run.object_manifest(plan, shard)
        if manifest is None:
            raise ShardError(f"distillation shard {shard} is not done", hint="distill it first")
        file = manifest.file(plan.product_of(shard))
        texts = _texts(run, plan, shard, run.objects / file.name)
        cut, encoded = embedder.truncated(), embedder.encoded
        writers: _Writers = {
            (role, ".f16"): partial(write_vectors, embed_texts(embedder, these)) for role, these in texts.items()
        }
        if VERBATIM_VECTORS in texts:
            writers[VERBATIM_ROWS, ".arrays"] = partial(_write_keys, texts[VERBATIM_VECTORS])
        stats = {
            "n": file.rows,
            "texts": sum(map(len, texts.values())),
            "truncated": embedder.truncated() - cut,
        }
        print_ = vector_fingerprint(plan, shard)
        publish(run.vectors, "embed", shard, print_, writers, inputs=(file.sha256,), stats=stats)
        on_done(shard, {**stats, "encoded": embedder.encoded - encoded})


def remembering(embedder: Embedder, config: EmbedderConfig, run: RunDir) -> RememberingEmbedder:
    """The embedder over the user's cache, or over one of the run's own where the config wants none."""
    shelf = vector_cache_home() if config.cache else run.logs / "vectors"
    device = str(getattr(embedder, "device", "onnx"))
    return RememberingEmbedder(
        embedder, cache=VectorCache(shelf / f"{encoder_fingerprint(embedder)}-{device}", embedder.dim)
    )


def vector_cache_home() -> Path:
    """Where the user's vectors are kept: BACKFILL_VECTOR_CACHE, or a folder of the cache."""
    from backfill.weights import cache_dir

    return Path(os.environ.get("BACKFILL_VECTOR_CACHE") or cache_dir() / "vectors")


def _texts(run: RunDir, plan: Plan, shard: int, path: Path) -> dict[str, list[str]]:
    """The texts of a shard that get a vector, by the role of its file."""
    if plan.product_of(shard) == CLAIMS:
        return {CLAIM_VECTORS: [row.text for row in tables.read_table(tables.CLAIMS, path)]}
    config = plan.bound_config().embedder
    rows = tables.read_table(tables.OBJECTS, path)
    texts = {f"vectors:{part}": [object_texts(row, (part,))[part] for row in rows] for part in config.parts}
    if config.verbatim:
        from backfill.rounds import shard_rows

        chunks = (chunk for row in shard_rows(run, plan, shard) for chunk in verbatim_chunks(row))
        texts[VERBATIM_VECTORS] = list(dict.fromkeys(chunks))
    return texts


def _write_keys(texts: list[str], path: Path) -> int:
    write_arrays(path, {"key": keys_of(texts)})
    return len(texts)
