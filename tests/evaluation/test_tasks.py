"""The tasks beside the grid, over a small set: answers delivered, engines that grade a set with and without labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill.evaluation import tasks
from backfill.evaluation.corpus import Query
from backfill.evaluation.evaluate import Labels, evaluate
from backfill.evaluation.graders import Grader
from backfill.evaluation.grid import load_grid
from backfill.evaluation.prepare import prepare
from backfill.evaluation.report import page, table_lines
from tests import bundle_fixture
from tests.evaluation.test_evaluate import labels_of
from tests.evaluation.test_grading import Judge

GRID = """
configurations:
  - {name: stock-bm25, signals: [stock]}
  - {name: distilled-vector, signals: ["vector core,context"]}
  - {name: default, product: default, against: stock-bm25}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bundle_fixture.Fixture:
    return bundle_fixture.write_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def test_engines_make_labels_where_there_are_none(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    queries = (Query("q1", "deadlock of the migration"), Query("q2", "licence"))
    prepared = prepare(made.path, Labels("x", queries, {}), cache=tmp_path / "c", trust_encoder=True,
                       needs_grades=False)  # fmt: skip
    graders = [Grader("one", Judge("one")), Grader("two", Judge("two"))]
    labelled, lines = tasks.grade(prepared, load_grid(grid), graders, None, tmp_path / "out")
    assert labelled.labels.grades["q1"][made.id("migrate")] > 0
    assert "Cohen's kappa (quadratic) one and two: 1.00" in lines
    assert any("Graders were not measured here" in line for line in lines)
    assert "by one alone: too few graded queries to compare anything" in lines
    header, *rows = (tmp_path / "out" / "grades.tsv").read_text().splitlines()
    assert header == "query\tdoc\tgrade"
    assert len(rows) == sum(map(len, labelled.labels.grades.values()))


def test_graders_are_measured_where_there_are_labels(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    prepared = prepare(made.path, labels_of(made), cache=tmp_path / "c", trust_encoder=True)
    same, lines = tasks.grade(prepared, load_grid(grid), [Grader("one", Judge("one"))], None, tmp_path / "out")
    assert same.labels is prepared.labels
    assert any(line.startswith("one against the labels, ") for line in lines)
    pairs = [line for line in lines if line.startswith("by one alone, 4 queries: default ")]
    assert len(pairs) == 1
    noted = evaluate(prepared.bundle, prepared.scores, prepared.labels, load_grid(grid), notes=lines)
    assert table_lines(noted)[: len(lines)] == lines
    assert page(noted, "x").index("one against the labels") < page(noted, "x").index("All configurations")


def test_a_limit_grades_the_first_queries_only(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    prepared = prepare(made.path, labels_of(made), cache=tmp_path / "c", trust_encoder=True)
    judge = Judge("one")
    tasks.grade(prepared, load_grid(grid), [Grader("one", judge)], None, tmp_path / "out", 1)
    assert 0 < judge.asked <= 10
