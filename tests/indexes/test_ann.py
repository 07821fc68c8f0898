"""Approximate indexes: the choice, shards against built at once, recall, and files that fit or do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backfill import ann_files
from backfill.bundle import Bundle
from backfill.config import IndexConfig
from backfill.errors import ConfigError
from backfill.indexes import ann, gpu_kmeans
from backfill.lifecycle import garbage
from backfill.vector_space import VectorSpace
from backfill.verify import verify_bundle
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, config, go

N, DIM = 6_000, 32


@pytest.fixture(scope="module")
def files() -> list[Any]:
    dice = np.random.default_rng(5)
    rows = dice.normal(size=(60, DIM))[dice.integers(0, 60, N)] + 0.7 * dice.normal(size=(N, DIM))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    return [rows[:2500], rows[2500:2501], rows[2501:]]


@pytest.mark.parametrize(
    ("n_rows", "memory_gb", "kind"),
    [(100_000, 0.001, "exact"), (100_001, 4, "hnsw"), (1_000_000, 4, "hnsw"), (50_000_000, 16, "ivf")],
)
def test_the_choice_follows_size_and_memory_and_says_why(n_rows: int, memory_gb: float, kind: str) -> None:
    choice = ann.choose(n_rows, 384, memory_bytes=int(memory_gb * 1e9))
    assert choice.kind == kind
    assert f"{n_rows:,} rows" in choice.reason
    assert (choice.factory == "") == (kind == "exact")


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_recall_is_measured_and_reached(files: list[Any], kind: Any) -> None:
    choice = ann.choose(N, DIM, memory_bytes=1 << 30, wanted=kind)
    index = ann.build(choice, files)
    effort, recall = ann.gate(index, choice, files, 0.95)
    assert recall >= 0.95
    assert ann.gate(index, choice, files, 2.0)[0] > effort, "more is tried where it is not reached"


def test_a_poor_index_has_a_poor_recall(files: list[Any]) -> None:
    choice = ann.choose(N, DIM, memory_bytes=1 << 30, wanted="hnsw")
    strangers = [np.roll(rows, 7, axis=0) for rows in files]
    assert ann.gate(ann.build(choice, strangers), choice, files, 0.95)[1] < 0.5


def test_shards_merged_equal_one_built_at_once(files: list[Any]) -> None:
    import faiss

    choice = ann.choose(N, DIM, memory_bytes=1 << 30, wanted="ivf")
    trained = ann.train(choice, files)
    shards = [
        ann.add_to_clone(trained, rows, first) for rows, first in reversed([*zip(files, (0, 2500, 2501), strict=True)])
    ]
    whole = ann.merged(shards[::-1])
    once = ann.add_to_clone(trained, np.concatenate(files), 0)
    assert faiss.serialize_index(whole).tobytes() == faiss.serialize_index(once).tobytes()
    assert faiss.serialize_index(ann.build(choice, files)).tobytes() == faiss.serialize_index(once).tobytes()


def test_a_mask_lets_no_other_row_through(files: list[Any]) -> None:
    mask = np.arange(N) % 3 == 0
    for kind in ("hnsw", "ivf"):
        index = ann.build(ann.choose(N, DIM, memory_bytes=1 << 30, wanted=kind), files)
        found = ann.search(index, files[0][4].astype(np.float32), 50, 64, mask)
        assert len(found) == 50
        assert mask[found].all()


def test_a_gpu_that_is_not_there_is_an_error(files: list[Any]) -> None:
    with pytest.raises(ConfigError, match="neither FAISS nor torch sees one"):
        ann.build(ann.choose(N, DIM, memory_bytes=1, wanted="ivf"), files, "gpu")


def test_centres_by_torch_serve_as_those_of_faiss(files: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    choice = ann.choose(N, DIM, memory_bytes=1 << 30, wanted="ivf")
    own = gpu_kmeans.centres
    monkeypatch.setattr(gpu_kmeans, "is_there", lambda: True)
    monkeypatch.setattr(gpu_kmeans, "centres", lambda rows, k: own(rows, k, "cpu"))
    index = ann.build(choice, files, "gpu")
    assert index.ntotal == N
    assert ann.gate(index, choice, files, 0.95)[1] >= 0.95


def test_centres_find_planted_groups_and_none_stays_empty() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    dice = np.random.default_rng(3)
    groups = np.linalg.qr(dice.normal(size=(16, 16)))[0][:12].astype(np.float32)
    rows = np.repeat(groups, 50, axis=0) + 0.05 * dice.normal(size=(600, 16)).astype(np.float32)
    rows = np.concatenate([rows, np.repeat(groups[:1], 400, axis=0)])  # equal starts: some centres begin empty
    found = gpu_kmeans.centres(rows, 20, "cpu")
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert (groups @ found.T).max(axis=1).min() > 0.95
    assert np.array_equal(found, gpu_kmeans.centres(rows, 20, "cpu"))
    with pytest.raises(ValueError, match="21 centres of 20 rows"):
        gpu_kmeans.centres(rows[:20], 21, "cpu")


def test_a_space_asks_its_index_and_ranks_by_the_rows(files: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.vector_space.SHORTLIST_ABOVE_ROWS", 1_000)
    choice = ann.choose(N, DIM, memory_bytes=1 << 30, wanted="hnsw")
    units = [np.arange(2500), np.array([2500]), np.arange(2501, N)]
    index = ann_files.OpenAnn(ann.build(choice, files), 256)
    query = files[2][9].astype(np.float32)
    every = np.ones(N, np.bool_)
    near = VectorSpace(files, units, N, index).candidates(query, every, 20)
    exact = VectorSpace(files, units, N).candidates(query, every, 20)
    assert len(np.intersect1d(near, exact)) >= 19


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None) -> Path:
    fake_encoder.install(monkeypatch, tmp_path)
    go(config(SAMPLES / "openai"), tmp_path / "run")
    return tmp_path / "run" / "bundle"


def test_a_small_bundle_gets_none_and_says_why(bundle: Path) -> None:
    made = ann_files.refresh(bundle, IndexConfig())
    assert {card.kind for card in made} == {"exact"}
    assert all("every one is looked at" in card.reason for card in made)
    assert not (bundle / "ann").exists()
    assert verify_bundle(bundle).ann_recall10 is None


def test_an_index_is_kept_while_it_fits_and_never_taken_from_a_stranger(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = IndexConfig(ann="hnsw", ann_recall=0.1)
    made = ann_files.refresh(bundle, wanted)
    assert made[0].file
    opened = Bundle.open(bundle)
    roles = made[0].roles.split(",")
    assert ann_files.open_ann(opened, roles) is not None
    assert verify_bundle(bundle).errors == []
    assert verify_bundle(bundle).ann_recall10 == min(card.recall10 for card in made)
    assert garbage(bundle) == []
    stamps = {p: p.stat().st_mtime_ns for p in (bundle / "ann").iterdir()}
    assert ann_files.refresh(bundle, wanted) == made
    assert {p: p.stat().st_mtime_ns for p in (bundle / "ann").iterdir()} == stamps
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        assert ann_files.open_ann(opened, roles) is None
    file = bundle / "ann" / made[0].file
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert ann_files.open_ann(opened, roles) is None
    assert [(e.file, e.kind) for e in verify_bundle(bundle).errors] == [(f"ann/{made[0].file}", "checksum")]


def test_an_index_of_another_state_is_passed_over_and_dropped(bundle: Path) -> None:
    made = ann_files.refresh(bundle, IndexConfig(ann="hnsw", ann_recall=0.1))
    for path in (bundle / "ann").glob("*.json"):
        card = json.loads(path.read_bytes())
        path.write_text(json.dumps({**card, "files": [*card["files"][::-1], "0" * 64]}))
    assert ann_files.open_ann(Bundle.open(bundle), made[0].roles.split(",")) is None
    ann_files.refresh(bundle, IndexConfig())
    assert list((bundle / "ann").iterdir()) == []


def test_one_that_misses_the_recall_is_not_kept(bundle: Path) -> None:
    made = ann_files.refresh(bundle, IndexConfig(ann="hnsw", ann_recall=1.5))
    assert all("not kept: recall@10" in card.reason for card in made)
    assert not (bundle / "ann").exists()
