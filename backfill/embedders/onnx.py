"""An exported model in onnxruntime: for queries on a machine without torch, and for all texts of a run on the CPU.

Reads the files of `card.py`, each checked against encoder.json before it is used. A text is run alone at its own
length, so its vector depends on nothing else, and nothing is padded. Deliberately absent: batches, whose last bits
differ with their shape and which gain less than their padding costs; and GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from backfill.embedders import card as cards
from backfill.embedders.base import MAX_READ_CHARS, distinct, usable_cores
from backfill.embedders.wordpiece import WordPieceTokenizer
from backfill.errors import BundleError
from backfill.text import clean_unicode

if TYPE_CHECKING:
    from backfill.embedders.base import Embedder

# A short query gains nothing from more.
_MAX_THREADS = 4


class Tokenizer(Protocol):
    """Texts to token ids."""

    def encode(self, text: str, max_tokens: int) -> tuple[list[int], bool]:
        """At most `max_tokens` ids with the model's special tokens among them, and whether tokens were left out."""
        ...


class OnnxEmbedder:
    """Encodes by the model of an encoder folder. Raises BundleError where a file is missing or not what it says."""

    def __init__(self, directory: Path, threads: int = 0, *, workers: int = 1) -> None:
        """`threads` bounds the threads of one encoding; 0 takes the cores that this process may use, at most 4.

        `workers` texts of a call are encoded at once; many texts want one thread each and a worker a core.
        """
        self._workers = workers
        self._card = cards.read_card(directory)
        self._tokenizer = _tokenizer(directory, self._card)
        self._session = _session(cards.checked_bytes(directory, self._card, cards.MODEL_NAME), threads)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if not {"input_ids", "attention_mask"} <= self._inputs <= {"input_ids", "attention_mask", "token_type_ids"}:
            raise BundleError(f"the encoder's model wants {', '.join(sorted(self._inputs))}")
        self._truncated = 0

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._card.dim

    def identity(self) -> dict[str, Any]:
        """That of the model it was exported from: vectors of both may be compared."""
        return self._card.source

    def truncated(self) -> int:
        """How many texts were cut since it was made."""
        return self._truncated

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float16]:
        """[N, D] float16 unit rows; a blank text gives a zero row."""
        unique, places = distinct(texts)
        rows = np.zeros((len(unique), self.dim), np.float16)
        spoken = [i for i, text in enumerate(unique) if text.strip()]
        prompt = self._card.prompts.get(kind, "")
        found = self._vectors([prompt + clean_unicode(unique[i]) for i in spoken])
        for i, (row, cut) in zip(spoken, found, strict=True):
            rows[i] = row
            self._truncated += cut
        return rows[np.array(places, np.int64)]

    def _vectors(self, texts: list[str]) -> Iterable[tuple[npt.NDArray[np.float32], bool]]:
        if self._workers == 1 or len(texts) < 2:
            return map(self._vector, texts)
        # Not at the top: a query does without it.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(self._vector, texts))

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """See Embedder."""
        prompt = self._card.prompts.get(kind, "")
        return [
            len(prompt + text) > MAX_READ_CHARS
            or self._tokenizer.encode(prompt + clean_unicode(text), self._card.max_tokens)[1]
            for text in texts
        ]

    def _vector(self, text: str) -> tuple[npt.NDArray[np.float32], bool]:
        """The vector [D] of a text, and whether the text was cut."""
        ids, cut = self._tokenizer.encode(text[:MAX_READ_CHARS], self._card.max_tokens)
        tokens = np.array([ids], np.int64)  # [1, T]
        feed = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        output = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        if output.shape != (1, self.dim):
            raise BundleError(f"the encoder's model gives {output.shape}, not (1, {self.dim})")
        return output[0], cut or len(text) > MAX_READ_CHARS


def probe_cosine(encoder: Embedder, directory: Path) -> float:
    """Cosine between the encoder's vector of the probe text and the recorded one; 0 where the sizes differ.

    A wrong encoder of the same dimension answers without any error; this is what tells. Raises BundleError.
    """
    probe = cards.read_probe(directory)
    try:
        recorded = probe.row().astype(np.float64)
    except ValueError as error:
        raise BundleError(f"the encoder's {cards.PROBE_NAME} holds no vector") from error
    vector = encoder.encode([probe.text], kind="query")[0].astype(np.float64)
    norm = float(np.linalg.norm(vector) * np.linalg.norm(recorded)) if vector.shape == recorded.shape else 0.0
    return float(vector @ recorded) / norm if norm > 0 else 0.0


class _FastTokenizer:
    """Any tokenizer of the package `tokenizers`, from its JSON. Raises BundleError."""

    def __init__(self, state: bytes) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise BundleError(
                "this encoder's tokenizer is not WordPiece and needs the package `tokenizers`",
                hint="pip install tokenizers, or search by BM25",
            ) from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(state)
        except Exception as error:  # the package's exceptions share no base class below Exception
            raise BundleError(f"the encoder's {cards.TOKENIZER_NAME} cannot be read: {str(error)[:200]}") from error
        self._tokenizer.no_padding()
        self._limit = 0

    def encode(self, text: str, max_tokens: int) -> tuple[list[int], bool]:
        if max_tokens != self._limit:
            self._tokenizer.enable_truncation(max_tokens)
            self._limit = max_tokens
        found = self._tokenizer.encode(text)
        return found.ids, bool(found.overflowing)


def _tokenizer(directory: Path, card: cards.EncoderCard) -> Tokenizer:
    if card.tokenizer == cards.FAST_TOKENIZER:
        return _FastTokenizer(cards.checked_bytes(directory, card, cards.TOKENIZER_NAME))
    if card.tokenizer != cards.WORDPIECE:
        raise BundleError(
            f"this version does not know the encoder's tokenizer {card.tokenizer[:40]!r}",
            hint="install a newer version, or search by BM25",
        )
    try:
        lines = cards.checked_bytes(directory, card, cards.VOCABULARY_NAME).decode().split("\n")
        vocabulary = {token.removesuffix("\r"): number for number, token in enumerate(lines)}
        return WordPieceTokenizer(vocabulary, lowercase=card.lowercase, special=card.special_tokens)
    except (UnicodeDecodeError, KeyError) as error:
        raise BundleError(f"the encoder's {cards.VOCABULARY_NAME} is no WordPiece vocabulary ({error})") from error


def _session(model: bytes, threads: int) -> Any:
    import onnxruntime as ort

    # Tensors outside the file are named by an entry "location"; nothing else in a model of ours has that word.
    if b"location" in model:
        raise BundleError("the encoder's model refers to external data, which is never loaded")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or min(_MAX_THREADS, usable_cores())
    options.inter_op_num_threads = 1
    # Waiting threads sleep: a query tool must not burn a laptop's cores between two queries.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exceptions share no base class below Exception
        raise BundleError(f"onnxruntime cannot load the encoder's model: {str(error)[:200]}") from error
