"""Opens what an evaluation needs: a bundle or a set made into one, its texts, its encoder, and the labelled queries.

Texts are encoded by the bundle's own query encoder, one at a time, and kept in the cache; the vectors that the bundle
recorded go into it first. So no other model is loaded, and a bundle from anywhere can be evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backfill.bundle import Bundle
from backfill.evaluation.collection import Collection, read_collection
from backfill.evaluation.corpus import Query
from backfill.evaluation.evaluate import Labels
from backfill.evaluation.scores import Scores
from backfill.evaluation.vector_cache import CachedEmbedder
from backfill.phrases import take_apart
from backfill.question import query_encoder


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bundle with the scores of its labelled queries; `warnings` say what cannot be measured."""

    bundle: Bundle
    scores: Scores
    labels: Labels
    warnings: tuple[str, ...] = ()


def prepare(
    path: Path, labels: Labels, *, cache: Path | None = None, trust_encoder: bool = False, needs_grades: bool = True
) -> Prepared:
    """Reads the bundle and encodes the queries. Raises UsageError where no query has a grade, BundleError."""
    labels = labels.graded() if needs_grades else labels
    bundle = Bundle.open(path, trust_encoder=trust_encoder)
    collection = read_collection(bundle)
    encoder, reason = query_encoder(bundle)
    if encoder is None:
        note = f"vectors are not measured: {reason}" if reason else "the bundle has no encoder"
        return Prepared(bundle, Scores(collection, labels.queries), labels, (note,))
    cached = CachedEmbedder(encoder, cache)
    _seed(cached, bundle, collection)
    rows = query_rows(cached, labels.queries)
    return Prepared(bundle, Scores(collection, labels.queries, cached, rows), labels)


def query_rows(encoder: CachedEmbedder, queries: Sequence[Query]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Vectors [Q, D] of the queries' words, as a search takes them."""
    return encoder.encode([take_apart(query.text)[0] for query in queries], kind="query").astype(np.float32)


def _seed(cached: CachedEmbedder, bundle: Bundle, collection: Collection) -> None:
    """Puts the recorded vectors of the objects' parts and of the claims into the cache."""
    texts = {"core": collection.texts["core"], "context": collection.texts["context"]}
    start = 0
    for segment in bundle.segments:
        docs = segment.docs
        stop = start + len(docs)
        for part in set(texts) & set(bundle.manifest.index.parts):
            held = np.flatnonzero(docs.object_row >= 0)
            rows = segment.vectors(f"vectors:{part}", cached.dim)[docs.object_row[held]]
            cached.put([texts[part][start + int(doc)] for doc in held], np.asarray(rows), kind="passage")
        if segment.has("vectors:claims") and len(docs.claim_row):
            column = segment.column("claims", "text")
            rows = segment.vectors("vectors:claims", cached.dim)[docs.claim_row]
            cached.put([column[int(row)] for row in docs.claim_row], np.asarray(rows), kind="passage")
        start = stop
