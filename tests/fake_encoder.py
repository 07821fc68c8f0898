"""An encoder without a model, for tests of everything around it: a vector is a function of the text's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backfill.encoders import ExportedEncoder

DIM = 16


class HashEmbedder:
    """Implements the Embedder protocol."""

    dim = DIM

    def identity(self) -> dict[str, Any]:
        return {"embedder": "hash", "dim": DIM}

    def encode(self, texts: Sequence[str], *, kind: str) -> np.ndarray[Any, Any]:
        rows = np.zeros((len(texts), DIM), np.float16)
        for i, text in enumerate(texts):
            if text.strip():
                seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
                row = np.random.default_rng(seed).normal(size=DIM)
                rows[i] = row / np.linalg.norm(row)
        return rows

    def truncated(self) -> int:
        return 0

    def cut(self, texts: Sequence[str], *, kind: str) -> list[bool]:
        return [False] * len(texts)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Puts the hash encoder in the place of MiniLM for runs in this process."""
    card = folder / "encoder.json"
    card.write_text("{}")
    info = {
        "sha256": hashlib.sha256(b"{}").hexdigest(),
        "dim": DIM,
        "pooling": "hash",
        "prompts": {},
        "probe_cosine_min": 0.999,
        "path": "encoder",
    }
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setattr("backfill.encoders.make_embedder", lambda config: HashEmbedder())
    monkeypatch.setattr("backfill.encoders.fingerprint_of_encoder", lambda config: "e" * 32)
    monkeypatch.setattr("backfill.encoders.encoder_parts", lambda config: {"embedder": "hash"})
    monkeypatch.setattr("backfill.encoders.export_encoder", lambda config: ExportedEncoder(info, (card,)))
    monkeypatch.setattr("backfill.trust.record_encoder", lambda sha256: None)
