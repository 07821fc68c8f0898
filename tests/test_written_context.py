"""A detail that a model writes out is a literal span of the exchange, or refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from exchanges import exchanges, make_exchange, make_tool
from hypothesis import given
from hypothesis import strategies as st

from backfill.config import DistillConfig, EngineConfig
from backfill.distill import distill, distill_fingerprint
from backfill.engines import make_engine
from backfill.extractive import candidates, field_text
from backfill.prompts import build_prompt
from backfill.schema import Rejection, expand, validate
from backfill.types import PalaceObject
from backfill.wire import WIRE_SCHEMAS
from backfill.written_context import align

ROW = make_exchange(
    "Why does the upload stop after 30 s?",
    "The proxy cuts it: I set `proxy_read_timeout` to 300\n  in nginx.conf, and the upload now ends.",
    (make_tool(head="12:00 upstream timed out (110)", tail="1 failed"),),
)
WRITTEN = DistillConfig(context="written")


def aligned(said: str) -> str | None:
    found = align(said, ROW)
    return None if found is None else field_text(ROW, found[0])[found[1] : found[2]]


@pytest.mark.parametrize(
    ("said", "span"),
    [
        ("upstream timed out (110)", "upstream timed out (110)"),
        ("  `Upstream  TIMED out` ", "upstream timed out"),
        ("set proxy_read_timeout to 300 in nginx.conf", "set `proxy_read_timeout` to 300\n  in nginx.conf"),
        ("after 30 s", "after 30 s"),
        ("upstream timed out.", "upstream timed out"),
        ("the error upstream timed out (110)", "upstream timed out (110)"),
        ("1 failed", "1 failed"),
    ],
)
def test_what_was_copied_is_found_whatever_its_spaces_case_and_marks(said: str, span: str) -> None:
    assert aligned(said) == span


@pytest.mark.parametrize(
    "said",
    [
        "proxy_read_timeout to 3",  # a number cut short
        "pstream timed",  # from the middle of a word
        "set proxy_send_timeout to 300",  # another name
        "upstream refused the connection",
        "nginx timed",
        "",
        "``",
    ],
)
def test_what_the_exchange_does_not_say_is_refused(said: str) -> None:
    assert aligned(said) is None


def test_a_text_of_the_answer_goes_before_the_same_text_elsewhere() -> None:
    row = make_exchange("Raise the limit to 40.", "Done: raised the limit to 40.")
    assert align("the limit to 40", row) == ("agent_text", 13, 28)


@given(st.data())
def test_any_run_of_words_of_a_text_is_found_as_itself(data: st.DataObject) -> None:
    words = ROW.agent_text.split()
    start = data.draw(st.integers(0, len(words) - 1))
    run = words[start : start + data.draw(st.integers(1, 8))]
    found = align(" ".join(run), ROW)
    assert found is not None
    span = field_text(ROW, found[0])[found[1] : found[2]]
    assert re.sub(r"\W+", "", span).lower() == re.sub(r"\W+", "", "".join(run)).lower()


@given(st.text(max_size=120))
def test_whatever_is_said_the_span_is_one_of_the_exchange_or_there_is_none(said: str) -> None:
    found = align(said, ROW)
    if found is not None:
        name, start, end = found
        assert 0 <= start < end <= len(field_text(ROW, name))


def test_an_answer_expands_to_an_object_whose_context_is_its_slice() -> None:
    text = json.dumps({"c": "The proxy cut the upload.", "x": "Upstream timed out", "r": ["concept:upload_timeout"]})
    made = expand(text, ROW, [], (), generation=1, fingerprint="f", context="written")
    assert isinstance(made, PalaceObject)
    assert (made.specific_context, made.context_field) == ("upstream timed out", "tools.0.head")
    assert validate(made, ROW) is None
    empty = expand(
        text.replace("Upstream timed out", ""), ROW, [], (), generation=1, fingerprint="f", context="written"
    )
    assert isinstance(empty, PalaceObject)
    assert empty.specific_context == ""


def test_an_answer_with_a_made_up_detail_is_refused_and_says_so() -> None:
    text = json.dumps({"c": "The proxy cut the upload.", "x": "error 502", "r": ["concept:upload_timeout"]})
    made = expand(text, ROW, [], (), generation=1, fingerprint="f", context="written")
    assert made == Rejection("context_unaligned", "'error 502' does not stand in the text")
    number = expand(text.replace('"error 502"', "2"), ROW, [], (), generation=1, fingerprint="f", context="written")
    assert isinstance(number, Rejection)
    assert number.reason == "schema"


def test_the_prompt_lists_no_candidates_and_asks_for_the_words() -> None:
    spans = candidates(ROW)
    written = build_prompt(ROW, spans, budget_tokens=900, context="written")
    pointed = build_prompt(ROW, spans, budget_tokens=900)
    assert written.n_candidates == 0 < pointed.n_candidates
    assert "andidate" not in written.system + written.user
    assert "copied from the text letter for letter" in written.system


def test_the_schema_takes_a_few_words_or_none() -> None:
    core_json = pytest.importorskip("outlines_core.json_schema", reason="outlines_core comes with the engine set-up")
    pattern = core_json.build_regex_from_schema(WIRE_SCHEMAS["written"])
    for detail, allowed in [("", True), ("a.b = 1", True), (r"say \"no\"", True), ("w " * 11 + "w", True),
                            ("w " * 12 + "w", False), ("a  b", False)]:  # fmt: skip
        text = f'{{"c": "The proxy cut it.", "x": "{detail}", "r": ["file:main_py"]}}'
        assert bool(re.fullmatch(pattern, text)) is allowed, detail


def test_a_run_with_written_contexts_gives_literal_ones_under_a_fingerprint_of_its_own() -> None:
    engine = make_engine(EngineConfig(kind="scripted"))
    (shard,) = distill([("s", exchanges(30))], WRITTEN, fingerprint="f", engine=engine)
    assert shard.stats.llm >= 15
    for row, made in zip(exchanges(30), shard.objects, strict=True):
        assert field_text(row, made.context_field)[made.context_start : made.context_end] == made.specific_context
    with_text = [made for made in shard.objects if made.tier == "llm" and made.specific_context]
    assert len(with_text) >= 15
    scripted = EngineConfig(kind="scripted")
    assert distill_fingerprint(WRITTEN, scripted) != distill_fingerprint(replace(WRITTEN, context="pointed"), scripted)
