"""The library as others use it: one import, typed answers, threads, and a context manager."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import backfill
from backfill import Bundle
from backfill.bundle_manifest import SearchDefaults
from backfill.claim_search import ClaimHit
from backfill.config import IndexConfig
from backfill.errors import UsageError
from backfill.fusion import FUSIONS, NORMALIZATIONS
from backfill.hits import Hit
from backfill.ranking import SIGNALS
from backfill.types import Exchange, Occurrence, PalaceObject
from tests.bundle_fixture import SPECS, Fixture, Spec, write_bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("made") / "bundle", replaced=True)


@pytest.fixture(scope="module")
def bundle(made: Fixture) -> Bundle:
    return Bundle.open(made.path, trust_encoder=True)


def found(made: Fixture, hits: tuple[Hit, ...]) -> list[str]:
    by_id = {made.id(name): name for name in made.exchange}
    return [by_id[hit.exchange_id] for hit in hits]


def test_the_package_gives_the_bundle_and_its_version():
    assert backfill.Bundle is Bundle
    assert backfill.__version__
    with pytest.raises(AttributeError):
        _ = backfill.Bundel


def test_an_exchange_comes_as_rows(made: Fixture, bundle: Bundle):
    detail = bundle.exchange(made.id("migrate")[:8])
    assert isinstance(detail.exchange, Exchange)
    assert detail.exchange.tools[0].paths == ("db/migrations/0042_stock.sql",)
    assert isinstance(detail.object, PalaceObject)
    assert all(isinstance(place, Occurrence) for place in detail.occurrences)
    assert all(isinstance(claim, ClaimHit) for claim in detail.claims)
    assert [other.exchange_id for other in detail.next] == [made.id("yes2")]


def test_months_and_projects_make_the_timeline(bundle: Bundle):
    entries = [(e.month, e.project, e.exchanges, e.sessions) for e in bundle.timeline()]
    assert entries == [
        ("2026-02", "shop/checkout", 2, 1),
        ("2026-03", "shop/api", 2, 1),
        ("2026-03", "tools/lint", 1, 1),
        (None, "tools/lint", 1, 1),
    ]
    assert [(e.month, e.exchanges) for e in bundle.timeline(project="copies")] == [(None, 3)]
    assert [e.project for e in bundle.timeline(kind="decision")] == ["shop/api"]
    assert bundle.timeline()[0].to_tree() == {
        "month": "2026-02",
        "project": "shop/checkout",
        "exchanges": 2,
        "sessions": 1,
    }


def test_eight_threads_on_one_bundle_get_what_one_gets(made: Fixture):
    asks = [
        lambda b: [h.exchange_id for h in b.search("deadlock of the migration").hits],
        lambda b: [h.exchange_id for h in b.search('"latin-1" path:café.txt').hits],
        lambda b: [c.claim_id for c in b.claims("retries").claims],
        lambda b: b.pack(300).text,
        lambda b: b.timeline(),
        lambda b: b.rooms("lock_order").to_tree(),
        lambda b: b.exchange(made.id("yes2")).to_tree(),
        lambda b: b.read(made.id("retry"), query="gateway").to_tree(),
    ] * 4
    alone = Bundle.open(made.path, trust_encoder=True)
    wanted = [ask(alone) for ask in asks]
    shared = Bundle.open(made.path, trust_encoder=True)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda ask: ask(shared), asks)) == wanted


def test_a_bundle_closes_and_opens_anew(made: Fixture):
    with Bundle.open(made.path, trust_encoder=True) as bundle:
        hits = bundle.search("deadlock").hits
    assert bundle.search("deadlock").hits == hits
    bundle.close()
    bundle.close()


def test_an_empty_bundle_answers_with_nothing(tmp_path: Path):
    bundle = Bundle.open(write_bundle(tmp_path / "empty", specs=[]).path)
    assert bundle.modes() == ()
    for text in ("deadlock", 'path:x.py "row locks" error:E1'):
        result = bundle.search(text, project="shop", kind="fact")
        assert (result.hits, result.closest_miss) == ((), None)
    assert bundle.claims("deadlock").claims == bundle.claims().claims == ()
    assert (bundle.timeline(), bundle.rooms().rooms, bundle.pack(200).items) == ((), (), ())


# ---- exact terms, sessions, copies


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("path:db/migrations/0042_stock.sql", {"migrate"}),
        ("path:0042_stock.sql what happened", {"migrate"}),
        ("path:stock.sql", set()),
        ("path:./src/payments/worker.py", {"retry"}),
        ('path:"src/payments/worker.py" retries', {"retry"}),
        ("error:UnicodeDecodeError", {"parser"}),
        ("error:unicodedecodeerror crash", {"parser"}),
        ("error:Unicode", set()),
        ("error:ok", {"retry", "migrate", "parser"}),
        ('"row locks" error:transactions', {"migrate"}),
        ('"row locks" error:UnicodeDecodeError', set()),
        ("xpath:0042_stock.sql deadlock", {"retry", "yes1", "migrate", "yes2", "parser", "nodate"}),
    ],
)
def test_exact_terms_must_hold(made: Fixture, bundle: Bundle, text: str, wanted: set[str]):
    names = set(found(made, bundle.search(text, k=50).hits))
    assert names <= wanted if "xpath" in text else names == wanted


def test_an_exact_term_alone_finds_what_has_no_word_in_common(made: Fixture):
    plain = Bundle.open(made.path)
    assert found(made, plain.search("path:worker.py", mode="verbatim-bm25").hits) == ["retry"]


def test_a_miss_of_an_exact_term_is_named(made: Fixture, bundle: Bundle):
    miss = bundle.search("deadlock path:nowhere.py").closest_miss
    assert miss is not None
    assert (miss.exchange_id, miss.note) == (made.id("migrate"), "kept out by an exact term")


def test_one_hit_a_session(made: Fixture, bundle: Bundle):
    hits = bundle.search("yes retry migration", k=10, per_session=True).hits
    assert sorted(hit.session_id for hit in hits) == sorted({hit.session_id for hit in hits})
    assert {hit.session_id for hit in bundle.search("yes retry migration").hits} == {hit.session_id for hit in hits}
    best = {h.session_id: h.exchange_id for h in reversed(bundle.search("yes retry migration").hits)}
    assert {hit.session_id: hit.exchange_id for hit in hits} == best


def test_all_places_of_a_hit_are_listed(made: Fixture, bundle: Bundle):
    hit = bundle.search("deadlock migration", k=1).hits[0]
    assert [(place.session_id, place.project) for place in hit.places] == [("s2", "shop/api"), ("s2-copy", "copies")]
    assert hit.folded == ()


LONG = (
    "I moved the cache key of the checkout page into its own module, so that the warmer and the renderer share it. "
    "The renderer reads it on every request, the warmer once an hour, and both fall back to the database when missing."
)


@pytest.mark.parametrize(
    ("answers", "n_hits"),
    [
        ((LONG, LONG.replace("missing", "gone")), 1),
        ((LONG, LONG), 1),
        ((f"{LONG} It keeps 45 entries.", f"{LONG} It keeps 60 entries."), 2),
        ((LONG, LONG.replace("both fall", "both never fall")), 2),
        ((LONG, LONG + " " + LONG.replace("cache", "queue")), 2),
    ],
)
def test_near_copies_are_folded_unless_a_fact_differs(tmp_path: Path, answers: tuple[str, str], n_hits: int):
    asked = "Where is the cache key?"
    specs = [
        Spec(f"n{i}", f"s{i}", f"p{i}", f"2026-0{i + 1}-01T00:00:00", asked, answer, "Moved the key")
        for i, answer in enumerate(answers)
    ]
    # The same words after another exchange are an exchange of their own.
    specs.insert(0, Spec("first", "s0", "p0", "2026-01-01T00:00:00", "Something else", "entirely", "other"))
    fixture = write_bundle(tmp_path / "b", vectors=False, claims=False, specs=specs)
    bundle = Bundle.open(fixture.path)
    hits = bundle.search("where is the cache key").hits
    assert len(hits) == n_hits
    ids = {fixture.id("n0"), fixture.id("n1")}
    assert {hit.exchange_id for hit in hits} | {one for hit in hits for one in hit.folded} == ids
    assert {place.exchange_id for hit in hits for place in hit.places} == ids
    assert len(bundle.search("where is the cache key", fold=False).hits) == 2


def test_folding_fills_up_to_k(tmp_path: Path):
    specs = [
        Spec(word, f"s-{word}", "p", "2026-01-10T00:00:00", f"cache key {word}", LONG, "Moved the key")
        for word in ("please", "again", "today", "then", "quickly", "maybe")
    ]
    specs.append(Spec("last", "z", "p", None, "A cache?", "No key here.", "none"))
    fixture = write_bundle(tmp_path / "b", vectors=False, claims=False, specs=specs)
    hits = Bundle.open(fixture.path).search("cache key", k=2).hits
    assert len(hits) == 2
    assert sum(len(hit.folded) for hit in hits) == 5
    assert len(Bundle.open(fixture.path).search("cache key", k=1).hits) == 1


# ---- fusion by settings


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_every_fusion_of_all_signals_finds_the_exchange(made: Fixture, bundle: Bundle, fusion: str, normalization: str):
    weights = {**dict.fromkeys(SIGNALS, 0.5), "title": 0.2}
    settings = SearchDefaults(fusion, normalization, weights, session_prior=0.6)
    hit = bundle.search("Two transactions deadlock: row locks of the migration", settings=settings).hits[0]
    assert hit.exchange_id == made.id("migrate")
    assert set(hit.signals) == set(SIGNALS)


def test_a_signal_of_weight_0_is_not_used(bundle: Bundle):
    settings = SearchDefaults(weights={"claims-bm25": 1.0, "vector": 0.0})
    hits = bundle.search("updates sorted by primary key", settings=settings).hits
    assert [set(hit.signals) for hit in hits] == [{"claims-bm25"}]


def test_a_session_prior_lifts_the_other_exchanges_of_the_best(made: Fixture, bundle: Bundle):
    settings = bundle.manifest.index
    plain = bundle.search("deadlock row locks", settings=settings, fold=False).hits
    lifted = bundle.search("deadlock row locks", settings=replace(settings, session_prior=1.0), fold=False).hits
    assert plain[0].exchange_id == lifted[0].exchange_id == made.id("migrate")
    assert found(made, lifted).index("yes2") == 1
    assert lifted[0].score == pytest.approx(2 * plain[0].score)


def test_a_question_that_the_history_does_not_answer_finds_nothing_and_says_what_is_nearest(bundle: Bundle):
    settings = replace(bundle.manifest.index, min_cosine=2.0)
    result = bundle.search("xylophone", settings=settings)
    assert result.hits == ()
    assert result.closest_miss is not None
    assert result.closest_miss.note == "nearest in meaning; no word in common"
    assert bundle.search("xylophone", settings=replace(settings, min_cosine=0.0)).hits
    assert bundle.search("deadlock", settings=settings).hits
    for name in ("nearest", "claims-vector", "verbatim-vector"):
        assert bundle.search("xylophone", settings=replace(settings, weights={"bm25": 0.5, name: 0.5})).hits == ()
    assert bundle.search("xylophone", settings=settings, project="shop/*").hits


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"bm25": -1.0}}, {"weights": {"bm25": float("inf")}}, {"weights": {"vector": float("nan")}},
        {"session_prior": -0.1}, {"rrf_k": -61}, {"b": 1.5}, {"k1": -1.0},
    ],
)  # fmt: skip
def test_settings_that_would_upset_the_order_are_refused(bundle: Bundle, change: dict[str, object]):
    with pytest.raises(UsageError, match="a search setting lies outside"):
        bundle.search("deadlock", settings=replace(bundle.manifest.index, **change))


def test_masks_of_filters_are_remembered_and_never_changed(made: Fixture, bundle: Bundle):
    for _ in range(3):
        assert found(made, bundle.search('"row locks" retry', project="shop/*").hits) == ["migrate"]
        assert len(bundle.search("retry", project="shop/*").hits) == 4


def test_constants_of_bm25_can_be_given(bundle: Bundle):
    flat = bundle.search("migration", mode="verbatim-bm25", settings=SearchDefaults(b=0.0, k1=0.0)).hits
    assert len({hit.score for hit in flat}) == 1
    assert bundle.search("migration", mode="verbatim-bm25").hits[0].score != flat[0].score


def test_the_configuration_names_the_signals():
    recorded = IndexConfig(weight_claims_bm25=0.3, weight_title=0.1, session_prior=0.6).recorded()
    assert recorded["weights"] == {"bm25": 0.5, "nearest": 0.5, "claims-bm25": 0.3, "title": 0.1, "files": 0.5}
    assert set(recorded["weights"]) <= {*SIGNALS, "title", "rooms", "files"}
    assert recorded["session_prior"] == 0.6


def test_unknown_filters_and_settings_are_named(bundle: Bundle):
    with pytest.raises(UsageError, match="unknown filter 'projekt'"):
        bundle.search("deadlock", projekt="x")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="unknown fusion"):
        bundle.search("deadlock", settings=SearchDefaults("wieghted"))


def test_the_json_of_a_hit_marks_the_match(bundle: Bundle):
    tree = bundle.search("sorted by primary key", k=1).to_tree()["hits"][0]
    match = tree["match"]
    assert match["field"] == "agent_text"
    assert match["text"] == tree["agent_text"][match["start"] : match["end"]]
    marked = {match["text"][a:b] for a, b in match["matches"]}
    assert marked == {"sorted", "primary", "key"}
    assert SPECS[2].agent == tree["agent_text"]
