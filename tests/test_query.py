"""Search: each mode, filters, phrases, ties, honesty about what was not found, and the printing of untrusted text."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill import phrases
from backfill.bundle import Bundle
from backfill.commands import query as query_command
from backfill.commands import rooms as rooms_command
from backfill.commands import show as show_command
from backfill.commands.printing import clean, clean_line
from backfill.errors import BundleError, UsageError
from backfill.filters import Filters, file_matches, project_matches
from backfill.query import MODES, search, working_modes
from backfill.question import encode_ahead
from backfill.trees import iso
from tests.bundle_fixture import HIDDEN, SPECS, Fixture, load, seal, write_bundle

NAMES = [spec.name for spec in SPECS]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("plain") / "bundle", vectors=False, claims=False)


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def bundle(made: Fixture) -> Bundle:
    return Bundle.open(made.path, trust_encoder=True)


def names(made: Fixture, result: Any) -> list[str]:
    by_id = {made.id(name): name for name in NAMES}
    return [by_id[hit.exchange_id] for hit in result.hits]


# ---- modes


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("claims", "verbatim-vector")])
def test_every_mode_finds_the_exchange_about_the_words(made: Fixture, bundle: Bundle, mode: str):
    result = bundle.search("deadlock of the migration", mode=mode)
    assert names(made, result)[0] == "migrate"
    assert result.mode == mode
    scores = [hit.score for hit in result.hits]
    assert scores == sorted(scores, reverse=True)


def test_verbatim_vectors_take_the_best_row_of_an_exchange(made: Fixture, bundle: Bundle):
    assert names(made, bundle.search("the queue survives a gateway outage", mode="verbatim-vector"))[0] == "retry"


def test_claims_lead_to_their_exchange_and_are_shown(made: Fixture, bundle: Bundle):
    hit = bundle.search("payment worker retries", mode="claims").hits[0]
    assert hit.exchange_id == made.id("retry")
    assert hit.claim == "The payment worker retries for 45 seconds."


def test_the_default_is_bm25_over_verbatim_and_the_best_part_by_vector(made: Fixture, bundle: Bundle):
    hit = bundle.search("deadlock of migration").hits[0]
    words = bundle.search("deadlock of migration", mode="verbatim-bm25").hits[0]
    near = bundle.search("deadlock of migration", mode="distilled-vector").hits[0]
    assert hit.exchange_id == words.exchange_id == near.exchange_id == made.id("migrate")
    assert hit.signals == {"bm25": words.score, "vector": near.score}
    assert hit.score == 1.0


def test_rrf_is_an_option_and_a_wrong_fusion_is_named(made: Fixture, bundle: Bundle):
    settings = replace(bundle.manifest.index, fusion="rrf")
    hit = search(bundle, "deadlock of migration", settings=settings).hits[0]
    assert hit.exchange_id == made.id("migrate")
    assert hit.score == pytest.approx(0.5 / 61 + 0.5 / 61)
    with pytest.raises(UsageError, match="unknown fusion"):
        search(bundle, "deadlock", settings=replace(settings, fusion="minmix"))
    with pytest.raises(UsageError, match="unknown normalization"):
        search(bundle, "deadlock", settings=replace(settings, normalization="p59"))


def test_an_exchange_without_object_is_found_by_its_words(made: Fixture, bundle: Bundle):
    hit = bundle.search("licence Apache-2.0").hits[0]
    assert hit.exchange_id == made.id("nodate")
    assert (hit.exchange_core, hit.rooms, hit.tier, hit.started_at) == ("", (), None, None)
    assert set(hit.signals) == {"bm25"}


def test_a_document_without_a_word_in_common_is_no_bm25_hit(made: Fixture, bundle: Bundle):
    assert names(made, bundle.search("latin-1", mode="verbatim-bm25")) == ["parser"]


def test_hidden_rows_are_never_found(bundle: Bundle):
    for mode in MODES:
        for hit in bundle.search(HIDDEN, mode=mode, k=100).hits:
            assert HIDDEN not in (hit.exchange_core, hit.agent_text, hit.claim)
            assert hit.project != "stale"


def test_k_limits_and_is_checked(bundle: Bundle):
    assert len(bundle.search("retry", k=1).hits) == 1
    for k in (0, -1, 10_001):
        with pytest.raises(UsageError, match="k must be"):
            bundle.search("retry", k=k)


def test_a_hit_has_every_field_of_the_contract(made: Fixture, bundle: Bundle):
    tree = bundle.search("retry_timeout", k=1).to_tree()
    assert set(tree) == {"query", "mode", "took_ms", "hits"}
    hit = tree["hits"][0]
    spec = SPECS[0]
    assert hit["exchange_id"] == made.id("retry")
    assert hit["user_text"] == spec.user
    assert hit["agent_text"] == spec.agent
    assert hit["started_at"] == "2026-02-10T09:00:00Z"
    assert hit["source"] == {"path": "s1.jsonl", "byte_start": 0, "byte_end": 90}
    assert (hit["session_id"], hit["project"], hit["agent"]) == ("s1", "shop/checkout", "claude_code")
    assert (hit["exchange_core"], hit["specific_context"]) == (spec.core, spec.context)
    assert (hit["rooms"], hit["files"], hit["tier"]) == (["retry_timeout"], ["src/payments/worker.py"], "llm")
    json.dumps(tree)


def test_unknown_modes_and_missing_layers_are_named(plain: Fixture, bundle: Bundle):
    with pytest.raises(UsageError, match="unknown mode 'distiled-vector'") as caught:
        bundle.search("x1", mode="distiled-vector")
    assert "did you mean distilled-vector?" in caught.value.hint
    bare = Bundle.open(plain.path)
    assert working_modes(bare) == ("default", "distilled-bm25", "verbatim-bm25")
    for mode in ("distilled-vector", "verbatim-vector", "claims"):
        with pytest.raises(UsageError, match="no layer for the mode") as caught:
            bare.search("deadlock", mode=mode)
        assert caught.value.hint == "it has: default, distilled-bm25, verbatim-bm25"


def test_a_bundle_without_vectors_answers_by_words_without_a_warning(plain: Fixture):
    result = Bundle.open(plain.path).search("deadlock")
    assert names(plain, result) == ["migrate"]
    assert result.warnings == ()


@pytest.mark.parametrize("text", ["", "   ", "?!...", '""', "—", "\0\t"])
def test_a_query_without_words_is_bad_usage(bundle: Bundle, text: str):
    with pytest.raises(UsageError, match="no words"):
        bundle.search(text)


def test_queries_of_any_text_are_answered(bundle: Bundle):
    for text in ("a", "the of", "naïve café", "日本語", "x" * 5000, "a\ud800b", "'; drop table --", '"unclosed'):
        assert bundle.search(text).mode == "default"
    with pytest.raises(UsageError, match="longer than"):
        bundle.search("x" * 100_001)


# ---- trust


def test_without_trust_the_answer_comes_by_words_and_says_so(made: Fixture):
    untrusted = Bundle.open(made.path)
    for mode, answered in (
        ("default", "default"),
        ("distilled-vector", "distilled-bm25"),
        ("verbatim-vector", "verbatim-bm25"),
    ):
        result = untrusted.search("deadlock", mode=mode)
        assert names(made, result) == ["migrate"]
        assert result.mode == answered
        assert "--trust-encoder" in result.warnings[0]
        assert "vector" not in result.hits[0].signals


def test_an_encoder_that_misses_its_probe_turns_vectors_off(made: Fixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backfill.embedders.onnx.probe_cosine", lambda *_: 0.5)
    result = Bundle.open(made.path, trust_encoder=True).search("deadlock")
    assert "probe" in result.warnings[0]
    assert "vector" not in result.hits[0].signals


# ---- filters


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"project": "shop/api"}, {"migrate", "yes2"}),
        ({"project": "API"}, {"migrate", "yes2"}),
        ({"project": "shop/*"}, {"retry", "yes1", "migrate", "yes2"}),
        ({"project": "sho"}, set()),
        ({"agent": "Codex"}, {"parser"}),
        ({"room": "lock_order"}, {"migrate"}),
        ({"room": "concept:Lock order"}, {"migrate"}),
        ({"room": "file:lock_order"}, set()),
        ({"file": "worker.py"}, {"retry"}),
        ({"file": "*.sql"}, {"migrate"}),
        ({"file": "db/migrations/*"}, {"migrate"}),
        ({"file": "café.txt"}, {"parser"}),
        ({"file": "orker.py"}, set()),
        ({"tier": "raw"}, {"parser"}),
        ({"tier": "extractive"}, {"yes1", "yes2"}),
        ({"since": "2026-03-02"}, {"migrate", "yes2", "parser"}),
        ({"until": "2026-02-10"}, {"retry", "yes1"}),
        ({"since": "2026-03-31", "until": "2026-03-31"}, {"parser"}),
        ({"since": "2026-03-02T14:10:00Z", "until": "2026-03-02T14:10:00"}, {"yes2"}),
        ({"since": "2026-02-10T10:05:00+01:00", "until": "2026-02-10T09:05:00Z"}, {"yes1"}),
        ({"project": "shop/api", "tier": "llm"}, {"migrate"}),
        ({"project": "copies"}, {"retry", "migrate", "nodate"}),
        ({"kind": "decision"}, {"migrate"}),
        ({"kind": "fact"}, set()),
    ],
)
def test_filters_keep_what_they_say(made: Fixture, bundle: Bundle, options: dict[str, str], wanted: set[str]):
    # By vector everything with an object is a candidate, so the filters alone decide; nodate comes by its words.
    found = names(made, bundle.search("licence retry", k=100, **options))
    assert set(found) == wanted


def test_filters_apply_before_ranking(made: Fixture, bundle: Bundle):
    assert names(made, bundle.search("deadlock migration", k=1, project="tools/lint")) == ["parser"]


def test_the_occurrence_that_meets_the_filters_is_shown(made: Fixture, bundle: Bundle):
    hit = bundle.search("retry_timeout", k=1, project="copies").hits[0]
    assert (hit.exchange_id, hit.session_id, hit.started_at) == (made.id("retry"), "s1-copy", None)
    # No single place is both in that project and dated.
    assert bundle.search("retry_timeout", project="copies", since="2026-01-01").hits == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "yesterday"}, "not a date"),
        ({"until": "2026-13-01"}, "not a date"),
        ({"tier": "lm"}, "unknown tier"),
        ({"kind": "decisions"}, "unknown kind"),
        ({"room": "thing:x"}, "unknown room type"),
    ],
)
def test_bad_filters_are_bad_usage(bundle: Bundle, options: dict[str, str], message: str):
    with pytest.raises(UsageError, match=message):
        bundle.search("retry", **options)


def test_project_and_file_patterns():
    assert project_matches("/home/ann/Shop", "shop")
    assert project_matches("C:\\work\\shop\\", "shop")
    assert not project_matches("workshop", "shop")
    assert file_matches("src/a b/é.py", "é.py")
    assert not file_matches("src/notes.py", "es.py")
    assert Filters.parse(file=".\\src\\a.py").file == "src/a.py"
    assert Filters.parse(project="", room=None).empty


# ---- phrases, misses, ties


@pytest.mark.parametrize("few", [0, 200])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('"row locks in opposite order"', ["migrate"]),
        ('"ocks in opposite orde"', ["migrate"]),
        ('"locks in reverse order"', []),
        ('"ROW LOCKS" deadlock', ["migrate"]),
        ('"locks row"', []),
        ('"retry_timeout to 45" "gateway outage"', ["retry"]),
        ('"retry_timeout to 45" "row locks"', []),
        ('"etry_time"', ["retry"]),
        ('"?" deadlock', ["migrate"]),
    ],
)
def test_phrases_must_stand_in_the_text(
    made: Fixture, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, text: str, wanted: list[str], few: int
):
    monkeypatch.setattr(phrases, "_FEW_DOCUMENTS", few)
    assert [n for n in names(made, bundle.search(text)) if n not in ("yes1", "yes2")][: len(wanted) or 9] == wanted


def test_a_phrase_does_not_run_from_the_question_into_the_answer(plain: Fixture):
    assert Bundle.open(plain.path).search('"retries? I set"').hits == ()


def test_a_miss_is_admitted_and_the_closest_is_told(made: Fixture, bundle: Bundle):
    filtered = bundle.search("deadlock", mode="verbatim-bm25", project="shop/checkout")
    assert filtered.hits == ()
    assert filtered.closest_miss is not None
    assert filtered.closest_miss.exchange_id == made.id("migrate")
    assert filtered.closest_miss.note == "kept out by a filter"
    assert filtered.to_tree()["closest_miss"]["note"] == "kept out by a filter"
    quoted = bundle.search('deadlock "never written"')
    assert quoted.closest_miss is not None
    assert quoted.closest_miss.note == "kept out by the phrase"
    by_meaning = bundle.search("staging", mode="verbatim-bm25", project="tools/lint", tier="raw")
    assert by_meaning.closest_miss is not None
    other_word = bundle.search("jittered", mode="distilled-bm25", until="2020-01-01")
    assert other_word.closest_miss is not None


def test_no_word_in_common_gives_the_nearest_by_vector_or_nothing(plain: Fixture, bundle: Bundle):
    result = bundle.search("xylophone", mode="verbatim-bm25")
    assert result.hits == ()
    assert result.closest_miss is None or result.closest_miss.note == "nearest in meaning; no word in common"
    bare = Bundle.open(plain.path).search("xylophone")
    assert (bare.hits, bare.closest_miss) == ((), None)


def test_a_damaged_encoder_does_not_fail_a_search_by_words(made: Fixture, tmp_path: Path):
    copy = shutil.copytree(made.path, tmp_path / "copy")
    shutil.rmtree(copy / "encoder")
    seal(copy, {**load(copy), "files": [f for f in load(copy)["files"] if f["role"] != "encoder"]})
    broken = Bundle.open(copy)
    assert names(made, broken.search("deadlock", mode="verbatim-bm25")) == ["migrate"]
    assert broken.search("xylophone", mode="verbatim-bm25").closest_miss is None
    with pytest.raises(BundleError, match=r"no readable encoder\.json"):
        broken.search("deadlock", mode="distilled-vector")


def test_ties_go_by_exchange_id(tmp_path: Path):
    # The same words in the same number of tokens: the same score, in two segments.
    specs = [
        replace(SPECS[5], name=f"n{i}", session=f"t{i}", day=f"2026-0{1 + i % 3}-01", user=f"which thing {i}{i}")
        for i in range(9)
    ]
    fixture = write_bundle(tmp_path / "ties", vectors=False, claims=False, specs=specs)
    found = Bundle.open(tmp_path / "ties").search("licence apache", k=5, mode="verbatim-bm25").hits
    assert len({hit.score for hit in found}) == 1
    assert [hit.exchange_id for hit in found] == sorted(fixture.id(spec.name) for spec in specs)[:5]


def test_another_tokenizer_version_is_refused_clearly(plain: Fixture, tmp_path: Path):
    copy = shutil.copytree(plain.path, tmp_path / "copy")
    seal(copy, {**load(copy), "bm25": {"tokenizer_version": 999}})
    with pytest.raises(BundleError, match="cut by tokenizer 999"):
        Bundle.open(copy).search("deadlock")


def test_searches_from_many_threads_agree(made: Fixture):
    shared = Bundle.open(made.path, trust_encoder=True)
    texts = ["deadlock", "retry_timeout", "licence", '"latin-1"', "payment worker"] * 6
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda t: [(h.exchange_id, h.score) for h in shared.search(t).hits], texts))
    alone = Bundle.open(made.path, trust_encoder=True)
    assert answers == [[(h.exchange_id, h.score) for h in alone.search(t).hits] for t in texts]


def test_faiss_and_the_plain_scan_give_the_same_answers(made: Fixture, bundle: Bundle, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backfill.vector_space.FAISS_FROM_ROWS", 0)
    monkeypatch.setattr("backfill.vector_space.SCANNED_BEFORE_IMPORT", 0)
    by_faiss = Bundle.open(made.path, trust_encoder=True)
    for mode in MODES:
        for text in ("deadlock of the migration", "payment worker", "yes"):
            assert by_faiss.search(text, mode=mode, k=3).hits == bundle.search(text, mode=mode, k=3).hits


def test_what_is_kept_mapped_gives_the_same_answers(made: Fixture, bundle: Bundle):
    kept = Bundle.open(made.path, trust_encoder=True, keep_mapped=True, encoder_threads=1)
    for mode in MODES:
        assert (
            kept.search("deadlock of the migration", mode=mode, k=3).hits
            == bundle.search("deadlock of the migration", mode=mode, k=3).hits
        )


def test_a_query_that_was_encoded_ahead_is_not_encoded_again(made: Fixture, monkeypatch: pytest.MonkeyPatch):
    opened = Bundle.open(made.path, trust_encoder=True)
    encode_ahead(opened, "deadlock of the migration", "default")
    encode_ahead(opened, "...", "default")  # no words: an error that the search will raise
    encoder, _ = opened.encoder()
    monkeypatch.setattr(encoder, "encode", lambda *args, **options: pytest.fail("encoded again"))
    found = opened.search("deadlock of the migration")
    assert found.hits[0].exchange_id == made.id("migrate")
    assert "vector" in found.hits[0].signals


# ---- printing


@pytest.mark.parametrize(
    ("dirty", "wanted"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07ok", "ok"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("a\x1b(Bb\x1bcc", "abc"),
        ("a\r\nb\rc\x08\x7f", "a\nbc"),
        ("if\u202e x \u2066y\u2069", "if x y"),
        ("tab\tstays\nso", "tab\tstays\nso"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\ud800", ""),
    ],
)
def test_terminal_escapes_are_stripped(dirty: str, wanted: str):
    assert clean(dirty) == wanted


@given(st.text())
@settings(max_examples=80, deadline=None)
def test_nothing_that_a_terminal_obeys_is_left(text: str):
    for character in clean(text):
        assert character in "\t\n" or not (ord(character) < 32 or 127 <= ord(character) < 160)
    assert "\n" not in clean_line(text)


def test_times_are_iso_8601():
    assert iso(None) is None
    assert iso(0) == "1970-01-01T00:00:00Z"
    assert iso(1_500_000) == "1970-01-01T00:00:01.500000Z"
    assert iso(1 << 62) is None


# ---- commands


def command(module: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(list(words))))


def test_query_prints_hits_with_their_verbatim_answer(made: Fixture, capsys: pytest.CaptureFixture[str]):
    assert command(query_command, str(made.path), "UnicodeDecodeError parser", "-k", "1", "--trust-encoder") == 0
    out, err = capsys.readouterr()
    assert f" 1. 2026-03-31  tools/lint  {made.id('parser')[:12]}  score 1.000" in out
    assert "agent | The file is latin-1. I read it with errors=replace now. red" in out
    assert "1 hit, mode default" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert err == ""


def test_query_json_is_one_line_and_warns_on_stderr(made: Fixture, capsys: pytest.CaptureFixture[str]):
    assert command(query_command, str(made.path), "UnicodeDecodeError", "--json") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert out.isascii()
    tree = json.loads(out)
    assert tree["hits"][0]["agent_text"] == SPECS[4].agent
    assert len(tree["warnings"]) == err.count("\n") == 1


def test_a_long_answer_is_cut_and_says_how_to_see_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    long = "".join(f"Step {i} of the plan was done.\n" for i in range(400)) + "The zanzibar flag fixed it.\n"
    specs = [replace(SPECS[0], agent=long, context="Step 0")]
    fixture = write_bundle(tmp_path / "long", vectors=False, claims=False, specs=specs)
    command(query_command, str(tmp_path / "long"), "zanzibar flag")
    out = capsys.readouterr().out
    assert "The zanzibar flag fixed it." in out
    show = f"backfill show {tmp_path / 'long'} {fixture.id('retry')[:12]}"
    assert f"characters cut before this; {show} --cursor agent_text:0]" in out
    command(show_command, *show.split()[2:], "--cursor", "agent_text:0", "--limit", "400")
    page = capsys.readouterr().out
    assert "Step 0 of the plan was done." in page
    assert f"more: {show} --cursor agent_text:" in page


def test_nothing_found_is_said_with_the_closest_miss(plain: Fixture, capsys: pytest.CaptureFixture[str]):
    assert command(query_command, str(plain.path), "deadlock", "--project", "tools/lint") == 0
    out = capsys.readouterr().out
    assert "Nothing found." in out
    assert "Closest miss (kept out by a filter):" in out
    assert "0 hits" in out


def test_show_gives_an_exchange_with_all_that_belongs_to_it(made: Fixture, capsys: pytest.CaptureFixture[str]):
    assert command(show_command, str(made.path), made.id("migrate")[:8], "--json") == 0
    tree = json.loads(capsys.readouterr().out)
    assert set(tree) == {"exchange", "occurrences", "object", "claims", "prev", "next"}
    assert tree["exchange"]["exchange_id"] == made.id("migrate")
    assert tree["exchange"]["agent_text"] == SPECS[2].agent
    assert tree["exchange"]["tools"][0]["paths"] == ["db/migrations/0042_stock.sql"]
    assert [place["session_id"] for place in tree["occurrences"]] == ["s2", "s2-copy"]
    assert tree["occurrences"][0]["started_at"] == "2026-03-02T14:00:00Z"
    assert tree["object"]["exchange_core"] == SPECS[2].core
    assert [(claim["kind"], claim["date"]) for claim in tree["claims"]] == [("decision", "2026-03-02")]
    assert tree["prev"] == []
    assert [other["exchange_id"] for other in tree["next"]] == [made.id("yes2")]
    command(show_command, str(made.path), made.id("yes2"), "--json")
    tree = json.loads(capsys.readouterr().out)
    assert [other["exchange_id"] for other in tree["prev"]] == [made.id("migrate")]


def test_show_prints_clean_text(made: Fixture, capsys: pytest.CaptureFixture[str]):
    for name in NAMES:
        assert command(show_command, str(made.path), made.id(name)) == 0
    out = capsys.readouterr().out
    assert "The file is latin-1." in out
    assert "\x1b" not in out
    assert "tool Edit:" in out


def test_rooms_are_listed_in_pages(made: Fixture, capsys: pytest.CaptureFixture[str]):
    def pages() -> Iterator[dict[str, Any]]:
        cursor: list[str] = []
        while True:
            command(rooms_command, str(made.path), "--limit", "2", "--json", *cursor)
            tree = json.loads(capsys.readouterr().out)
            yield tree
            if tree["cursor"] is None:
                return
            cursor = ["--cursor", tree["cursor"]]

    found = list(pages())
    assert [len(page["rooms"]) for page in found] == [2, 2, 1]
    rooms = [room for page in found for room in page["rooms"]]
    assert {room["key"] for room in rooms} == {"retry_timeout", "commit", "lock_order", "deploy", "file_encoding"}
    assert rooms[0]["last_at"] == "2026-03-31T23:59:59Z"
    assert set(rooms[0]) >= {"type", "key", "label", "exchanges", "last_at"}


def test_one_room_lists_its_exchanges(made: Fixture, capsys: pytest.CaptureFixture[str]):
    command(rooms_command, str(made.path), "concept:lock_order", "--json")
    tree = json.loads(capsys.readouterr().out)
    assert [room["key"] for room in tree["rooms"]] == ["lock_order"]
    assert [hit["exchange_id"] for hit in tree["hits"]] == [made.id("migrate")]
    with pytest.raises(UsageError, match="no room is called") as caught:
        command(rooms_command, str(made.path), "lock_ordr")
    assert caught.value.hint == "near: lock_order"
    for cursor in ("x", "-1", "²"):
        with pytest.raises(UsageError, match="not a cursor"):
            command(rooms_command, str(made.path), f"--cursor={cursor}")
    command(rooms_command, str(made.path))
    assert "     1  2026-03-31  concept:file_encoding\n" in capsys.readouterr().out
