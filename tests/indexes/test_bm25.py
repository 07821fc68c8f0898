"""BM25: the formula, sums over segments, and damaged arrays."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backfill.arrays import open_arrays, write_arrays
from backfill.errors import BundleError
from backfill.indexes.bm25 import Bm25
from backfill.indexes.field import FieldIndex, beginnings_of, build_field, kind_for
from backfill.indexes.tokenizer import tokenize

WORDS = ["cache", "retry", "src/app.ts", "TypeError", "数据库", "index", "merge", "vector", "token", "shard", "queue"]


def corpus(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, weights=range(1, 12), k=rng.randrange(0, 30))) for _ in range(n)]


def index(docs: list[str], cuts: int) -> Bm25:
    step = -(-len(docs) // cuts)
    return Bm25([FieldIndex.open(build_field(docs[i * step : (i + 1) * step])) for i in range(cuts)], 1.2, 0.75)


def plain(docs: list[str], terms: list[str], k1: float, b: float) -> list[float]:
    bags = [Counter(tokenize(doc)) for doc in docs]
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = [0.0] * len(docs)
    for term in terms:
        df = sum(term in bag for bag in bags)
        idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
        for i, bag in enumerate(bags):
            scores[i] += idf * bag[term] / (bag[term] + k1 * (1 - b + b * bag.total() / mean))
    return scores


def test_scores_are_those_of_the_formula() -> None:
    docs, terms = corpus(60), tokenize("retry src/app.ts 数据库 retry absent")
    (scores,) = index(docs, 1).scores(terms)
    np.testing.assert_allclose(scores, plain(docs, terms, 1.2, 0.75), rtol=1e-12)


def test_scores_are_those_of_bm25s() -> None:
    bm25s = pytest.importorskip("bm25s", reason="bm25s is not installed")
    docs, terms = corpus(60), ["retri", "cach"]
    peer = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    peer.index([tokenize(doc) for doc in docs], show_progress=False)
    np.testing.assert_allclose(index(docs, 1).scores(terms)[0], peer.get_scores(terms), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cuts", [2, 3, 7])
def test_any_division_into_segments_gives_the_same_bits(cuts: int) -> None:
    docs, terms = corpus(97, seed=cuts), tokenize("cache merge TypeError src/app.ts index")
    (whole,) = index(docs, 1).scores(terms)
    assert np.concatenate(index(docs, cuts).scores(terms)).tobytes() == whole.tobytes()


def test_equal_texts_give_equal_bytes_and_survive_the_file(tmp_path: Path) -> None:
    docs = corpus(40)
    for name in ("1", "2"):
        write_arrays(tmp_path / name, build_field(iter(docs)))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    mapped = Bm25([FieldIndex.open(open_arrays(tmp_path / "1"))])
    assert mapped.scores(["cach"])[0].tobytes() == Bm25([FieldIndex(build_field(docs))]).scores(["cach"])[0].tobytes()


def test_counts_of_a_field() -> None:
    field = FieldIndex(build_field(["cache cache retry", "", "cache"]))
    assert (field.n_docs, field.total_length, field.n_terms) == (3, 4, 2)
    assert field.df("cach") == 2
    assert field.df("absent") == field.df("") == field.df("\ud800") == 0
    documents, counts = field.postings("cach")
    assert (documents.tolist(), counts.tolist(), counts.dtype) == ([0, 2], [2, 1], np.uint8)


def test_terms_are_found_by_their_beginnings_as_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Beginnings of eight bytes tell some of these apart, and some not.
    words = [f"w{n:04d}x" for n in range(0, 200, 2)] + [f"beginning{n}" for n in range(30)] + ["beginnin", "w"]
    arrays = build_field([" ".join(words)])
    asked = {term for word in words for term in tokenize(word)} | {f"w{n:04d}x" for n in range(200)}
    asked |= {"", "zz", "!", "beginnin", "beginning", "begin", "w0", "\x7f"}
    terms = sorted(term.encode() for term in asked)
    lengths = np.array([len(term) for term in terms])
    given = beginnings_of(np.frombuffer(b"".join(terms), np.uint8), np.cumsum(lengths) - lengths, lengths)
    plain = FieldIndex(arrays).numbers_of(terms, given)
    monkeypatch.setattr("backfill.indexes.field._PLAIN_LOOKUPS", 0)
    assert FieldIndex(arrays).numbers_of(terms, given) == plain
    assert sum(number >= 0 for number in plain) >= len(words)
    assert FieldIndex(build_field([])).numbers_of([b"w"], given[:1]) == [-1]


def test_a_count_above_65535_is_kept() -> None:
    _, counts = FieldIndex(build_field(["x " * 70_000])).postings("x")
    assert (counts.tolist(), counts.dtype) == ([70_000], np.int32)


def test_search_ranks_breaks_ties_by_place_and_skips_rows_without_a_term() -> None:
    bm25 = Bm25([FieldIndex(build_field(["retry", "cache"])), FieldIndex(build_field(["retry", "retry queue", ""]))])
    scores, segments, rows = bm25.search(["retri"], 10)
    assert list(zip(segments.tolist(), rows.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]
    assert scores[0] == scores[1] > scores[2] > 0
    assert bm25.search(["retri"], 1)[2].tolist() == [0]
    assert [len(part) for part in bm25.search(["absent"], 5)] == [0, 0, 0]


def test_a_mask_hides_rows_but_not_their_statistics() -> None:
    bm25 = Bm25([FieldIndex(build_field(["retry", "retry cache"]))])
    (scores,) = bm25.scores(["retri"])
    (masked,) = bm25.scores(["retri"], [np.array([False, True])])
    assert masked.tolist() == [0.0, scores[1]]


@pytest.mark.parametrize("docs", [[], [""], ["the"]])
def test_nothing_to_index_finds_nothing(docs: list[str]) -> None:
    bm25 = Bm25([FieldIndex(build_field(docs))])
    assert [len(part) for part in bm25.search(["x"], 5)] == [0, 0, 0]
    assert [len(part) for part in Bm25([]).search(["x"], 5)] == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary": None},
        {"indptr": np.zeros(1, np.int32)},
        {"counts": np.ones(1, np.uint16)},
        {"lengths": np.array([-1, 2, 1], np.int32)},
        {"term_offsets": np.zeros(0, np.int64)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    arrays = {**build_field(["cache retry", "", "cache"]), **change}
    with pytest.raises(BundleError):
        FieldIndex.open({name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize("documents", [[0, 3], [2, 0], [-1, 2], [0, 0]])
def test_postings_that_point_elsewhere_are_refused_when_read(documents: list[int]) -> None:
    arrays = build_field(["cache", "", "cache"])
    field = FieldIndex({**arrays, "documents": np.array(documents, np.int32)})
    with pytest.raises(BundleError, match="damaged"):
        field.df("cach")
    for fields in ([field], [FieldIndex(build_field(["x"])), field, FieldIndex(build_field(["cache", "y"]))]):
        with pytest.raises(BundleError, match="damaged"):
            Bm25(fields).scores(["cach"])


def test_common_and_rare_terms_add_up_to_the_formula_and_a_file_gives_the_same_bits(tmp_path: Path) -> None:
    # "cache" stands in all texts, "merge" in every other, "x<n>" in one: kept for all rows, and for some.
    docs = [f"cache {'cache ' * (n % 3)}{'merge' if n % 2 else ''} x{n}" for n in range(90)]
    terms = ["cach", "merg", "x17", "cach", "absent"]
    bm25 = index(docs, 4)
    np.testing.assert_allclose(np.concatenate(bm25.scores(terms)), plain(docs, terms, 1.2, 0.75), rtol=1e-12)
    fields = []
    for n in range(4):
        write_arrays(tmp_path / str(n), build_field(docs[n * 23 : (n + 1) * 23]))
        fields.append(FieldIndex.open(open_arrays(tmp_path / str(n)), tmp_path / str(n)))
    mapped = Bm25(fields, 1.2, 0.75)
    for _ in range(2):
        assert mapped.total(terms).tobytes() == bm25.total(terms).tobytes()


def test_counts_of_two_widths_are_joined(tmp_path: Path) -> None:
    parts = [build_field(["x " * 70_000]), build_field(["x", "y"])]
    whole = FieldIndex(build_field(["x " * 70_000, "x", "y"]))
    fields = []
    for name, arrays in zip("ab", parts, strict=True):
        write_arrays(tmp_path / name, arrays)
        fields.append(FieldIndex.open(open_arrays(tmp_path / name), tmp_path / name))
    for cut in (fields, [fields[0], FieldIndex(parts[1])]):
        assert Bm25(cut).total(["x"]).tobytes() == Bm25([whole]).total(["x"]).tobytes()


def test_postings_of_a_file_that_ends_early_are_an_error(tmp_path: Path) -> None:
    write_arrays(tmp_path / "field", build_field(["cache retry", "cache"]))
    field = FieldIndex.open(open_arrays(tmp_path / "field"), tmp_path / "field")
    field.places = dict.fromkeys(field.places, 1 << 20)
    with pytest.raises(BundleError, match="cannot read the postings"):
        Bm25([field]).total(["cach"])


def test_a_vocabulary_of_huge_terms_is_searched_term_by_term() -> None:
    # A stranger's: one term of which the other is found at every place.
    vocabulary = np.frombuffer(b"a" * 60_000 + b"aab" + b"b", np.uint8)
    arrays = {
        **build_field(["x y z"]),
        "vocabulary": vocabulary,
        "term_offsets": np.array([0, 60_000, 60_003, 60_004], np.int32),
    }
    given = beginnings_of(np.frombuffer(b"aabb", np.uint8), np.array([0, 3]), np.array([3, 1]))
    assert FieldIndex(arrays).numbers_of([b"aab", b"b"], given) == [1, 2]


@pytest.mark.parametrize("indptr", [[5, 0, 4], [-1, 2, 4], [3, 9, 4]])
def test_runs_outside_the_postings_are_refused_when_read(indptr: list[int]) -> None:
    arrays = {**build_field(["cache retry"] * 2), "indptr": np.array(indptr, np.int64)}
    with pytest.raises(BundleError, match="outside its postings"):
        Bm25([FieldIndex(arrays)]).total(["cach"])


@pytest.mark.parametrize(
    ("name", "greatest", "kind"),
    [
        ("counts", 255, "u1"), ("counts", 256, "u2"), ("counts", 65_536, "i4"), ("documents", 65_535, "u2"),
        ("documents", 65_536, "i4"), ("lengths", 65_536, "i4"), ("indptr", 2**31, "i8"), ("documents", -1, "u2"),
    ],
)  # fmt: skip
def test_an_array_is_as_wide_as_its_values_need(name: str, greatest: int, kind: str) -> None:
    assert kind_for(name, greatest) == np.dtype(kind)


def test_a_field_of_an_earlier_bundle_is_read_from_its_file(tmp_path: Path) -> None:
    narrow = build_field(["cache retry", "cache cache", "", "retry"])
    wide = {"term_offsets": "i8", "indptr": "i8", "documents": "i4", "counts": "u2", "lengths": "i4"}
    earlier = {name: array.astype(wide.get(name, array.dtype)) for name, array in narrow.items()}
    totals = []
    for name, arrays in (("narrow", narrow), ("earlier", earlier)):
        write_arrays(tmp_path / name, arrays)
        field = FieldIndex.open(open_arrays(tmp_path / name), tmp_path / name)
        assert [found.tolist() for found in field.postings("retri")] == [[0, 3], [1, 1]]
        totals += [Bm25([field, field]).total(["cach", "retri"]).tobytes()]
    assert totals[0] == totals[1]
    assert (tmp_path / "narrow").stat().st_size < (tmp_path / "earlier").stat().st_size
