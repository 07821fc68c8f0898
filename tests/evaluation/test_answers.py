"""Delivered answers: what is whole, what is cut, McNemar's counts; queries of one's own from prompts, logs, engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill.bundle import Bundle
from backfill.cli import main
from backfill.engines.base import Answer, Request
from backfill.evaluation import own_queries
from backfill.evaluation.collection import read_collection
from backfill.evaluation.corpus import read_corpus, read_queries
from backfill.evaluation.delivered import (
    Question,
    Source,
    caveats,
    change,
    good_given_hit,
    judge,
    questions_of,
    raw_cut,
    whole_facts,
)
from backfill.evaluation.own_queries import later_questions, read_log, write_queries, written_questions
from tests import bundle_fixture
from tests.evaluation.sets import write_set

FILLER = "We talked about the weather for a while and agreed on nothing. "
FACT = "The gateway limit is 45 requests a minute."
QUESTION = Question("q", "what is the gateway limit", ("45 requests a minute",), frozenset({"b"}))


def test_raw_text_is_cut_in_the_middle_of_the_fact_and_ours_is_not():
    ranked = [Source("a", FILLER * 4), Source("b", FACT + " " + FILLER * 2, ("limit: 45 requests a minute",))]
    budget = len(FILLER * 4) + FACT.index("a minute") - 1
    raw = judge(QUESTION, raw_cut(ranked, budget))
    assert (raw.useful, raw.grounded, raw.cut) == (False, False, True)
    ours = whole_facts(ranked, QUESTION.text, budget)
    assert judge(QUESTION, ours) == judge(QUESTION, ours.__class__((("b", "limit: 45 requests a minute"),)))
    assert judge(QUESTION, ours).grounded
    assert ours.n_chars <= budget


def test_an_answer_from_elsewhere_is_useful_but_not_grounded():
    verdict = judge(QUESTION, raw_cut([Source("other", FACT)], 500))
    assert (verdict.useful, verdict.grounded) == (True, False)


def test_pieces_are_whole_lines_and_sentences_of_their_documents():
    ranked = [Source(f"d{n}", f"{FILLER}{FACT} {FILLER}" * 9, (f"line {n} of the list",)) for n in range(9)]
    delivered = whole_facts(ranked, QUESTION.text, 3000)
    assert delivered.n_chars <= 3000
    for _, text in delivered.pieces:
        assert text in {source.distilled[0] for source in ranked} or text.rstrip().endswith((".", "nothing."))


def test_changes_are_counted_by_question():
    before = {f"q{n}": n < 117 for n in range(132)}
    after = {f"q{n}": n < 124 for n in range(132)}
    found = change(before, after)
    assert (found.before, found.after, found.gained, found.lost) == (117, 124, 7, 0)
    assert found.p == pytest.approx(0.015625)
    assert good_given_hit({"a": True, "b": False, "c": True}, {"a": True, "b": True, "c": False}) == 0.5


def test_the_report_prints_its_own_caveats():
    text = " ".join(caveats(40, same_family=True, synthesised=12, llm_judges=1))
    assert all(word in text for word in ("40 questions", "family", "12 questions were written by an engine", "judged"))


def test_evidence_is_the_turn_and_a_short_answer_does_not_count(tmp_path: Path):
    docs = [{"id": "E1", "scope": "c", "text": "Ann: it costs 2 coins\nBob: fine", "turns": ["D1", "D2"]}]
    queries = [{"id": "q1", "scope": "c", "text": "cost?", "answer": "2", "evidence": ["D1"]},
               {"id": "q2", "scope": "c", "text": "unknown?", "answer": "x", "evidence": ["D9"]}]  # fmt: skip
    corpus = read_corpus(write_set(tmp_path / "set", docs, queries))
    assert questions_of(corpus.queries, corpus.documents) == [
        Question("q1", "cost?", ("Ann: it costs 2 coins",), frozenset({"E1"}))
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bundle_fixture.Fixture:
    spec = bundle_fixture.Spec(
        "later", "s9", "shop", "2026-04-01T09:00:00",
        "Please look into the cart. How did we fix the deadlock of migration 0042 back then?", "We ordered the locks.",
        "Asked about the deadlock",
    )  # fmt: skip
    specs = (*bundle_fixture.SPECS, spec)
    return bundle_fixture.write_bundle(tmp_path_factory.mktemp("made") / "bundle", specs=specs)


def test_later_questions_are_taken_from_prompts(made: bundle_fixture.Fixture):
    found = later_questions(read_collection(Bundle.open(made.path)))
    assert [q.text for q in found] == ["How did we fix the deadlock of migration 0042 back then?"]
    assert not found[0].synthesised


class Writer:
    """Writes a question a prompt; one of them is no question."""

    window = 2
    deterministic = True

    def __init__(self) -> None:
        self.held: list[Answer] = []
        self.n = 0

    def identity(self) -> dict[str, Any]:
        return {"writer": "scripted"}

    def submit(self, request: Request) -> None:
        self.n += 1
        text = "nothing" if self.n == 1 else json.dumps({"question": f"How was problem {self.n} solved at last?"})
        self.held.append(Answer(request.key, text, "stop"))

    def poll(self, timeout_s: float) -> list[Answer]:
        answers, self.held = self.held[::-1], []
        return answers

    def close(self) -> None:
        pass


def test_written_questions_are_marked_and_name_their_source(made: bundle_fixture.Fixture):
    collection = read_collection(Bundle.open(made.path))
    queries, source = written_questions(collection, Writer(), 4)
    assert len(queries) == 3
    assert all(q.synthesised for q in queries)
    assert set(source.values()) <= {xid.hex() for xid in collection.exchange_ids}


def test_a_log_is_read_line_by_line_and_comes_back_as_queries(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"text": "cold cache"}\n{"query": "login tokens"}\nplain words\ncold cache\n\n{broken\n{"other": 1}\n'
    )
    assert [q.text for q in read_log(log)] == ["cold cache", "login tokens", "plain words"]
    write_queries(tmp_path / "queries.jsonl", read_log(log))
    assert [q.text for q in read_queries(tmp_path / "queries.jsonl")] == ["cold cache", "login tokens", "plain words"]


def test_the_command_writes_queries(made: bundle_fixture.Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "own.jsonl"
    assert main(["eval", "queries", str(made.path), "--out", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["queries"], record["asked"], record["synthesised"]) == (1, 1, 0)
    assert read_queries(out)[0].category == own_queries.category_of(read_queries(out)[0].text)
