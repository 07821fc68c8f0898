"""Vectors on disk by (encoder fingerprint, text hash), so that a text is encoded once, whatever asks for it.

One append-only file an encoder: records of 16 bytes (BLAKE2b-128 of the text) and D little-endian float16. A torn last
record is ignored and overwritten; a text that two processes encode at once stands there twice, with equal vectors.
Deliberately absent: eviction; 100,000 vectors of 384 numbers are 78 MB, and the folder may be deleted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from backfill.embed import embed_texts, encoder_fingerprint
from backfill.embedders.base import distinct
from backfill.union import text_hash

if TYPE_CHECKING:
    from backfill.embedders.base import Embedder

F16 = npt.NDArray[np.float16]
_KEY_BYTES = 16
# What is encoded between two writes: an interrupted run loses a minute at most.
_CHUNK_TEXTS = 256


def cache_home() -> Path:
    """The user's cache folder for evaluation."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backfill" / "evaluation"


class CachedEmbedder:
    """An Embedder that remembers its vectors on disk. `encoded` counts the texts that the model had to read."""

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        self._embedder = embedder
        self._folder = folder or cache_home()
        self.encoded = 0
        self._kept: dict[str, dict[bytes, bytes]] = {}

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._embedder.dim

    def identity(self) -> dict[str, Any]:
        """That of the embedder behind it."""
        return self._embedder.identity()

    def truncated(self) -> int:
        """How many texts the embedder cut; cached ones are not counted again."""
        return self._embedder.truncated()

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """See Embedder."""
        return self._embedder.cut(texts, kind=kind)

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> F16:
        """[N, D] float16 unit rows in the order of `texts`; a blank text gives a zero row."""
        unique, places = distinct(texts)
        keys = [_key(text) for text in unique]
        kept = self._records(kind)
        missing = [i for i, key in enumerate(keys) if key not in kept]
        for start in range(0, len(missing), _CHUNK_TEXTS):
            chunk = missing[start : start + _CHUNK_TEXTS]
            rows = embed_texts(self._embedder, [unique[i] for i in chunk], kind=kind)
            self._append(kind, [keys[i] for i in chunk], rows)
            self.encoded += len(chunk)
        if not unique:
            return np.zeros((0, self.dim), np.float16)
        matrix = np.frombuffer(b"".join(kept[key] for key in keys), "<f2").reshape(len(keys), self.dim)
        return matrix[np.array(places, np.int64)]

    def put(self, texts: Sequence[str], rows: F16, *, kind: Literal["query", "passage"]) -> int:
        """Remembers vectors [N, D] that this encoder gave elsewhere, a bundle's say; returns how many were new."""
        kept = self._records(kind)
        fresh = {key: i for i, text in enumerate(texts) if text.strip() and (key := _key(text)) not in kept}
        self._append(kind, list(fresh), rows[list(fresh.values())])
        return len(fresh)

    def _path(self, kind: str) -> Path:
        return self._folder / f"{encoder_fingerprint(self._embedder)}-{kind}.vectors"

    def _records(self, kind: str) -> dict[bytes, bytes]:
        if kind not in self._kept:
            path, size = self._path(kind), _KEY_BYTES + 2 * self.dim
            data = path.read_bytes() if path.is_file() else b""
            whole = len(data) // size * size
            self._kept[kind] = {
                data[at : at + _KEY_BYTES]: data[at + _KEY_BYTES : at + size] for at in range(0, whole, size)
            }
        return self._kept[kind]

    def _append(self, kind: str, keys: Sequence[bytes], rows: F16) -> None:
        path, size = self._path(kind), _KEY_BYTES + 2 * self.dim
        path.parent.mkdir(parents=True, exist_ok=True)
        records = {key: row.astype("<f2", copy=False).tobytes() for key, row in zip(keys, rows, strict=True)}
        with path.open("ab") as file:
            torn = file.tell() % size
            if torn:
                file.truncate(file.tell() - torn)
            file.write(b"".join(key + data for key, data in records.items()))
        self._kept[kind].update(records)


def _key(text: str) -> bytes:
    return text_hash(text.encode("utf-8", "replace").decode())
