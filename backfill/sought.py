"""Which of a query's terms stand in a text, without cutting the whole text into terms.

Most words of a text have none of a query's few terms, and most of these show it by their letters: stemming changes at
most the last three letters of what it leaves, never the first two, but for y and i; and a part of a name begins after
what is no letter, or with a capital. Only a chunk that holds such a beginning, or a character beyond ASCII, is
tokenized, and what came of it is remembered for the query. Deliberately absent: any answer but the tokenizer's own (a
test compares them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from backfill.indexes.tokenizer import tokenize

# Of the queries asked last; several passages of ten hits ask for the same terms.
_QUERIES = 16
# Chunks of at most 64 characters that a query remembers: about 1 MB.
_MEMO_CHUNKS = 1 << 13
_MEMO_CHARS = 64
_WORD = re.compile(r"\w(?:[\w.:/\\@+\-]*\w)?")
_NONE: frozenset[str] = frozenset()
_CHUNK = re.compile(r"\S+")
# Of ASCII: lower case, i for y, one kind of white space.
_FOLDED = {code: " " if chr(code).isspace() else "i" if chr(code) in "yY" else chr(code).lower() for code in range(128)}
_RUN = re.compile(r"\w*")
_STEMMED_CHARS, _KEPT_CHARS = 3, 2


class Sought:
    """Terms of a query, and phrases in folded case that begin with a quotation mark (which no term does)."""

    def __init__(self, terms: frozenset[str]) -> None:
        self._phrases = tuple(term for term in terms if term[:1] == '"')
        self._terms = terms.difference(self._phrases)
        self._beginnings = tuple({_beginning(term) for term in self._terms if term.isascii()})
        self._known: dict[str, frozenset[str]] = {}

    def within(self, text: str) -> frozenset[str]:
        """Those that stand in the text: the terms that it gives when it is tokenized, phrases as they are written."""
        found: set[str] = set()
        for start, end in self._likely(text):
            found |= self._of_chunk(text[start:end])
        if self._phrases:
            folded = text.casefold()
            found.update(phrase for phrase in self._phrases if phrase[1:] in folded)
        return frozenset(found)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the words stand that hold one of them."""
        for start, end in [(0, len(text))] if self._phrases else self._likely(text):
            for word in _WORD.finditer(text, start, end):
                if self._of_chunk(word[0]) or (self._phrases and self.within(word[0])):
                    yield word.span()

    def _likely(self, text: str) -> Iterator[tuple[int, int]]:
        """The chunks between white space that may hold a term, in order."""
        if not text.isascii():
            yield from (chunk.span() for chunk in _CHUNK.finditer(text) if self._terms)
            return
        folded = text.translate(_FOLDED)
        spots: list[int] = []
        for beginning in self._beginnings:
            spot = folded.find(beginning)
            while spot >= 0:
                # Digits may begin anywhere: a version loses the v before them.
                inside = spot and text[spot].islower() and folded[spot - 1].isalpha()
                if not inside:
                    spots.append(spot)
                spot = folded.find(beginning, spot + 1)
        end = -1
        for spot in sorted(spots):
            if spot > end:
                end = folded.find(" ", spot)
                end = len(text) if end < 0 else end
                yield folded.rfind(" ", 0, spot) + 1, end

    def _of_chunk(self, chunk: str) -> frozenset[str]:
        terms = self._known.get(chunk)
        if terms is None:
            likely = not chunk.isascii() or any(map(chunk.translate(_FOLDED).__contains__, self._beginnings))
            terms = self._terms.intersection(tokenize(chunk)) if likely else _NONE
            if len(chunk) <= _MEMO_CHARS:
                if len(self._known) >= _MEMO_CHUNKS:
                    self._known.clear()
                self._known[chunk] = terms
        return terms


@lru_cache(maxsize=_QUERIES)
def sought(terms: frozenset[str]) -> Sought:
    """What finds these terms; the same for the same terms."""
    return Sought(terms)


def _beginning(term: str) -> str:
    """What every ASCII chunk with this term holds, in lower case with i for y."""
    run = _RUN.match(term)
    beginning = run[0] if run else ""
    # Separators are not what the text has (`a\\b` gives a/b), so of a compound its first name is looked for.
    if len(beginning) == len(term):
        beginning = term[: max(_KEPT_CHARS, len(term) - _STEMMED_CHARS)]
    return beginning.replace("y", "i")
