"""Labelled sets as they are read: prompts and answers, claims of a sister set, categories, dates, broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill.errors import UsageError
from backfill.evaluation.corpus import category_of, parse_date, read_corpus
from tests.evaluation.sets import write_set


def test_the_answer_begins_where_the_prompt_ends_in_masked_text_too(tmp_path: Path):
    doc = {"id": "a", "scope": "s", "user": "fix it\nnow", "assistant": "done", "text": "\nnow\n\ndone"}
    corpus = read_corpus(write_set(tmp_path / "set", [doc]))
    assert (corpus.documents[0].user, corpus.documents[0].agent) == ("\nnow", "done")


@pytest.mark.parametrize(
    ("text", "user", "agent"),
    [
        ("Ann: hi there\nBob: hello\nAnn: bye", "Ann: hi there", "Bob: hello\nAnn: bye"),
        ("one entry\nof two lines", "one entry\nof two lines", ""),
        ("note: see\nthe page", "note: see\nthe page", ""),
    ],
)
def test_a_conversation_of_lines_is_cut_after_its_first_turn(tmp_path: Path, text: str, user: str, agent: str):
    corpus = read_corpus(write_set(tmp_path / "set", [{"id": "a", "scope": "s", "text": text}]))
    assert (corpus.documents[0].user, corpus.documents[0].agent) == (user, agent)


def test_unmasked_text_is_never_read(tmp_path: Path):
    doc = {"id": "a", "scope": "s", "text": "seen", "raw_text": "the secret subject line"}
    assert "secret" not in repr(read_corpus(write_set(tmp_path / "set", [doc])))


def test_observations_of_the_sister_set_reach_the_exchange_that_holds_their_turn(tmp_path: Path):
    docs = [
        {"id": "E1", "scope": "c1", "text": "Ann: a\nBob: b", "turns": ["D1", "D2"]},
        {"id": "E1", "scope": "c2", "text": "Cid: c\nDee: d", "turns": ["D1"]},
    ]
    folder = write_set(tmp_path / "talk_exchange", docs)
    claims: list[dict[str, Any]] = [
        {"id": "O1", "scope": "c2", "text": "Cid likes c.", "src": ["D1"], "date": "1:56 pm on 8 May, 2023"},
        {"id": "O2", "scope": "c1", "text": "Bob says b.", "src": ["D2", "D1"]},
        {"id": "O3", "scope": "c1", "text": "Nobody knows.", "src": ["D9"]},
    ]
    (tmp_path / "talk_observation").mkdir()
    (tmp_path / "talk_observation" / "corpus.jsonl").write_text("".join(json.dumps(c) + "\n" for c in claims))
    corpus = read_corpus(folder)
    assert [(c.scope, c.text, c.doc_ids) for c in corpus.claims] == [
        ("c2", "Cid likes c.", ("E1",)),
        ("c1", "Bob says b.", ("E1",)),
    ]
    assert corpus.claims[0].date_us == 1_683_554_160_000_000
    assert corpus.warnings == ("1 claims of corpus.jsonl name no document of this set",)


def test_two_documents_of_one_name_in_a_scope_are_refused(tmp_path: Path):
    docs = [{"id": "a", "scope": "s", "text": "one"}, {"id": "a", "scope": "s", "text": "two"}]
    with pytest.raises(UsageError, match="two documents of scope 's' are called 'a'"):
        read_corpus(write_set(tmp_path / "set", docs))


def test_a_broken_line_is_named(tmp_path: Path):
    folder = write_set(tmp_path / "set", [{"id": "a", "scope": "s", "text": "one"}])
    with (folder / "corpus.jsonl").open("a") as file:
        file.write("{broken\n")
    with pytest.raises(UsageError, match=r"corpus\.jsonl, line 2: not JSON"):
        read_corpus(folder)


def test_grades_need_their_header(tmp_path: Path):
    folder = write_set(tmp_path / "set", [{"id": "a", "scope": "s", "text": "one"}])
    (folder / "qrels.tsv").write_text("q1\ta\t1\n")
    with pytest.raises(UsageError, match="header"):
        read_corpus(folder)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("why is the cache cold", "conceptual"),
        ("the cache, cold after a deploy?", "conceptual"),
        ("cold cache after deploy", "phrase"),
        ("cleanup of src/cache.py", "exact term"),
        ("what does warmCache do", "exact term"),
        ("bump to 1.4.2", "exact term"),
    ],
)
def test_categories_follow_the_stated_rule(text: str, category: str):
    assert category_of(text) == category


def test_dates_of_several_forms():
    assert parse_date("2026-01-05T12:36:28.037Z") == 1_767_616_588_037_000
    assert parse_date("2026-07-31") == parse_date("31 July 2026")
    assert parse_date("last spring") is None


def test_summaries_of_the_sister_set_become_the_objects_of_the_same_documents(tmp_path: Path):
    docs = [
        {"id": "a", "scope": "s", "text": "long talk about the cache"},
        {"id": "a", "scope": "t", "text": "another talk", "exchange_core": "its own object"},
        {"id": "b", "scope": "s", "text": "talk without a summary"},
    ]
    folder = write_set(tmp_path / "talk_verbatim", docs)
    write_set(
        tmp_path / "talk_distilled",
        [
            {"id": "a", "scope": "s", "text": "Cache fixed.\n\nMore of it.", "core": "Cache fixed."},
            {"id": "a", "scope": "t", "text": "unused"},
            {"id": "c", "scope": "s", "text": "of nothing here"},
        ],
    )
    corpus = read_corpus(folder)
    assert [d.core for d in corpus.documents] == ["Cache fixed.", "its own object", ""]
    assert corpus.warnings == ("1 objects of talk_distilled name no document of this set",)
