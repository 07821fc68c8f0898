"""Texts are encoded once: across shards, runs, and the bundle that new files are added to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backfill.bundle import Bundle
from backfill.config import Config, EmbedderConfig
from backfill.embedders.remembering import RememberingEmbedder
from backfill.known_vectors import BundleVectors, VectorCache
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, config, go

TEXTS = ["retry the upload", "数据库连接超时", "", "retry the upload", "a" * 300]


class Counting(fake_encoder.HashEmbedder):
    """Cuts texts of more than 100 characters and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._cut = 0

    def encode(self, texts: Sequence[str], *, kind: str) -> np.ndarray[Any, Any]:
        self.asked += texts
        self._cut += sum(self.cut(texts, kind=kind))
        return super().encode(texts, kind=kind)

    def truncated(self) -> int:
        return self._cut

    def cut(self, texts: Sequence[str], *, kind: str) -> list[bool]:
        return [len(text) > 100 for text in texts]


def test_a_second_process_computes_nothing_and_counts_the_same(tmp_path: Path) -> None:
    results = []
    for _ in range(2):
        inner = Counting()
        embedder = RememberingEmbedder(inner, cache=VectorCache(tmp_path, inner.dim))
        rows = embedder.encode(TEXTS, kind="passage")
        results.append((rows.tobytes(), embedder.truncated()))
        assert rows.tobytes() == Counting().encode(TEXTS, kind="passage").tobytes()
        last = (sorted(inner.asked), embedder.encoded)
    assert results[0] == results[1]
    assert results[0][1] == 1
    assert last == ([], 0)


def test_two_processes_find_what_the_other_added(tmp_path: Path) -> None:
    one, two = VectorCache(tmp_path, 4), VectorCache(tmp_path, 4)
    rows = np.eye(4, dtype=np.float16)
    one.add(["a", "b"], rows[:2], [False, True])
    two.add(["c"], rows[2:3], [False])
    for cache in (one, two):
        found = cache.find(["a", "b", "c", "d"])
        assert {text: (known.row.tolist(), known.cut) for text, known in found.items()} == {
            "a": (rows[0].tolist(), False),
            "b": (rows[1].tolist(), True),
            "c": (rows[2].tolist(), False),
        }


@pytest.mark.parametrize("at", range(0, 48, 5))
def test_a_damaged_record_is_none(tmp_path: Path, at: int) -> None:
    cache = VectorCache(tmp_path, 8)
    cache.add(["a", "b"], np.eye(8, dtype=np.float16)[:2], [False, False])
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    size = len(data) // 2
    data[at % size] ^= 1
    file.write_bytes(bytes(data) + b"\x07" * 11)
    found = VectorCache(tmp_path, 8).find(["a", "b"])
    assert "b" in found
    # Bytes 17 to 19 hold nothing.
    assert ("a" in found) == (at in range(17, 20))


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inner = Counting()
    embedder = RememberingEmbedder(inner, cache=VectorCache(tmp_path / "file" / "below", inner.dim))
    assert embedder.encode(TEXTS, kind="passage").tobytes() == inner.encode(TEXTS, kind="passage").tobytes()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None) -> Path:
    fake_encoder.install(monkeypatch, tmp_path)
    go(config(SAMPLES / "openai"), tmp_path / "run")
    return tmp_path / "run"


def test_the_vectors_of_a_bundle_are_found_by_their_whole_text(made: Path) -> None:
    bundle = Bundle.open(made / "bundle")
    texts = [t for s in bundle.segments for t in s.table("objects").read(["exchange_core"])["exchange_core"]]
    texts += [t for s in bundle.segments if s.has("claims") for t in s.table("claims").read(["text"])["text"]]
    found = BundleVectors(bundle).find([*texts, "nobody said this"])
    assert found.keys() == {text for text in texts if text}
    wanted = fake_encoder.HashEmbedder().encode(list(found), kind="passage")
    assert np.array([known.row for known in found.values()]).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_computes_no_text_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path, shared: bool
) -> None:
    from dataclasses import replace

    monkeypatch.setenv("BACKFILL_VECTOR_CACHE", str(tmp_path / "cache"))
    inner = Counting()
    monkeypatch.setattr("backfill.encoders.make_embedder", lambda config: inner)
    base: Config = config(SAMPLES / "openai")
    settings = replace(base, embedder=EmbedderConfig(cache=shared))
    asked = []
    for name in ("one", "two"):
        go(settings, tmp_path / name)
        assert len(inner.asked) == len(set(inner.asked))
        asked.append(len(inner.asked))
        inner.asked.clear()
    assert asked[0]
    assert asked[1] == (0 if shared else asked[0])
