"""Exports a sentence encoder as ONNX with pooling and normalisation inside, for machines without torch.

Writes the files of `card.py`; equal models give equal bytes. An export is kept in the cache by the digest of its
source, so that a second run copies it. Deliberately absent: quantisation (dynamic int8 costs 6% of cosine and gains
no time on AVX2), and models above 2 GiB, whose tensors ONNX keeps in files beside.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.embedders import card as cards
from backfill.embedders.base import Prompts
from backfill.embedders.onnx import OnnxEmbedder
from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder, source_digests
from backfill.errors import BundleError, ModelError
from backfill.ids import canonical_json, fingerprint
from backfill.weights import cache_dir

# Raised by hand when the same model gives other files.
EXPORT_VERSION = 2
OPSET = 17
PROBE_TEXT = "Retry with exponential backoff fixed the flaky upload in src/client.py after 3 attempts."
PROBE_COSINE_MIN = 0.999
EXPORT_COSINE_MIN = 0.9999
_CHECK_TEXTS = (
    "ok",
    "Wie stelle ich die Größe des Verbindungspools ein?",
    "数据库连接超时，重试三次后成功",
    "TypeError: cannot read properties of undefined (reading 'map') at src/app.ts:42:17 " * 30,
)


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """An encoder folder: its files, the SHA-256 (hex) of encoder.json, which vouches for the rest, and the card."""

    directory: Path
    paths: tuple[Path, ...]
    sha256: str
    card: cards.EncoderCard


def export_onnx(
    model_dir: Path, out_dir: Path | None = None, prompts: Prompts | None = None, *, cache_root: Path | None = None
) -> EncoderFiles:
    """Exports the model into the cache unless an earlier export of it lies there, and copies that to `out_dir`.

    Without `out_dir` the cache's own files are given. The cache lies under `cache_root`, or that of
    `backfill.weights`. Raises ModelError for a model that cannot be exported, or whose export does not agree with it.
    """
    wanted = prompts or Prompts()
    key = fingerprint({"export": EXPORT_VERSION, "prompts": asdict(wanted), **source_digests(model_dir)})
    kept = (cache_root or cache_dir()) / "encoders" / key
    if not _is_whole(kept):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            attempt = Path(scratch) / "encoder"
            attempt.mkdir()
            _export(SentenceTransformerEmbedder(model_dir, "cpu", prompts=wanted), attempt)
            _publish(attempt, kept)
    if out_dir is None:
        return read_encoder(kept)
    out_dir.mkdir(parents=True, exist_ok=True)
    for path in sorted(kept.iterdir()):
        shutil.copyfile(path, out_dir / path.name)
    return read_encoder(out_dir)


def read_encoder(directory: Path) -> EncoderFiles:
    """The encoder of a folder, with every checksum compared. Raises BundleError."""
    card = cards.read_card(directory)
    for name in card.files:
        cards.checked_bytes(directory, card, name)
    cards.read_probe(directory)
    paths = tuple(directory / name for name in sorted({*card.files, cards.CARD_NAME, cards.PROBE_NAME}))
    sha256 = hashlib.sha256((directory / cards.CARD_NAME).read_bytes()).hexdigest()
    return EncoderFiles(directory, paths, sha256, card)


def _export(embedder: SentenceTransformerEmbedder, out: Path) -> None:
    tokenizer = _write_tokenizer(embedder.model.tokenizer, out)
    # Before the export, which changes the kind of attention: the probe is what the embedder gives in a run.
    expected = embedder.encode([PROBE_TEXT, *_CHECK_TEXTS], kind="query")
    cards.write_json(out / cards.PROBE_NAME, cards.Probe(PROBE_TEXT, expected[0].astype("<f2").tobytes().hex()))
    _write_model(embedder, out / cards.MODEL_NAME)
    # Not the probe: its last bits depend on the processor, and encoders of two machines should be one encoder.
    named = (cards.MODEL_NAME, tokenizer.file)
    files = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in named}
    identity = embedder.identity()
    card = cards.EncoderCard(
        format=cards.CARD_FORMAT,
        dim=embedder.dim,
        max_tokens=embedder.max_tokens,
        pooling=identity["pooling"],
        prompts=asdict(embedder.prompts),
        tokenizer=tokenizer.kind,
        lowercase=tokenizer.lowercase,
        special_tokens=tokenizer.special,
        probe_cosine_min=PROBE_COSINE_MIN,
        files=files,
        source=identity,
    )
    cards.write_json(out / cards.CARD_NAME, card)
    _check_agreement(OnnxEmbedder(out), expected)


def _check_agreement(exported: OnnxEmbedder, expected: npt.NDArray[np.float16]) -> None:
    """Tracing records what one example did; texts of other lengths and scripts show that it holds for all."""
    rows = exported.encode([PROBE_TEXT, *_CHECK_TEXTS], kind="query").astype(np.float64)
    wanted = expected.astype(np.float64)
    cosines = (rows * wanted).sum(axis=1) / (np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted, axis=1))
    if not float(cosines.min()) >= EXPORT_COSINE_MIN:
        raise ModelError(f"the exported model does not agree with its source (cosine {cosines.min():.5f})")


def _write_model(embedder: SentenceTransformerEmbedder, path: Path) -> None:
    import onnx
    import torch

    names = [n for n in ("input_ids", "attention_mask", "token_type_ids") if n in _input_names(embedder)]

    class Sentence(torch.nn.Module):  # type: ignore[misc]
        """Ids and masks [B, T] int64 to unit rows [B, D] float32."""

        def __init__(self) -> None:
            super().__init__()
            self.model = embedder.model

        def forward(self, *inputs: Any) -> Any:
            """Runs all modules, then normalises as the embedder does."""
            pooled = self.model(dict(zip(names, inputs, strict=True)))["sentence_embedding"]
            return torch.nn.functional.normalize(pooled, dim=1)

    _use_plain_attention(embedder.model)
    example = torch.ones((2, 8), dtype=torch.int64)
    example_mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    inputs = tuple(example_mask if name == "attention_mask" else example for name in names)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # Warnings that tracing may not hold for other inputs; `_check_agreement` finds out.
        warnings.simplefilter("ignore")
        raw = Path(scratch) / cards.MODEL_NAME
        torch.onnx.export(
            Sentence().eval(),
            inputs,
            str(raw),
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=["sentence_embedding"],
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names} | {"sentence_embedding": {0: "batch"}},
        )
        model = onnx.load(str(raw))
    _make_repeatable(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _make_repeatable(model: Any) -> None:
    """Removes what names the exporter, its version and the places in its source, and nothing that computes."""
    model.producer_name, model.producer_version = "backfill", str(EXPORT_VERSION)
    model.doc_string = model.graph.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]


def _use_plain_attention(model: Any) -> None:
    # The fused kernels trace into mask shortcuts that hold for the example's mask only.
    model[0].auto_model.set_attn_implementation("eager")


def _input_names(embedder: SentenceTransformerEmbedder) -> list[str]:
    names: list[str] = embedder.model.tokenizer.model_input_names
    return names


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    """What the card says of the tokenizer, and the name of its file."""

    kind: str
    file: str
    lowercase: bool = False
    special: list[str] = field(default_factory=list)


def _write_tokenizer(tokenizer: Any, out: Path) -> _Tokenizer:
    """Writes BERT's WordPiece as its vocabulary, which is read without a package, and any other as its JSON."""
    plain = _wordpiece(tokenizer)
    if plain is not None:
        vocabulary, lowercase, special = plain
        (out / cards.VOCABULARY_NAME).write_bytes("\n".join(vocabulary).encode())
        return _Tokenizer(cards.WORDPIECE, cards.VOCABULARY_NAME, lowercase, special)
    state = msgspec.json.decode(tokenizer.backend_tokenizer.to_str())
    # Both are set by whoever encodes, and differ with what was encoded before.
    state["truncation"] = state["padding"] = None
    (out / cards.TOKENIZER_NAME).write_bytes(canonical_json(state))
    return _Tokenizer(cards.FAST_TOKENIZER, cards.TOKENIZER_NAME)


