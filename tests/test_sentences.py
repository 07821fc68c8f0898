"""Patterns for ASCII alone find what the general ones find, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backfill import rooms, sentences
from backfill.fidelity import handles

PIECES = st.sampled_from(
    [
        *("retry_timeout", "=", " ", "30 s", "`a.b()`", '"quoted text"', "src/net/client.py", "v1.2.3", "x-y", "don't"),
        *("ENOENT", "\n", ".", ":", "3103e4d", "http://a.b/c", "localhost:80", "--flag", "(", ")", "\x1c"),
    ]
)
ASCII = st.text(st.characters(max_codepoint=127), max_size=120) | st.lists(PIECES, max_size=14).map("".join)


@given(ASCII)
def test_ascii_patterns_agree_with_the_general_ones(text: str) -> None:
    for quick, general in ((handles._pattern_for(text), handles._HANDLE), (rooms._ASCII_TERM, rooms._TERM)):
        assert [(m.lastgroup, m.span()) for m in quick.finditer(text)] == [
            (m.lastgroup, m.span()) for m in general.finditer(text)
        ]
    assert sentences._ASCII_WORD.findall(text.lower()) == sentences._WORD.findall(text.lower())


def test_words_of_other_scripts_are_found() -> None:
    assert sentences.lower_words("The Größe of 修复超时 ab") == ["the", "größe", "修复超时"]
    assert sentences.lower_words("Abc_DEF-x1 of 12345") == ["abc", "def", "12345"]
