"""Claims: found, dated, traced to their exchanges in any segment, and marked where a later one replaced them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backfill import Bundle
from backfill.arrays import open_arrays, write_arrays
from backfill.claim_index import claim_index
from backfill.errors import BundleError, UsageError
from backfill.filters import Filters
from backfill.ranking import documents_mask
from tests.bundle_fixture import RETRY_CLAIM, Fixture, load, seal, write_bundle

NEWER = "The payment worker retries for 60 seconds."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("made") / "bundle", replaced=True)


@pytest.fixture(scope="module")
def bundle(made: Fixture) -> Bundle:
    return Bundle.open(made.path, trust_encoder=True)


def test_a_claim_has_its_date_its_sources_and_its_words(made: Fixture, bundle: Bundle):
    claim = bundle.claims("why are updates sorted by primary key", k=1).claims[0]
    assert (claim.text, claim.kind, claim.date) == (
        "Updates are sorted by primary key against deadlocks.", "decision", "2026-03-02",
    )  # fmt: skip
    assert claim.exchange_ids == (made.id("migrate"),)
    assert [(s.exchange_id, s.project, s.started_at) for s in claim.sources] == [
        (made.id("migrate"), "shop/api", "2026-03-02T14:00:00Z")
    ]
    assert claim.sources[0].source.path == "s2.jsonl"
    assert (claim.superseded_by, claim.replacement) == (None, "")


def test_a_replaced_claim_is_left_out_unless_asked_for_and_then_marked(bundle: Bundle):
    result = bundle.claims("payment worker retries seconds")
    assert RETRY_CLAIM not in [claim.text for claim in result.claims]
    assert result.claims[0].text == NEWER
    assert result.hidden == 1
    everything = bundle.claims("payment worker retries seconds", superseded=True)
    old = next(claim for claim in everything.claims if claim.text == RETRY_CLAIM)
    assert old.replacement == NEWER
    assert old.superseded_by == everything.claims[[c.text for c in everything.claims].index(NEWER)].claim_id
    assert everything.hidden == 0


def test_a_claim_leads_to_exchanges_of_two_months(made: Fixture, bundle: Bundle):
    claim = bundle.claims("payment worker retries", k=1).claims[0]
    assert {source.exchange_id for source in claim.sources} == {made.id("yes1"), made.id("yes2")}
    found = {hit.exchange_id for hit in bundle.search("payment worker retries", mode="claims", k=2, fold=False).hits}
    assert found == {made.id("yes1"), made.id("yes2")}
    assert [c.text for c in bundle.exchange(made.id("yes2")).claims] == [NEWER]


def test_search_by_claims_leaves_replaced_ones_out_too(made: Fixture, bundle: Bundle):
    text = "payment worker retries 45 seconds"
    assert made.id("retry") not in [hit.exchange_id for hit in bundle.search(text, mode="claims").hits]
    assert bundle.search(text, mode="claims", superseded=True).hits[0].exchange_id == made.id("retry")


def test_the_exchange_shows_the_mark(made: Fixture, bundle: Bundle):
    tree = bundle.exchange(made.id("retry")).to_tree()
    assert [(claim["text"], claim["replacement"]) for claim in tree["claims"]] == [(RETRY_CLAIM, NEWER)]


def test_without_words_the_newest_claims_come_first(bundle: Bundle):
    assert [claim.date for claim in bundle.claims(superseded=True).claims] == ["2026-03-04", "2026-03-02", "2026-02-10"]


def test_filters_apply_to_the_claim_and_to_its_exchanges(bundle: Bundle):
    assert [c.kind for c in bundle.claims("primary key retries", kind="decision").claims] == ["decision"]
    assert [c.text for c in bundle.claims("retries", project="shop/checkout").claims] == [NEWER]
    assert bundle.claims("retries", project="tools/lint").claims == ()
    assert [c.kind for c in bundle.claims(kind="config", superseded=True).claims] == ["config", "config"]


def test_kinds_filter_exchanges_before_ranking(made: Fixture, bundle: Bundle):
    mask = documents_mask(bundle, Filters(kind="config"))
    assert int(mask.sum()) == 3
    assert {h.exchange_id for h in bundle.search("anything", kind="config").hits} <= {
        made.id(name) for name in ("retry", "yes1", "yes2")
    }


def test_k_is_checked_and_a_bundle_without_claims_has_none(bundle: Bundle, tmp_path: Path):
    for k in (0, 10_001):
        with pytest.raises(UsageError, match="k must be"):
            bundle.claims("retries", k=k)
    bare = Bundle.open(write_bundle(tmp_path / "bare", vectors=False, claims=False).path)
    assert bare.claims("retries").claims == bare.claims().claims == ()


def test_an_older_bundle_gets_its_links_from_the_tables(made: Fixture, bundle: Bundle, tmp_path: Path):
    older = Bundle.open(write_bundle(tmp_path / "older", replaced=True, links=False).path)
    for one, other in zip(bundle.segments, older.segments, strict=True):
        assert one.sessions.tolist() == other.sessions.tolist()
        assert one.document_ids.tolist() == other.document_ids.tolist()
        assert {k: v.tolist() for k, v in one.claim_links.items()} == {
            k: v.tolist() for k, v in other.claim_links.items()
        }


def test_links_of_documents_and_claims_are_each_others_reverse(bundle: Bundle):
    index = claim_index(bundle)
    pairs = {(claim, int(doc)) for claim in range(len(index)) for doc in index.docs_of(claim)}
    n_docs = len(index.claims_indptr) - 1
    assert pairs == {(int(claim), doc) for doc in range(n_docs) for claim in index.claims_of(doc)}
    at, docs = index.pairs(np.arange(len(index)))
    assert set(zip(at.tolist(), docs.tolist(), strict=True)) == pairs


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("claim_doc", np.array([99, 0], "<i4")),
        ("claim_indptr", np.array([0, 1], "<i8")),
        ("claim_far", np.zeros((0, 15), "u1")),
        ("session", np.zeros(1, "<u8")),
        ("session", np.zeros(2, "<i8")),
        ("exchange_id", np.zeros((1, 16), "u1")),
        ("exchange_id", np.zeros((2, 16), "i1")),
    ],
)
def test_links_that_lead_nowhere_are_refused(made: Fixture, tmp_path: Path, name: str, values: np.ndarray):
    copy = shutil.copytree(made.path, tmp_path / "copy")
    manifest = load(copy)
    entry = next(f for f in manifest["files"] if f["role"] == "docs" and "2026-02" in f["path"])
    arrays = {key: np.array(value) for key, value in open_arrays(copy / entry["path"]).items()}
    entry["bytes"] = write_arrays(copy / entry["path"], {**arrays, name: values})
    seal(copy, manifest)
    bundle = Bundle.open(copy, trust_encoder=True)
    settings = replace(bundle.manifest.index, weights={"claims-bm25": 1.0}, session_prior=0.5)
    with pytest.raises(BundleError):
        bundle.search("retries", settings=settings)
