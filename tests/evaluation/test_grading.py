"""Grading without labels: kappas on published tables, the vote, the cache, and answers that are no grades."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill.engines.base import Answer, Request
from backfill.evaluation.agreement import cohen_kappa, fleiss_kappa
from backfill.evaluation.graders import Grader, Pair, against_labels, grade_pool, grade_with, majority, pool_of


class Judge:
    """A scripted engine: grades by the number of the query's words in the exchange; answers in reverse order."""

    window = 3
    deterministic = True

    def __init__(self, name: str, shift: int = 0, broken: str = "") -> None:
        self.name, self.shift, self.broken, self.asked = name, shift, broken, 0
        self.held: list[Answer] = []

    def identity(self) -> dict[str, Any]:
        return {"judge": self.name}

    def submit(self, request: Request) -> None:
        self.asked += 1
        query, text = _parts(request.user)
        shared = len(set(query.split()) & set(text.split()))
        body = self.broken or json.dumps({"grade": max(0, min(3, shared + self.shift))})
        self.held.append(Answer(request.key, body, "stop"))

    def poll(self, timeout_s: float) -> list[Answer]:
        answers, self.held = self.held[::-1], []
        return answers

    def close(self) -> None:
        pass


def _parts(user: str) -> tuple[str, str]:
    lines = user.split("\n")
    a, b, c, d = [n for n, line in enumerate(lines) if line.startswith("~~~~~~~~")]
    return "\n".join(lines[a + 1 : b]), "\n".join(lines[c + 1 : d])


PAIRS = [
    Pair("q1", "a", "cold cache", "the cache was cold"),
    Pair("q1", "b", "cold cache", "a cache"),
    Pair("q2", "a", "login token", "the cache was cold"),
]


def test_cohen_on_the_textbook_table():
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: kappa = .4.
    a = [1] * 25 + [0] * 25
    b = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(a, b) == pytest.approx(0.4)
    assert cohen_kappa([1, 1], [1, 1]) == 1.0


def test_quadratic_weights_forgive_a_near_grade():
    assert cohen_kappa([0, 1, 2, 3], [0, 1, 2, 2], weighted=True) > cohen_kappa(
        [0, 1, 2, 3], [0, 1, 2, 0], weighted=True
    )


def test_fleiss_on_the_published_table():
    # Fleiss (1971) as worked in textbooks: ten items, fourteen raters, five grades: kappa = .210.
    counts = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    ratings = [[grade for grade, n in enumerate(row) for _ in range(n)] for row in counts]
    assert fleiss_kappa(ratings) == pytest.approx(0.210, abs=0.0005)
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[1, 2], [1]])


def test_a_pair_is_graded_once_even_in_a_later_run(tmp_path: Path):
    judge = Judge("one")
    first = grade_with(Grader("one", judge), PAIRS, tmp_path)
    assert first == {("q1", "a"): 2, ("q1", "b"): 1, ("q2", "a"): 0}
    assert judge.asked == 3
    log = next(tmp_path.glob("grades-*.jsonl"))
    log.write_text(log.read_text() + '{"key": "torn')
    again = Judge("one")
    assert grade_with(Grader("one", again), PAIRS, tmp_path) == first
    assert again.asked == 0


def test_the_majority_wins_and_ties_go_to_the_tie_break(tmp_path: Path):
    graders = [Grader("even", Judge("even")), Grader("harsh", Judge("harsh", -1))]
    lower = grade_pool(PAIRS, graders, tmp_path)
    assert lower.voted == {("q1", "a"): 1, ("q1", "b"): 0, ("q2", "a"): 0}
    assert lower.agreement.n_ties == 2
    broken = grade_pool(PAIRS, graders, tmp_path, tie_break=Grader("kind", Judge("kind", 1)))
    assert broken.voted[("q1", "a")] == 3
    three = grade_pool(PAIRS, [*graders, Grader("also", Judge("also"))], tmp_path)
    assert three.voted == three.by_grader["even"]
    assert three.agreement.fleiss is not None
    assert three.grades()["q1"] == {"a": 2.0, "b": 1.0}
    assert majority([2, 2, 1]) == 2
    assert majority([1, 2]) is None


@pytest.mark.parametrize("text", ['{"grade": 7}', '{"grade": "3"}', "3", '{"grade": 1} ignore that, {"grade": 3}', ""])
def test_an_answer_that_is_no_grade_is_asked_twice_and_left_out(tmp_path: Path, text: str):
    judge = Judge("broken", broken=text or "{}")
    graded = grade_pool(PAIRS, [Grader("broken", judge)], tmp_path)
    assert graded.voted == {}
    assert graded.agreement.n_ungraded == 3
    assert judge.asked == 6


def test_the_pool_is_every_top_ten(tmp_path: Path):
    runs = [{"q1": ["a", "b"], "q2": ["b"]}, {"q1": [f"d{n}" for n in range(12)]}]
    texts = {name: f"text of {name}" for name in ("a", "b", *(f"d{n}" for n in range(12)))}
    pool = pool_of(runs, {"q1": "one", "q2": "two"}, texts)
    assert [(p.query_id, p.doc) for p in pool if p.query_id == "q2"] == [("q2", "b")]
    assert len(pool) == 13
    assert ("q1", "d11") not in {(p.query_id, p.doc) for p in pool}


def test_a_grader_is_measured_against_labels():
    graded = {("q1", "a"): 3, ("q1", "b"): 2, ("q2", "a"): 0, ("q2", "b"): 1}
    found = against_labels(graded, {"q1": {"a": 1.0}, "q2": {"b": 2.0}})
    assert (found["precision"], found["recall"], found["pairs"], found["kappa"]) == (0.5, 0.5, 4.0, 0.0)
