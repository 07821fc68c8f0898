"""The run's encoder: the embedder that a config names, its fingerprint, and the export that goes into the bundle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill.config import EmbedderConfig

if TYPE_CHECKING:
    from backfill.embedders.base import Embedder


@dataclass(frozen=True, slots=True)
class ExportedEncoder:
    """What a bundle carries: `info` goes into its manifest, `files` into encoder/."""

    info: dict[str, Any]
    files: tuple[Path, ...]


_instead: dict[EmbedderConfig, Embedder] = {}


@contextmanager
def using_embedder(config: EmbedderConfig, embedder: Embedder) -> Iterator[None]:
    """Within it this process embeds by `embedder` where `config` is asked for: the model's export, or a cache of it."""
    _instead[config] = embedder
    try:
        yield
    finally:
        del _instead[config]


def make_embedder(config: EmbedderConfig) -> Embedder:
    """The embedder that a config names, loaded once a process. Raises ModelError where its model cannot be loaded."""
    return _instead[config] if config in _instead else _loaded(config)


@lru_cache(maxsize=2)
def _loaded(config: EmbedderConfig) -> Embedder:
    """On the CPU the model's export, as a query has it: three times as many texts a CPU second as padded batches."""
    from backfill.embedders.base import Prompts, usable_cores

    if not _on_gpu(config):
        from backfill.embedders.onnx import OnnxEmbedder

        return OnnxEmbedder(export_encoder(config).files[0].parent, threads=1, workers=usable_cores())
    from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder

    prompts = Prompts(query=config.query_prompt, passage=config.passage_prompt)
    return SentenceTransformerEmbedder(_directory(config), config.device, config.batch_size, prompts)


def _on_gpu(config: EmbedderConfig) -> bool:
    if config.device != "auto":
        return config.device == "cuda"
    import torch

    return bool(torch.cuda.is_available())


@lru_cache(maxsize=2)
def fingerprint_of_encoder(config: EmbedderConfig) -> str:
    """32 hex digits over everything that decides a vector, with the parts that get one; loads no model."""
    from backfill.ids import fingerprint

    return fingerprint(encoder_parts(config))


@lru_cache(maxsize=2)
def encoder_parts(config: EmbedderConfig) -> dict[str, Any]:
    """What the fingerprint of vectors is made of, by name."""
    from backfill.chunks import CHUNK_VERSION
    from backfill.embedders.base import EMBED_VERSION
    from backfill.embedders.sentence_transformer import source_digests

    prompts = [config.query_prompt, config.passage_prompt]
    files = source_digests(_directory(config))
    verbatim = {"verbatim": CHUNK_VERSION} if config.verbatim else {}
    return {"version": EMBED_VERSION, "files": files, "prompts": prompts, "parts": list(config.parts), **verbatim}


@lru_cache(maxsize=2)
def export_encoder(config: EmbedderConfig) -> ExportedEncoder:
    """The encoder as ONNX, from the cache where the same model was exported before."""
    from backfill.embedders.base import Prompts
    from backfill.embedders.export import export_onnx

    prompts = Prompts(query=config.query_prompt, passage=config.passage_prompt)
    files = export_onnx(_directory(config), prompts=prompts)
    card = files.card
    info = {
        "sha256": files.sha256,
        "dim": card.dim,
        "pooling": card.pooling,
        "prompts": card.prompts,
        "probe_cosine_min": card.probe_cosine_min,
        "path": "encoder",
    }
    return ExportedEncoder(info, files.paths)


def _directory(config: EmbedderConfig) -> Path:
    from backfill.weights import resolve_model

    found = Path(resolve_model(config.model))
    if found.is_dir():
        return found
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(config.model))
