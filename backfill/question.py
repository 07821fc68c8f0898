"""A query taken apart for ranking: words, exact terms, and a vector where the bundle has an encoder that is trusted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from backfill.bundle_manifest import SearchDefaults
from backfill.errors import BackfillError, UsageError
from backfill.filters import Filters, one_of
from backfill.fusion import FUSIONS, NORMALIZATIONS
from backfill.phrases import take_apart
from backfill.ranking import DEFAULT_WEIGHTS, SIGNALS, QueryVector, Question, part_roles
from backfill.recent import Recent

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.embedders.base import Embedder

MAX_QUERY_CHARS = 100_000
MIN_DEPTH = 100
MAX_SETTING = 1e6

# Vectors of the texts asked last: a search is often asked again with another filter; 1.5 KB each of 384 numbers.
_KEPT_VECTORS = 256
_VECTOR_SIGNALS = ("nearest", "vector", "verbatim-vector", "claims-vector")


def ask(
    bundle: Bundle,
    text: str,
    *,
    wants_vector: bool,
    k: int,
    superseded: bool = False,
    filters: Filters | None = None,
    settings: SearchDefaults | None = None,
) -> tuple[Question, Sequence[str]]:
    """The query taken apart, and warnings. Without a trusted encoder the question has no vector, and a warning says so.

    Raises UsageError for a query without words or of more than 100,000 characters, and for unknown settings.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise UsageError(f"the query is longer than {MAX_QUERY_CHARS:,} characters")
    if not any(c.isalnum() for c in text):
        raise UsageError("the query has no words", hint='write a few, e.g. backfill query BUNDLE "retry timeout"')
    settings = settings or bundle.manifest.index
    # Lone surrogates come from broken bytes on a command line; neither index can hold one.
    text = text.encode("utf-8", "replace").decode()
    vector, warnings = None, []
    if wants_vector and bundle.segments:
        encoder, reason = query_encoder(bundle)
        if encoder is not None:
            vector = _vector(bundle, encoder, take_apart(text)[0])
        elif reason:
            warnings.append(f"{reason}; answered by BM25 alone")
    kind = filters.kind if filters else None
    return question_of(text, vector, settings, k=k, superseded=superseded, kind=kind), warnings


def encode_ahead(bundle: Bundle, text: str, mode: str) -> Question | None:
    """Encodes what a search of that mode will want, so that the search finds it done; errors are left to the search.

    None where the search wants no vector, or will refuse the text.

    Encoding lets go of the interpreter's lock, so a server does it for one search while another one runs.
    """
    with suppress(BackfillError):
        if wants_vector_for(bundle, mode, bundle.manifest.index) and any(c.isalnum() for c in text):
            return ask(bundle, text, wants_vector=True, k=1)[0]
    return None


def _vector(bundle: Bundle, encoder: Embedder, words: str) -> QueryVector:
    recent: Recent[QueryVector] = bundle.once("query vectors", Recent, _KEPT_VECTORS)
    vector = recent.get(words)
    if vector is None:
        vector = encoder.encode([words], kind="query")[0].astype(np.float32)
        vector.flags.writeable = False
        recent.put(words, vector, 1)
    return vector


def question_of(
    text: str,
    vector: QueryVector | None,
    settings: SearchDefaults,
    *,
    k: int = 10,
    superseded: bool = False,
    kind: str | None = None,
) -> Question:
    """The question that `text`, with the vector of its words (`take_apart(text)[0]`), puts to `ranking.rank`.

    Raises UsageError for settings that name an unknown fusion or normalisation.
    """
    from backfill.indexes.tokenizer import tokenize

    # The name that bundles of the first version give to a weighted sum.
    fusion = "weighted" if settings.fusion == "minmax" else one_of("fusion", settings.fusion, list(FUSIONS))
    one_of("normalization", settings.normalization, list(NORMALIZATIONS))
    _check_numbers(settings)
    words, exact = take_apart(text)
    return Question(
        text=words,
        terms=tuple(tokenize(words)),
        vector=vector,
        settings=replace(settings, fusion=fusion),
        depth=max(settings.depth, MIN_DEPTH, k),
        superseded=superseded,
        kind=kind,
        every=bool(exact),
    )


def _check_numbers(settings: SearchDefaults) -> None:
    """A bundle's settings may be a stranger's: none of them may turn scores into something that cannot be ordered."""
    weights = settings.weights.values()
    if settings.zero_cosine is not None and not -1.0 <= settings.zero_cosine <= 1.0:
        raise UsageError("index.zero_cosine lies outside -1 to 1")
    numbers = (*weights, settings.session_prior, settings.k1 or 0.0, settings.b or 0.0, float(settings.rrf_k))
    if not all(0.0 <= number <= MAX_SETTING for number in numbers) or (settings.b or 0.0) > 1.0:
        raise UsageError(f"a search setting lies outside 0 to {MAX_SETTING:,.0f} (b: 0 to 1)")


def query_encoder(bundle: Bundle) -> tuple[Embedder | None, str]:
    """The bundle's encoder once it gives the recorded vector for the probe text, or None and the reason.

    A wrong encoder of the right dimension raises no error by itself: it only finds the wrong things.
    """
    encoder, reason = bundle.encoder()
    info = bundle.manifest.encoder
    if encoder is None or info is None or info.probe_cosine_min <= 0:
        return encoder, reason
    from backfill.embedders.onnx import probe_cosine

    cosine = bundle.once("probe", probe_cosine, encoder, bundle.path / info.path)
    if cosine < info.probe_cosine_min:
        return None, f"the encoder's probe text has cosine {cosine:.4f} to its recorded vector, so vectors are off"
    return encoder, ""


def load_encoder_aside(bundle: Bundle) -> None:
    """Starts to load the encoder in a thread of its own; `query_encoder` waits for it, and says what went wrong."""

    def load() -> None:
        with suppress(BackfillError):
            query_encoder(bundle)

    if not bundle.has_made("encoder"):
        threading.Thread(target=load, name="encoder", daemon=True).start()


def wants_vector_for(bundle: Bundle, mode: str, settings: SearchDefaults) -> bool:
    """Whether a search of that mode has a use for the query's vector: a signal that needs it, and vectors for it."""
    if mode == "default":
        weights = settings.weights
        weights = weights if any(weights.get(name) for name in SIGNALS) else DEFAULT_WEIGHTS
        wanted = [name for name in _VECTOR_SIGNALS if weights.get(name)]
    else:
        wanted = {
            "distilled-vector": ["vector"],
            "verbatim-vector": ["verbatim-vector"],
            "claims": ["claims-vector"],
        }.get(mode, [])
    roles = {
        "nearest": (*part_roles(bundle), "vectors:claims"),
        "vector": part_roles(bundle),
        "verbatim-vector": ("vectors:verbatim",),
        "claims-vector": ("vectors:claims",),
    }
    return any(segment.has(role) for name in wanted for role in roles[name] for segment in bundle.segments)
