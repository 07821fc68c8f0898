"""`merge --reembed`: vectors of one encoder for inputs that were embedded with several.

The first input's encoder is taken, from its own files; texts that it has a vector for already are not encoded again,
for they were counted where they were cut. Inputs that are embedded again are in memory whole, and the first with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backfill.bundle_manifest import EncoderInfo
from backfill.chunks import verbatim_chunks
from backfill.embed import embed_texts, object_texts
from backfill.errors import MergeRefused
from backfill.ids import canonical_json
from backfill.inputs import Input, Settings
from backfill.trust import load_encoder
from backfill.union import Union, text_hash

if TYPE_CHECKING:
    from backfill.embedders.base import Embedder


def reembedded(inputs: Sequence[Input], *, trust: bool) -> tuple[list[Input], int]:
    """The inputs with the first one's encoder, parts and vectors, and how many of the texts that it read it cut.

    Raises MergeRefused where it may not be loaded.
    """
    first = inputs[0]
    fits = [
        (canonical_json(one.settings.encoder), one.settings.parts)
        == (canonical_json(first.settings.encoder), first.settings.parts)
        for one in inputs
    ]
    if all(fits):
        return list(inputs), 0
    n_cut = 0
    known = Input(first.name, first.whole(), first.settings, first.encoder_files)
    out = [first]
    for one, fit in zip(inputs[1:], fits[1:], strict=True):
        if fit:
            out.append(one)
            continue
        settings = replace(one.settings, encoder=first.settings.encoder, parts=first.settings.parts)
        union = replace(one.whole(), vectors={})
        if first.settings.encoder is not None:
            n_cut += _fill(union, known, trust=trust)
        out.append(Input(one.name, union, settings, first.encoder_files))
    return out, n_cut


def _fill(union: Union, first: Input, *, trust: bool) -> int:
    """Gives every text of the union that has none a vector of the first input's encoder; returns how many it cut."""
    texts = {text_hash(text): text for text in _texts(union, first.settings)}
    missing = [text for key, text in texts.items() if key not in union.vectors and key not in first.union.vectors]
    for key in texts:
        if key in first.union.vectors and key not in union.vectors:
            union.vectors[key] = first.union.vectors[key]
    if not missing:
        return 0
    encoder = _encoder(first, trust=trust)
    union.add_vectors(missing, embed_texts(encoder, missing))
    return encoder.truncated()


def _texts(union: Union, settings: Settings) -> Iterator[str]:
    for row in union.objects.values():
        yield from object_texts(row, settings.parts).values()
    for exchange in union.exchanges.values() if settings.index.get("verbatim_vectors") else ():
        yield from verbatim_chunks(exchange)
    for claim in union.claims.values():
        yield claim.text


def _encoder(first: Input, *, trust: bool) -> Embedder:
    info = first.settings.encoder or {}
    with tempfile.TemporaryDirectory(prefix="backfill-encoder-") as folder:
        for file in first.encoder_files:
            (Path(folder) / file.name).symlink_to(file.absolute())
        known = EncoderInfo(
            info["sha256"], info["dim"], info["pooling"], info["prompts"], info["probe_cosine_min"], "."
        )
        encoder, reason = load_encoder(Path(folder), known, trust=trust)
    if encoder is None:
        raise MergeRefused(f"the first input cannot re-embed the others: {reason}", hint="pass --trust-encoder")
    return encoder
