"""Measures against hand-worked values and against TREC's own scorer."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.errors import UsageError
from backfill.evaluation import trec
from backfill.evaluation.metrics import measure_run

GRADES = {"q1": {"a": 2.0, "b": 1.0, "c": 0.0}, "q2": {"d": 1.0}, "q3": {"a": 1.0}}
RUN = {"q1": ["c", "b", "a"], "q2": ["x", "y"], "q3": ["a"]}


def test_values_worked_by_hand():
    found = measure_run(RUN, GRADES)
    assert found.mrr.tolist() == [0.5, 0.0, 1.0]
    assert found.p1.tolist() == [0.0, 0.0, 1.0]
    assert found.r5.tolist() == [1.0, 0.0, 1.0]
    # q1: gains 0, 1, 2 at ranks 1 to 3 over 2, 1, 0.
    ideal = 2.0 + 1.0 / np.log2(3)
    assert found.ndcg10[0] == pytest.approx((1.0 / np.log2(3) + 2.0 / np.log2(4)) / ideal)
    assert found.mean_grade.tolist() == [0.3, 0.0, 0.1]


def test_relevant_moves_the_first_hit():
    assert measure_run(RUN, GRADES, relevant=2.0).mrr[0] == pytest.approx(1 / 3)
    assert measure_run(RUN, GRADES, relevant=2.0).r10.tolist() == [1.0, 0.0, 0.0]


def test_a_query_without_a_ranking_counts_zero():
    assert measure_run({}, GRADES).means()["mrr"] == 0.0


docs = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=14)
graded = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.integers(0, 3), min_size=1)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), st.tuples(docs, graded), min_size=1))
def test_the_outside_scorer_agrees_on_written_runs(tmp_path_factory: pytest.TempPathFactory, cases: dict):
    path = tmp_path_factory.mktemp("run") / "one.trec"
    trec.write_run(path, "one", [(query, found) for query, (found, _) in cases.items()])
    grades = {query: {d: float(g) for d, g in judged.items()} for query, (_, judged) in cases.items()}
    ours = measure_run(trec.read_run(path), grades)
    with path.open() as file:
        run = pytrec_eval.parse_run(file)
    judged = {query: {d: int(g) for d, g in by_doc.items()} for query, by_doc in grades.items()}
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "ndcg_cut_10", "recall_5", "recall_10", "P_1"})
    result = theirs.evaluate(run)
    names = {"recip_rank": ours.mrr, "ndcg_cut_10": ours.ndcg10, "recall_5": ours.r5, "recall_10": ours.r10,
             "P_1": ours.p1}  # fmt: skip
    for position, query in enumerate(grades):
        for name, values in names.items():
            expected = result[query][name] if cases[query][0] else 0.0
            assert values[position] == pytest.approx(expected, abs=1e-9), (query, name)


def test_ids_with_white_space_survive_the_format(tmp_path):
    path = tmp_path / "run.trec"
    assert trec.write_run(path, "a name", [("q 1", ["doc one", "two%"])]) == 2
    assert path.read_text() == "q%201 Q0 doc%20one 1 2 a_name\nq%201 Q0 two%25 2 1 a_name\n"


def test_a_broken_run_names_the_line(tmp_path):
    path = tmp_path / "run.trec"
    path.write_text("q Q0 d 1 1 t\nq Q0 d\n")
    with pytest.raises(UsageError, match="line 2"):
        trec.read_run(path)
