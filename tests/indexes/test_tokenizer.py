"""Terms for BM25: what stays whole, what is split, what is left out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.indexes.tokenizer import MAX_TERM_CHARS, tokenize


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("the retries failed", ["retri", "fail"]),
        ("fetchWithRetry", ["fetchwithretry", "fetch", "retri"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("snake_case_name", ["snake_case_name", "snake", "case", "name"]),
        ("src/retry.ts", ["src/retry.ts", "src", "retry.ts", "retri", "ts"]),
        ("a/src/retry.ts:42", ["a/src/retry.ts", "src/retry.ts", "src", "retry.ts", "retri", "ts", "42"]),
        ("C:\\Users\\me.py", ["c:/users/me.py", "users/me.py", "c", "user", "me.py", "py"]),
        ("1.2.3-beta", ["1.2.3-beta"]),
        ("v1.2.3", ["1.2.3"]),
        ("127.0.0.1:8080", ["127.0.0.1:8080", "127.0.0.1", "8080"]),
        ("TypeError: x", ["typeerror", "type", "error", "x"]),
        ("ECONNREFUSED", ["econnrefus", "econnrefused"]),
        ("E0382 TS2345 404", ["e0382", "0382", "ts2345", "ts", "2345", "404"]),
        ("2024-05-01T10:20:30Z", ["2024-05-01", "2024-05-01t10:20:30z"]),
        ("C++ and C#", ["c++", "c#"]),
        ("--dry-run", ["dry-run", "dri", "run"]),
        ("std::vector<int>", ["std::vector", "std", "vector", "int"]),
        ("数据库", ["数据", "据库"]),
        ("库", ["库"]),
        ("日本のAPI", ["日本", "本の", "api"]),
        ("Café naïve Straße", ["cafe", "naiv", "strass"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("don't", ["don"]),
        ("---- ____ ...", []),
        ("", []),
    ],
)
def test_terms_are_these(text: str, terms: list[str]) -> None:
    assert tokenize(text) == terms


def test_a_word_and_its_inflection_in_an_identifier_meet() -> None:
    assert set(tokenize("retry policies")) <= set(tokenize("src/retry_policy.ts"))


def test_hashes_stay_whole_and_long_runs_are_dropped() -> None:
    sha = "3548a77f0c9d4e5b8a1f2c3d4e5f60718293a4b5"
    assert tokenize(f"commit {sha}") == ["commit", sha]
    assert tokenize("aB3x" * 30) == []
    assert tokenize(("aB3dE5fG7hI9jK1lM3nO/" * 40) + "==") == []


def test_nine_megabytes_without_a_space_take_seconds_and_give_nothing() -> None:
    start = time.process_time()
    assert tokenize("aB3" * 3_000_000) == []
    assert time.process_time() - start < 10


@given(st.text(max_size=200))
def test_terms_are_bounded_folded_and_repeatable(text: str) -> None:
    terms = tokenize(text)
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in terms)
    assert not any(character.isspace() for term in terms for character in term)
    assert tokenize(text) == terms


@given(st.lists(st.text(max_size=30), max_size=6))
def test_a_chunk_gives_the_same_terms_anywhere(texts: list[str]) -> None:
    assert tokenize(" ".join(texts)) == [term for text in texts for term in tokenize(text)]