def _wordpiece(tokenizer: Any) -> tuple[list[str], bool, list[str]] | None:
    """Tokens in the order of their ids, whether text is lower-cased, and the special tokens; None for any other."""
    state = msgspec.json.decode(tokenizer.backend_tokenizer.to_str())
    normalizer = state.get("normalizer") or {}
    plain = (
        state["model"].get("type") == "WordPiece"
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("strip_accents") in (None, normalizer.get("lowercase"))
        and normalizer.get("clean_text")
        and normalizer.get("handle_chinese_chars")
        and (state.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and state["model"].get("max_input_chars_per_word") == 100
    )
    by_id = {number: token for token, number in tokenizer.get_vocab().items()}
    if not plain or sorted(by_id) != list(range(len(by_id))):
        return None
    special = [entry["content"] for entry in state.get("added_tokens", [])]
    return [by_id[i] for i in range(len(by_id))], bool(normalizer["lowercase"]), special


def _is_whole(directory: Path) -> bool:
    try:
        read_encoder(directory)
    except BundleError:
        return False
    return True


def _publish(attempt: Path, kept: Path) -> None:
    """Moves the finished export into place; another process may be first, and a damaged one is replaced."""
    if kept.exists() and not _is_whole(kept):
        shutil.rmtree(kept)
    try:
        attempt.rename(kept)
    except OSError:
        if not _is_whole(kept):
            raise
