"""BM25 over sets without a bundle: a common package's and ours, by hand on a small set and through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backfill.cli import main
from backfill.errors import UsageError
from backfill.evaluation.corpus import read_corpus
from backfill.evaluation.words import measure_words
from tests.evaluation.sets import small_set, write_set

DOCUMENTS = [
    {"id": "a", "scope": "s", "text": "The parser reads src/cache_store.py line by line."},
    {"id": "b", "scope": "s", "text": "A cache was cleared; the store was closed."},
    {"id": "c", "scope": "t", "text": "cache_store once more, in another scope"},
]
QUERIES = [{"id": "q", "scope": "s", "text": "cache_store"}, {"id": "r", "scope": "s", "text": "closing a store"}]


def test_ours_finds_parts_of_identifiers_and_both_rank_in_their_scope(tmp_path: Path):
    folder = write_set(tmp_path / "set", DOCUMENTS, QUERIES, [("q", "b", 1), ("r", "b", 1)])
    found = measure_words(read_corpus(folder))
    # The common tokenizer keeps cache_store whole, which only a has; c has it too, but in another scope.
    assert found["stock-bm25"].mrr.tolist() == [0.0, 1.0]
    assert found["verbatim-bm25"].mrr.tolist() == [1.0, 1.0]


def test_the_command_prints_a_line_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folders = [str(small_set(tmp_path / name)) for name in ("one", "two")]
    assert main(["eval", "words", "--corpus", *folders]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["set", "one", "two"]
    assert main(["eval", "words", "--corpus", folders[0], "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["sets"][0]["configurations"][0]["mrr"] == 1.0
    assert tree["sets"][0]["queries"] == 12


def test_a_set_without_grades_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no query has a grade"):
        measure_words(read_corpus(write_set(tmp_path / "set", DOCUMENTS, QUERIES)))
