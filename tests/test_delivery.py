"""Delivery never cuts a fact: cuts fall at line and sentence ends, what is missing is counted, cursors give it all."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill.cli import main
from backfill.cuts import WHOLE_UNIT, natural_cuts, unit_start
from backfill.delivery import (
    MIN_LIMIT_CHARS,
    Passage,
    best_match,
    exchange_page,
    hit_passages,
    passage_around,
    passage_from,
    query_terms,
)
from backfill.errors import UsageError
from backfill.hits import Hit, Source
from backfill.types import Exchange, ToolCall
from tests.bundle_fixture import SPECS, write_bundle

# Texts of short sentences, lines, blank lines, code and long runs without an end.
pieces = st.sampled_from(
    ["The limit is 45 s. ", "It failed! ", "Why? ", "e.g. this ", "v1.2.3 ", "x = 1\n", "\n\n", "    indented\n",
     "Values:\n", "word ", "数据在这里。", "\r\n", "(see below.) ", "Dr. Who ", "a" * 90, "\t", "1. ", "é"]
)  # fmt: skip
texts = st.sampled_from([0, 3, 40, 120]).flatmap(lambda n: st.lists(pieces, min_size=n, max_size=n)).map("".join)
long_texts = st.lists(pieces, min_size=70, max_size=90).map("".join)
limits = st.integers(MIN_LIMIT_CHARS, 400)
TERMS = query_terms("limit failed indented")


def exchange(user: str, agent: str, tools: tuple[ToolCall, ...] = (), thinking: str = "") -> Exchange:
    return Exchange(b"\1" * 16, b"\2" * 16, None, user, agent, 0, 2, 1, thinking, tools)


def hit(user: str, agent: str) -> Hit:
    return Hit("0" * 32, 1.0, "s", "p", "a", None, "", "", (), (), user, agent, Source("f", 0, 1))


def sound(passage: Passage, text: str, limit: int) -> None:
    assert text[passage.start : passage.end] == passage.text
    assert len(passage.text) <= WHOLE_UNIT * limit
    for start, end in passage.matches:
        assert query_terms(passage.text[start:end])
    if not passage.inside:
        for cut in (passage.start, passage.end):
            lead = text[:cut].rstrip()
            assert (
                cut in (0, len(text))
                or text[cut - 1] == "\n"
                or lead.rstrip("*_\"'`”’」』）)]").endswith(tuple(".!?。！？"))
            )


@settings(max_examples=50, deadline=None)
@given(texts, limits)
def test_the_best_passage_ends_where_sentences_and_lines_end(text: str, limit: int):
    passage = passage_around("agent_text", text, TERMS, limit)
    sound(passage, text, limit)
    assert (passage.before is None) == (passage.start == 0)
    assert (passage.after is None) == (passage.end == len(text))
    if len(text) <= limit:
        assert passage.text == text


@settings(max_examples=50, deadline=None)
@given(texts, limits)
def test_passages_that_follow_each_other_give_the_whole_text(text: str, limit: int):
    found, start = [], 0
    while True:
        passage = passage_from("agent_text", text, start, limit)
        sound(passage, text, limit)
        assert passage.start == start
        found.append(passage.text)
        if passage.after is None:
            break
        assert passage.end > start
        start = passage.end
    assert "".join(found) == text


@settings(max_examples=40, deadline=None)
@given(texts, limits, st.integers(0, 5000))
def test_a_passage_from_anywhere_begins_with_the_whole_sentence(text: str, limit: int, at: int):
    passage = passage_from("agent_text", text, at, limit)
    sound(passage, text, limit)
    assert passage.start <= min(at, len(text))
    if not passage.inside and text:
        assert passage.start in (0, len(text), *natural_cuts(text, 0, len(text)))


@settings(max_examples=25, deadline=None)
@given(texts, texts, texts, texts, st.integers(4 * MIN_LIMIT_CHARS, 1500))
def test_pages_give_the_whole_exchange(user: str, agent: str, output: str, thinking: str, limit: int):
    row = exchange(user, agent, (ToolCall("Bash", b"\1" * 16, (), (), "ls", output, "tail", 5),), thinking)
    found: dict[str, str] = {}
    cursor = None
    for _ in range(2000):
        page = exchange_page(row, cursor=cursor, limit_chars=limit)
        assert sum(len(p.text) for p in page.passages) <= (WHOLE_UNIT + 1) * limit
        for passage in page.passages:
            assert passage.start == len(found.get(passage.field, ""))
            found[passage.field] = found.get(passage.field, "") + passage.text
        cursor = page.cursor
        if cursor is None:
            break
    wanted = {"user_text": user, "agent_text": agent, "tools.0.input": "ls", "tools.0.head": output}
    assert found == {k: v for k, v in {**wanted, "tools.0.tail": "tail", "thinking": thinking}.items() if v}


def test_a_passage_is_cut_around_the_words():
    text = "Filler line one.\n" * 30 + "The gateway times out after 45 seconds. So we retry.\n" + "More filler.\n" * 30
    passage = passage_around("agent_text", text, query_terms("gateway retry"), 120)
    assert "The gateway times out after 45 seconds. So we retry.\n" in passage.text
    assert len(passage.text) <= 120
    assert [passage.text[a:b] for a, b in passage.matches] == ["gateway", "retry"]
    assert passage.marked().split("\n")[0] == f"[... {passage.start:,} characters cut before this; cursor agent_text:0]"
    assert passage.marked().endswith(f"after this; cursor agent_text:{passage.end}]")


def test_a_phrase_is_shown_where_it_stands_in_one_piece():
    text = "The lock is free. We wait on a row.\n" * 20 + "The row lock is free.\n" + "We wait on a lock.\n" * 20
    passage = passage_around("agent_text", text, query_terms('"row lock" wait'), 100)
    assert "The row lock is free." in passage.text
    assert query_terms('path:a.py error:E11 "Two Words"') >= {'"e11', '"two words', "a.py"}
    assert "path" not in query_terms("path:a.py")


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("It took 3.5 s. Then it failed.", ["It took 3.5 s. Then it failed."]),
        ("It took long. Then it failed.", ["It took long. ", "Then it failed."]),
        ("Use a tool, e.g. ruff. It is fast.", ["Use a tool, e.g. ruff. ", "It is fast."]),
        ("About approx. 45 items. Good.", ["About approx. 45 items. ", "Good."]),
        ("1. First\n2. Second\n", ["1. First\n", "2. Second\n"]),
        ("The values are:\n  45\n  46\n", ["The values are:\n  45\n", "  46\n"]),
        ("The values are:\r\n45\r\nend", ["The values are:\r\n45\r\n", "end"]),
        ('He said "stop." We did.', ['He said "stop." ', "We did."]),
        ("a.b.c/d.py is it! Yes", ["a.b.c/d.py is it! ", "Yes"]),
        ("数据在这里。下一句。", ["数据在这里。", "下一句。"]),
        ("turn one\n\n\nturn two", ["turn one\n\n\n", "turn two"]),
        ("", []),
    ],
)
def test_where_sentences_and_lines_end(text: str, cuts: list[str]):
    ends = [0, *natural_cuts(text, 0, len(text))]
    assert [text[a:b] for a, b in pairwise(ends)] == cuts


def test_one_endless_line_is_cut_at_spaces_and_says_so():
    text = "lorem ipsum " * 5000 + "needle " + "dolor sit " * 5000
    passage = passage_around("agent_text", text, query_terms("needle"), 200)
    assert "needle" in passage.text
    assert len(passage.text) <= 200
    assert passage.inside
    assert "inside a sentence" in passage.marked()
    assert not passage_around("agent_text", "x" * 300, (), 100).inside
    assert passage_around("agent_text", "x" * 10_000, (), 100).text == "x" * 100


def test_a_cursor_inside_an_endless_line_is_kept():
    text = "word " * 2000
    assert unit_start(text, 1000, 400) == 1000
    assert unit_start("One. " + "word " * 10 + "end.\n" + text, 20, 400) == 5


def test_matches_far_into_a_long_text_are_found():
    text = "Nothing here.\n" * 40_000 + "The zanzibar flag fixed it.\n" + "Nothing more.\n" * 1000
    assert "zanzibar flag fixed it." in passage_around("agent_text", text, query_terms("zanzibar"), 500).text


def test_a_hit_shows_prompt_and_answer_and_its_best_match():
    found = hit("Why does it fail? " * 100, "First.\n" * 200 + "The port was taken.\n" + "Last.\n" * 200)
    user, agent = hit_passages(found, query_terms("port taken"), 800)
    assert (user.field, agent.field) == ("user_text", "agent_text")
    assert len(user.text) <= 200
    assert len(agent.text) <= 600
    assert "The port was taken.\n" in agent.text
    assert "The port was taken." in best_match(found, query_terms("port taken")).text
    assert best_match(hit("", ""), TERMS).text == ""
    assert [p.field for p in hit_passages(hit("", "yes"), TERMS, 800)] == ["agent_text"]


def test_a_page_around_the_words_of_a_query():
    row = exchange("Why?", "First line.\n" * 100 + "The port was taken.\n" + "Last line.\n" * 100)
    page = exchange_page(row, query="port taken", limit_chars=400)
    assert "The port was taken.\n" in page.passages[1].text
    assert page.cursor == page.passages[1].after
    following = exchange_page(row, cursor=page.cursor, limit_chars=400)
    assert following.passages[0].start == page.passages[1].end


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "agent_text", "agent_text:-1", "agent_text:99", "tools.9.head:0", "tools.0.head:0", "agent_text:1:2"],
)
def test_a_cursor_that_no_answer_gave_is_refused(cursor: str):
    with pytest.raises(UsageError, match="is not a cursor"):
        exchange_page(exchange("a question", "an answer"), cursor=cursor)


def test_limits_are_checked():
    for limit in (0, 79, (1 << 20) + 1):
        with pytest.raises(UsageError, match="a limit is"):
            passage_from("agent_text", "text", 0, limit)
    with pytest.raises(UsageError, match="a limit is"):
        exchange_page(exchange("a", "b"), limit_chars=100)


def test_an_empty_exchange_has_an_empty_page():
    page = exchange_page(exchange("", ""))
    assert (page.passages, page.cursor) == ((), None)


# ---- on the command line


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(long_texts, texts)
def test_the_command_line_cuts_nowhere_else_and_its_cursors_give_all(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], agent: str, user: str
):
    path = tmp_path_factory.mktemp("b") / "bundle"
    spec = replace(SPECS[0], user=f"The limit? {user}", agent=agent, core="Set the limit", context="", file="")
    exchange_id = write_bundle(path, vectors=False, claims=False, specs=[spec]).id("retry")
    capsys.readouterr()
    assert main(["query", str(path), "limit failed", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)["hits"][0]
    assert (tree["user_text"], tree["agent_text"]) == (spec.user, spec.agent)
    assert tree["agent_text"][tree["match"]["start"] : tree["match"]["end"]] == tree["match"]["text"] or (
        tree["match"]["field"] == "user_text"
    )
    found: dict[str, str] = {}
    cursor: list[str] = []
    while True:
        assert main(["show", str(path), exchange_id, "--limit", "320", "--json", *cursor]) == 0
        page = json.loads(capsys.readouterr().out)
        for part in page["passages"]:
            whole = spec.user if part["field"] == "user_text" else spec.agent
            spans = tuple((a, b) for a, b in part["matches"])
            names = ("field", "text", "start", "end", "total", "inside")
            sound(Passage(**{n: part[n] for n in names}, matches=spans), whole, 320)
            found[part["field"]] = found.get(part["field"], "") + part["text"]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert found == {"user_text": spec.user, "agent_text": spec.agent}
