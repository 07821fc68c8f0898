"""The Embedder protocol, run over every implementation on one tiny model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_encoder

from backfill.embed import embed_texts, encoder_fingerprint
from backfill.embedders.base import MAX_READ_CHARS, Embedder

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

Make = Callable[[], Embedder]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder.build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from backfill.embedders.export import export_onnx

    root = tmp_path_factory.mktemp("exported")
    return export_onnx(model, root / "encoder", cache_root=root / "cache").directory


@pytest.fixture(params=["sentence_transformer", "onnx", "onnx, two at once"])
def make(request: pytest.FixtureRequest, model: Path, exported: Path) -> Make:
    if request.param != "sentence_transformer":
        from backfill.embedders.onnx import OnnxEmbedder

        return lambda: OnnxEmbedder(exported, threads=1, workers=1 if request.param == "onnx" else 2)
    from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder

    return lambda: SentenceTransformerEmbedder(model, "cpu", batch_size=4)


def texts(n: int) -> list[str]:
    rng = random.Random(n)
    return [" ".join(rng.choices(tiny_encoder.WORDS, k=rng.randrange(1, 60))) + f" {i}" for i in range(n)]


def test_rows_are_float16_unit_vectors_in_order(make: Make) -> None:
    rows = make().encode(["fix the cache", "retry", "fix the cache"], kind="passage")
    assert (rows.dtype, rows.shape) == (np.float16, (3, 32))
    np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float32), axis=1), 1, atol=2e-3)
    assert rows[0].tobytes() == rows[2].tobytes() != rows[1].tobytes()


def test_a_blank_text_gives_a_zero_row(make: Make) -> None:
    rows = make().encode(["", " \n\t", "x"], kind="query")
    assert not rows[:2].any()
    assert rows[2].any()
    assert make().encode([], kind="query").shape == (0, 32)


def test_order_neighbours_and_sharding_change_no_byte(make: Make) -> None:
    embedder, all_texts = make(), texts(50)
    whole = embedder.encode(all_texts, kind="passage")
    order = random.Random(1).sample(range(50), 50)
    assert embedder.encode([all_texts[i] for i in order], kind="passage").tobytes() == whole[order].tobytes()
    shards = [make().encode(all_texts[start : start + 7], kind="passage") for start in range(0, 50, 7)]
    assert np.concatenate(shards).tobytes() == whole.tobytes()


def test_a_batch_of_full_rows_gives_what_each_gives_alone(make: Make) -> None:
    full = [f"{' '.join([word] * 61)} {word}" for word in ("the", "cache", "retry", "file", "error", "fix")]
    together = make().encode(full, kind="passage")
    for i, text in enumerate(full):
        assert make().encode([text, "fix"], kind="passage")[0].tobytes() == together[i].tobytes()


def test_cut_texts_are_counted_once_a_call(make: Make) -> None:
    embedder = make()
    fits = " ".join(["fix"] * (tiny_encoder.MAX_TOKENS - 2))
    embedder.encode([fits, "fix"], kind="passage")
    assert embedder.truncated() == 0
    embedder.encode([f"{fits} fix", f"{fits} fix", " " * MAX_READ_CHARS + "fix"], kind="passage")
    assert embedder.truncated() == 2


def test_hostile_text_is_encoded(make: Make) -> None:
    hostile = ["\ud800 fix", "\0\x07", "[SEP] [MASK] fix", "e" * 1_000_000, "\u202e fix \ufeff", "<|im_end|>"]
    rows = make().encode(hostile, kind="passage").astype(np.float32)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=2e-3)


def test_identity_names_what_decides_a_vector_and_nothing_else(make: Make) -> None:
    embedder = make()
    identity = embedder.identity()
    assert set(identity) == {"embed_version", "weights", "tokenizer", "pooling", "prompts", "dim", "max_tokens"}
    assert (identity["dim"], identity["max_tokens"], identity["pooling"]) == (32, tiny_encoder.MAX_TOKENS, "mean")
    assert encoder_fingerprint(embedder) == encoder_fingerprint(make())


def test_both_implementations_are_one_encoder(model: Path, exported: Path) -> None:
    from backfill.embedders.onnx import OnnxEmbedder
    from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder

    heavy, light = SentenceTransformerEmbedder(model, "cpu"), OnnxEmbedder(exported)
    assert encoder_fingerprint(heavy) == encoder_fingerprint(light)
    one, two = (embedder.encode(texts(40), kind="query").astype(np.float32) for embedder in (heavy, light))
    assert ((one * two).sum(axis=1) > 0.999).all()


def test_embed_texts_encodes_each_distinct_text_once(make: Make) -> None:
    seen: list[str] = []

    class Counting:
        dim = 32

        def encode(self, texts: list[str], *, kind: str) -> np.ndarray:
            seen.extend(texts)
            return make().encode(texts, kind="query")

    rows = embed_texts(Counting(), ["fix", "", "retry", "fix"])  # type: ignore[arg-type]
    assert seen == ["fix", "", "retry"]
    assert rows[0].tobytes() == rows[3].tobytes()
    assert embed_texts(Counting(), []).shape == (0, 32)  # type: ignore[arg-type]
