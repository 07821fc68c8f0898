"""One BM25 index over all months: equal to theirs to the bit, kept while it fits, never a stranger's."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from backfill import joined_words, signals
from backfill.ann_files import refresh
from backfill.arrays import open_arrays, write_arrays
from backfill.bundle import Bundle
from backfill.config import IndexConfig
from backfill.errors import BundleError
from backfill.growth import forget
from backfill.indexes.bm25 import Bm25
from backfill.indexes.field import FieldIndex, build_field
from backfill.indexes.field_blocks import join_fields
from backfill.lifecycle import collect, garbage
from backfill.prune import prune
from backfill.verify import verify_bundle
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, config, go

TERMS = ["retri", "error", "the", "file", "absent-term", "test", "a", "run", "run"]


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None) -> Path:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setattr(joined_words, "FROM_DOCUMENTS", 2)
    go(config(SAMPLES / "openai"), tmp_path / "run")
    return tmp_path / "run" / "bundle"


def joined(bundle: Path) -> list[Path]:
    return sorted((bundle / "ann").glob("bm25-*.arrays"))


def totals(bundle: Path) -> list[bytes]:
    opened = Bundle.open(bundle)
    return [signals.bm25(opened, field, [term]).tobytes() for field in ("verbatim", "files") for term in TERMS]


@pytest.mark.parametrize("seed", range(4))
def test_joined_fields_are_the_field_over_all_texts(tmp_path: Path, seed: int) -> None:
    dice = np.random.default_rng(seed)
    texts = [" ".join(f"w{n}" for n in dice.integers(0, 60, size=dice.integers(0, 30))) for _ in range(50)]
    cuts = [0, *sorted(dice.integers(0, 51, size=3).tolist()), 50]
    join_fields([build_field(texts[a:b]) for a, b in pairwise(cuts)], tmp_path / "joined.arrays")
    whole, found = build_field(texts), open_arrays(tmp_path / "joined.arrays")
    assert {name: array.tolist() for name, array in found.items()} == {n: a.tolist() for n, a in whole.items()}
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in whole.items()}


def test_a_run_joins_the_fields_of_its_search_and_nothing_found_changes(bundle: Path) -> None:
    assert len(Bundle.open(bundle).segments) > 1
    assert [path.name.rsplit("-", 1)[0] for path in joined(bundle)] == ["bm25-files", "bm25-verbatim"]
    opened = Bundle.open(bundle)
    assert joined_words.open_joined(opened, "verbatim") is not None
    assert joined_words.open_joined(opened, "core") is None
    hits = [hit.to_tree() for hit in opened.search("retry the failing test").hits]
    assert hits
    with_one = totals(bundle)
    verdict = verify_bundle(bundle)
    assert (verdict.errors, verdict.ann_recall10) == ([], None)
    assert garbage(bundle) == []
    for path in (bundle / "ann").iterdir():
        path.unlink()
    assert totals(bundle) == with_one
    assert [hit.to_tree() for hit in Bundle.open(bundle).search("retry the failing test").hits] == hits


def test_it_is_kept_while_it_fits(bundle: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in (bundle / "ann").iterdir()}
    made = refresh(bundle, IndexConfig())
    assert [card.roles for card in made if card.kind == joined_words.KIND] == ["bm25:verbatim", "bm25:files"]
    assert {path: path.stat().st_mtime_ns for path in (bundle / "ann").iterdir()} == stamps
    for path in (bundle / "ann").glob("*.json"):
        card = json.loads(path.read_bytes())
        path.write_text(json.dumps({**card, "files": [*card["files"][:-1], "0" * 64]}))
    assert joined_words.open_joined(Bundle.open(bundle), "verbatim") is None
    assert sorted(garbage(bundle)) == sorted(stamps)
    refresh(bundle, IndexConfig())
    assert joined_words.open_joined(Bundle.open(bundle), "verbatim") is not None
    assert len(joined(bundle)) == 2
    assert not list(bundle.glob("tmp-*"))


def test_a_strangers_is_not_read(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert joined_words.open_joined(Bundle.open(bundle), "verbatim") is None


@pytest.mark.parametrize("damage", ["shorter", "gone", "other bytes", "a link"])
def test_a_damaged_one_is_passed_over(bundle: Path, damage: str) -> None:
    path = joined(bundle)[1]
    data = path.read_bytes()
    plain = totals(bundle)
    path.unlink()
    if damage == "shorter":
        path.write_bytes(data[:-64])
    elif damage == "other bytes":
        path.write_bytes(b"\xff" * len(data))
    elif damage == "a link":
        path.with_name("elsewhere").write_bytes(data)
        path.symlink_to("elsewhere")
    assert joined_words.open_joined(Bundle.open(bundle), "verbatim") is None
    assert totals(bundle) == plain


def test_what_was_written_over_is_named_by_verify(bundle: Path) -> None:
    path = joined(bundle)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert [(e.file, e.kind) for e in verify_bundle(bundle).errors] == [(f"ann/{path.name}", "checksum")]


def test_a_segment_whose_arrays_contradict_each_other_is_an_error(bundle: Path) -> None:
    for path in (bundle / "ann").iterdir():
        path.unlink()
    path = Bundle.open(bundle).segments[0].path("bm25:verbatim")
    arrays = {name: array.copy() for name, array in open_arrays(path).items()}
    arrays["indptr"][1] = arrays["indptr"][-1] + 3
    path.unlink()
    write_arrays(path, arrays)
    with pytest.raises(BundleError, match="damaged"):
        refresh(bundle, IndexConfig())
    assert not list(bundle.glob("tmp-*"))


def test_few_exchanges_and_a_single_month_stay_as_they_are(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_words, "FROM_DOCUMENTS", 1_000_000)
    assert joined_words.join_words(Bundle.open(bundle)) == []


def test_one_field_scores_as_its_parts() -> None:
    texts = ["cache retry", "", "cache cache", "retry", "cache the queue"]
    parts = Bm25([FieldIndex(build_field(texts[:2])), FieldIndex(build_field(texts[2:]))])
    whole = Bm25([FieldIndex(build_field(texts))])
    assert parts.total(["cach", "retri"]).tobytes() == whole.total(["cach", "retri"]).tobytes()


def test_what_was_forgotten_is_freed_from_it(bundle: Path) -> None:
    before = joined(bundle)
    assert before
    hit = Bundle.open(bundle).search("retry the failing test").hits[0].exchange_id
    forget(bundle, [hit], "asked")
    assert hit not in {found.exchange_id for found in Bundle.open(bundle).search("retry the failing test").hits}
    prune(bundle)
    collect(bundle)
    assert not set(before) & set(joined(bundle))
    assert verify_bundle(bundle).errors == []
