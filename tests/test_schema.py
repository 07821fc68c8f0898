"""The wire form expands to valid public objects, and every way to be wrong has its reason."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from exchanges import exchanges, make_exchange, make_tool
from hypothesis import given
from hypothesis import strategies as st

from backfill.extractive import Candidate, candidates, extract, raw_object
from backfill.schema import (
    PUBLIC_SCHEMA,
    WIRE_SCHEMA,
    Rejection,
    expand,
    locate,
    public_form,
    schema_digest,
    validate,
)
from backfill.types import Exchange, FileTouched, Finding, PalaceObject

ROW = make_exchange(
    "Why does the upload stop after 30 s?",
    "The proxy cuts it: I set proxy_read_timeout to 300 in nginx.conf.",
    (make_tool(head="upstream timed out (110)"),),
)
SPANS = [
    Candidate("setting", "agent_text", 20, 45, "set proxy_read_timeout to", 2.0),
    Candidate("error", "tools.0.head", 0, 18, "upstream timed out", 1.0),
]
FILES = (FileTouched("nginx.conf", "edited", "text"),)
GOOD = '{"c":"The upload stopped because the proxy cut it.","x":2,"r":["concept:upload_timeout","file:nginx_conf"]}'


def grown(text: str, row: Exchange = ROW) -> PalaceObject | Rejection:
    return expand(text, row, SPANS, FILES, generation=3, fingerprint="f" * 32)


def wire(core: str = "The proxy cut the upload.", x: object = 0, r: object = ("concept:upload_timeout",)) -> str:
    return json.dumps({"c": core, "x": x, "r": r})


def test_a_good_answer_becomes_the_object_it_stands_for() -> None:
    made = grown(GOOD)
    assert isinstance(made, PalaceObject)
    assert made.exchange_core == "The upload stopped because the proxy cut it."
    assert (made.specific_context, made.context_field) == ("upstream timed out", "tools.0.head")
    assert ROW.tools[0].head[made.context_start : made.context_end] == "upstream timed out"
    assert [(r.room_type, r.room_key, r.relevance) for r in made.room_assignments] == [
        ("concept", "upload_timeout", 1.0),
        ("file", "nginx_conf", 0.75),
    ]
    assert (made.tier, made.generation, made.files_touched) == ("llm", 3, FILES)
    assert made.tokens == -(-len((made.exchange_core + "\n" + made.specific_context).encode()) // 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "json"),
        (GOOD[:-1], "json"),
        (GOOD + "}", "json"),
        ('{"c":"The proxy cut the upload.","x":0}', "schema"),
        ('{"c":"The proxy cut the upload.","x":0,"r":["concept:upload_timeout"],"z":1}', "schema"),
        (wire(x="1"), "schema"),
        (wire(r=["concept:upload_timeout", 5]), "schema"),
        (wire(x=-1), "context_number"),
        (wire(""), "core_empty"),
        (wire(" \n "), "core_empty"),
        (wire("Fixed it."), "core_short"),
        (wire("The proxy \u0007 cut the upload."), "core_control"),
        (wire("word" + " and another one" * 25), "core_long"),
        (wire("so it goes on so it goes on so it goes on so it goes on"), "core_repeats"),
        (wire("I am not sure how to answer this question, but I will do my best."), "ungrounded"),
        (wire(r=["upload_timeout"]), "rooms"),
        (wire(r=["topic:upload_timeout"]), "rooms"),
    ],
)
def test_each_defect_has_its_reason(text: str, reason: str) -> None:
    made = grown(text)
    assert isinstance(made, Rejection)
    assert made.reason == reason


def test_a_room_that_the_exchange_does_not_speak_of_is_replaced_by_the_exchanges_own() -> None:
    made = grown(wire(r=["concept:quantum_chromodynamics"]))
    assert isinstance(made, PalaceObject)
    assert "quantum_chromodynamics" not in {r.room_key for r in made.room_assignments}
    assert made.room_assignments


def test_a_number_past_the_list_means_the_best_candidate_and_a_finding() -> None:
    made = grown(wire(x=9))
    assert isinstance(made, PalaceObject)
    assert made.specific_context == SPANS[0].text
    assert made.findings == (Finding("context_number", "9", "specific_context"),)


def test_a_third_sentence_is_dropped() -> None:
    made = grown(wire("The upload stops. The proxy cuts it. More is not said here."))
    assert isinstance(made, PalaceObject)
    assert made.exchange_core == "The upload stops. The proxy cuts it."


def test_no_listed_candidate_means_an_empty_context() -> None:
    made = expand(wire(), ROW, [], FILES, generation=0, fingerprint="")
    assert isinstance(made, PalaceObject)
    assert (made.specific_context, made.context_field, made.context_start, made.context_end) == ("", "user_text", 0, 0)


def test_a_context_that_stands_elsewhere_in_a_sibling_row_is_found_there() -> None:
    sibling = replace(ROW, tools=(make_tool(head="", tail="12:00 upstream timed out (110)"),))
    assert locate(sibling, SPANS[1]) == ("tools.0.tail", 6, 24)
    made = grown(GOOD, sibling)
    assert isinstance(made, PalaceObject)
    assert (made.context_field, made.context_start, made.context_end) == ("tools.0.tail", 6, 24)


def test_a_context_that_a_sibling_row_lacks_is_refused_for_that_row() -> None:
    made = grown(GOOD, replace(ROW, tools=()))
    assert made == Rejection("context_elsewhere", "the context stands in another row only")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"context_field": "thinking"}, "context_field"),
        ({"context_field": "tools.7.head", "context_start": 0, "context_end": 18}, "context_slice"),
        ({"context_start": 1}, "context_slice"),
        ({"context_start": 5, "context_end": 2}, "context_slice"),
        ({"room_assignments": ()}, "rooms"),
        ({"exchange_core": ""}, "core_empty"),
        ({"exchange_core": "One thing. Two things. Three things."}, "core_sentences"),
    ],
)
def test_validation_sees_what_expansion_would_never_make(change: dict[str, object], reason: str) -> None:
    made = grown(GOOD)
    assert isinstance(made, PalaceObject)
    assert validate(made, ROW) is None
    broken = validate(replace(made, **change), ROW)  # type: ignore[arg-type]
    assert broken is not None
    assert broken.reason == reason


def test_objects_of_every_tier_keep_the_public_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the engine set-up")
    good = grown(GOOD)
    assert isinstance(good, PalaceObject)
    made = [good]
    for row in exchanges(10):
        made.append(extract(row, generation=1, fingerprint="a"))
        made.append(raw_object(row, generation=1, fingerprint="a"))
    validator = jsonschema.Draft202012Validator(PUBLIC_SCHEMA)
    for each in made:
        assert list(validator.iter_errors(public_form(each))) == []
    wrong = {**public_form(good), "tier": "best"}
    assert [e.json_path for e in validator.iter_errors(wrong)] == ["$.tier"]


@pytest.mark.parametrize(
    ("core", "allowed"),
    [
        ("The proxy cut it.", True),
        ("Set a.b_c to 1.5 in C:\\\\x\\\\y.py! It works?", True),
        ("word " * 23 + "end.", True),
        ("word " * 24 + "end.", False),
        ("word " * 23 + "unendinglyunending.", False),
        ("1.0.0.0.", False),
        ('He said \\"no\\" twice.', True),
        ("修复了超时. 完成.", True),
        ("No end mark", False),
        (" Leading space.", False),
        ("A raw \n line end.", False),
        ("", False),
    ],
)
def test_the_automaton_takes_a_letter_some_words_and_an_end_mark(core: str, allowed: bool) -> None:
    core_json = pytest.importorskip("outlines_core.json_schema", reason="outlines_core comes with the engine set-up")
    pattern = core_json.build_regex_from_schema(WIRE_SCHEMA)
    text = f'{{"c": "{core}", "x": 3, "r": ["file:main_py", "concept:ab_b_c"]}}'
    assert bool(re.fullmatch(pattern, text)) is allowed


def test_the_digest_is_stable() -> None:
    assert schema_digest() == schema_digest()
    assert re.fullmatch("[0-9a-f]{32}", schema_digest())


@given(st.text(max_size=200), st.integers(-2, 4), st.lists(st.text(max_size=30), max_size=4))
def test_whatever_a_model_writes_gives_a_valid_object_or_a_reason(core: str, x: int, rooms: list[str]) -> None:
    row = exchanges(1)[0]
    spans = candidates(row)
    made = expand(json.dumps({"c": core, "x": x, "r": rooms}), row, spans, (), generation=0, fingerprint="")
    if isinstance(made, Rejection):
        assert made.reason
    else:
        assert validate(made, row) is None
