"""Quick patterns find what plain ones find, and nothing else."""

from __future__ import annotations

import itertools
import re
import string
import sys

from hypothesis import given
from hypothesis import strategies as st

from backfill import prompts, rooms, sentences
from backfill.fidelity import handles, omissions
from backfill.text import FOLDS_TO_ASCII, sentence_spans

PIECES = st.sampled_from(
    [
        *("retry_timeout", "=", " ", "30 s", "`a.b()`", '"quoted text"', "src/net/client.py", "v1.2.3", "x-y", "don't"),
        *("ENOENT", "\n", ".", ":", "3103e4d", "http://a.b/c", "localhost:80", "--flag", "(", ")", "\x1c"),
    ]
)
ASCII = st.text(st.characters(max_codepoint=127), max_size=120) | st.lists(PIECES, max_size=14).map("".join)

# How a sentence ends, as two patterns in turn.
PLAIN_STOP = re.compile(r"[.!?][*_\"'`)\]]*[ \t]+(?=\S)|[。！？]+[」』”）]*")
ENDS = st.text(st.sampled_from(".!?。！？」』”）*_\"'`)] \t\n\x1c\u3000a9é中-[x"), max_size=24)
# Words of trouble among letters that Unicode folds to ASCII ones: a dotted I, a long s, the sign of Kelvin.
FOLDED = st.lists(
    st.sampled_from(
        [
            *("error", "FAIL", "panic", "leaK", "crash", "cannot", "can't", "can\u2019t", "could", "not", "unable to"),
            *("hung", "错误"),
            *"\u0130\u0131\u017f\u212asSkKiI n'x\n",
        ]
    ),
    max_size=6,
).map("".join)


@given(ASCII)
def test_ascii_patterns_agree_with_the_general_ones(text: str) -> None:
    for quick, general in ((handles._pattern_for(text), handles._HANDLE), (rooms._ASCII_TERM, rooms._TERM)):
        assert [(m.lastgroup, m.span()) for m in quick.finditer(text)] == [
            (m.lastgroup, m.span()) for m in general.finditer(text)
        ]
    assert sentences._ASCII_WORD.findall(text.lower()) == sentences._WORD.findall(text.lower())


@given(ENDS)
def test_sentences_end_where_the_plain_pattern_says(text: str) -> None:
    assert [m.span() for m in sentences._STOP.finditer(text)] == [m.span() for m in PLAIN_STOP.finditer(text)]
    for start, end in sentences._breaks(text, 0, len(text)):
        assert start < end
        assert not (text[start].isalpha() and sentences._LEAD.match(text, start, end))


@given(ENDS)
def test_spans_are_what_stands_between_ends_without_white_space(text: str) -> None:
    cuts = [(m.start() + (m[0][0] != "\n"), m.end()) for m in re.finditer(r"[.!?。！？]\s+|\n\s*", text)]
    pieces = zip([0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)], strict=True)
    expected = [text[start:end].strip() for start, end in pieces]
    spans = sentence_spans(text)
    assert [text[start:end] for start, end in spans] == [piece for piece in expected if piece]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@given(FOLDED)
def test_small_letters_say_what_folding_does(text: str) -> None:
    for pattern in (omissions._TROUBLE, omissions._GAVE_UP, prompts._ERROR):
        assert pattern.is_in(text) == (pattern._folding.search(text) is not None)
        lines = text.split("\n")
        assert list(pattern.lines_in(text)) == [i for i, line in enumerate(lines) if pattern._folding.search(line)]


def test_four_letters_beyond_ascii_fold_to_ascii_ones() -> None:
    others = "".join(map(chr, range(128, sys.maxunicode + 1)))
    folding = {letter for ascii_ in string.ascii_lowercase for letter in re.findall(ascii_, others, re.IGNORECASE)}
    assert folding == set(FOLDS_TO_ASCII) > {letter for letter in others if re.search("[a-z]", letter.lower())}


def test_words_of_other_scripts_are_found() -> None:
    assert sentences.lower_words("The Größe of 修复超时 ab") == ["the", "größe", "修复超时"]
    assert sentences.lower_words("Abc_DEF-x1 of 12345") == ["abc", "def", "12345"]
