"""The baseline: terms and scores worked by hand, and the published figures of the shared sets."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from backfill.evaluation.corpus import read_corpus
from backfill.evaluation.metrics import measure_run
from backfill.evaluation.reference import StockBm25, stock_terms

# MRR, nDCG@10 and R@10 of a common package with the same tokenizer, one index a scope.
PUBLISHED = {
    "entire_cli": (0.531, 0.387, None),
    "locomo_exchange": (0.541, 0.558, 0.709),
    "locomo_session": (0.757, 0.781, None),
    "toon_memory": (0.934, 0.888, None),
}


def test_terms_lose_stop_words_single_letters_and_endings():
    assert stock_terms("The 3 caches were cleaned by a_job in src/cache.py") == [
        "cach", "were", "clean", "a_job", "src", "cach", "py",
    ]  # fmt: skip


def test_a_score_worked_by_hand():
    scores = StockBm25(["cache cache miss", "miss", "other words here"]).scores("cache miss")
    mean = (3 + 1 + 3) / 3  # "here" is no stop word of this list
    cache = math.log(1 + (3 - 1 + 0.5) / 1.5) * 2 / (2 + 1.5 * (0.25 + 0.75 * 3 / mean))
    miss = math.log(1 + (3 - 2 + 0.5) / 2.5) * 1 / (1 + 1.5 * (0.25 + 0.75 * 3 / mean))
    assert scores[0] == pytest.approx(cache + miss)
    assert scores[2] == 0.0


def test_nothing_is_found_in_nothing():
    assert StockBm25(["", "the"]).scores("cache").tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["toon_memory", "locomo_session", pytest.param("entire_cli", marks=pytest.mark.slow),
                                  pytest.param("locomo_exchange", marks=pytest.mark.slow)])  # fmt: skip
def test_published_figures_are_met_within_a_hundredth(shared_data: Path, name: str):
    corpus = read_corpus(shared_data / "retrieval" / name)
    scopes = {d.scope: [x for x in corpus.documents if x.scope == d.scope] for d in corpus.documents}
    indexes = {scope: StockBm25([d.text for d in docs]) for scope, docs in scopes.items()}
    run = {}
    for query in corpus.queries:
        scores = indexes[query.scope].scores(query.text)
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0]
        run[query.query_id] = [scopes[query.scope][i].doc_id for i in order]
    found = measure_run(run, corpus.grades).means()
    for measure, expected in zip(("mrr", "ndcg10", "r10"), PUBLISHED[name], strict=True):
        assert expected is None or found[measure] == pytest.approx(expected, abs=0.01)
