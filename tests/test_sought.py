"""What is found without cutting a text into all its terms is what cutting it gives."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from backfill.indexes.tokenizer import tokenize
from backfill.sought import Sought, sought

_WORD = re.compile(r"\w(?:[\w.:/\\@+\-]*\w)?")

# Names, paths, versions and words whose parts begin in every way that the tokenizer knows.
names = st.sampled_from(
    ["retryPolicy", "XMLparser", "HTTPServer", "src/retry_policy.ts:12:3", "a\\b\\c.py", "x/a:b@c", "v1.2.3", "c++",
     "2024-05-06T10", "ECONNREFUSED", "retries", "dying", "skies", "abc123def", "__init__", "lib../y", "a/.-/b",
     "Übergröße", "naïve", "日本語の設定", "ſs", "\u212alvin", "f" * 70, "deadbeefdeadbeef1234", "don't", "std::vec",
     "a" * 300]
)  # fmt: skip
words = st.one_of(names, st.text("abyYiTRe0_./\\:@+-é日\u2003", min_size=1, max_size=12), st.text(max_size=8))
texts = st.lists(st.tuples(words, st.sampled_from([" ", "\n", "", "\u2028", "\x1c"])), max_size=12).map(
    lambda parts: "".join(word + gap for word, gap in parts)
)


def plainly(text: str, terms: frozenset[str]) -> frozenset[str]:
    phrases = {term for term in terms if term[0] == '"' and term[1:] in text.casefold()}
    return terms.intersection(tokenize(text)) | phrases


@settings(max_examples=150, deadline=None)
@example("a\\b\\c.py", "x/a:b@c")
@example("v1.2.3 dying XMLparser", "1.2.3 die parser")
@given(texts, texts)
def test_the_terms_of_a_text_are_the_tokenizers(text: str, query: str):
    # Half of what is sought stands in the text, or hardly anything would be found.
    wanted = frozenset(tokenize(query)) | frozenset(tokenize(text)[::2]) | {'"' + text[2:5].casefold(), '"zz'}
    finder = Sought(wanted)
    assert finder.within(text) == plainly(text, wanted)
    # Asked again, from what is remembered.
    assert finder.within(text) == plainly(text, wanted)
    marked = [match.span() for match in _WORD.finditer(text) if plainly(match[0], wanted)]
    assert list(finder.spans(text)) == marked


@settings(max_examples=100, deadline=None)
@given(
    st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12),
    st.sampled_from(["", "ing", "ies", "ed", "ly", "ization", "ational", "bility", "ously"]),
)
def test_every_word_is_found_by_its_stem(stem: str, ending: str):
    for word in (stem + ending, (stem + ending).title(), f"x{(stem + ending).title()}", f"1{stem}{ending}"):
        for term in tokenize(word):
            assert Sought(frozenset([term])).within(word) == {term}


def test_a_query_remembers_a_bounded_number_of_chunks():
    finder = Sought(frozenset(["w7"]))
    assert finder.within(" ".join(f"w{n}" for n in range(20_000))) == {"w7"}
    assert len(finder._known) <= 1 << 13
    assert not Sought(frozenset()).within("w7")
    assert not list(Sought(frozenset()).spans("w7"))
    assert sought(frozenset(["w7"])) is sought(frozenset(["w7"]))
