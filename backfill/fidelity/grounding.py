"""Grounding: does a text speak in the words of its source?

"In the exchange's own terms": a summary that shares fewer of its plain words with the source is about something else.
Substring tests of word beginnings, so that `fixed` is found in `fixes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from backfill.rooms import STOP_WORDS

MIN_SHARE = 0.5
MIN_WORDS = 3

_PLAIN = re.compile(r"[a-z]{4,}")
_GAP = re.compile(r"[\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SMALL = re.compile(r"[a-z0-9]")


def flat_words(texts: Iterable[str]) -> str:
    """The texts as lower-case words with a space before each; compound names are split too."""
    return " " + _GAP.sub(" ", _HUMP.sub(" ", "\n".join(texts))).lower()


class Words:
    """The words of some texts, and whether one of them begins so: what a search in `flat_words` says.

    Building that text costs two passes of regular expressions over every tool result, and a few substring searches
    answer what is asked of it.
    """

    __slots__ = ("_flat", "_lower", "_text")

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(texts)
        self._lower = self._text.lower()
        self._flat = ""

    def begins(self, start: str) -> bool:
        """Whether `f" {start}"` stands in `flat_words` of the texts."""
        if not (start.isascii() and start.isalnum()) or len(self._lower) != len(self._text):
            self._flat = self._flat or flat_words([self._text])
            return f" {start}" in self._flat
        text, at = self._text, self._lower.find(start)
        while at >= 0:
            here = text[at : at + len(start)]
            before = text[at - 1 : at]
            # Compound names are split before a capital that follows a small letter or a digit.
            opens = not before.isalnum() or (_SMALL.match(before) and here[0].isascii() and here[0].isupper())
            if opens and (here == start or not _HUMP.search(here)):
                return True
            at = self._lower.find(start, at + 1)
        return False

    def has(self, word: str) -> bool:
        """Whether the texts have this very word, in any case, with no letter or digit at either side."""
        word = word.lower()
        at = self._lower.find(word)
        while at >= 0:
            end = at + len(word)
            if not (self._lower[at - 1 : at].isalnum() or self._lower[end : end + 1].isalnum()):
                return True
            at = self._lower.find(word, at + 1)
        return False


def share_in(words: Sequence[str], seen: Words) -> float:
    """The share of the words that a source has, their ends apart."""
    hits = sum(seen.begins(word[: max(4, len(word) - 3)]) for word in words if word)
    return hits / max(1, len(words))


def is_grounded(text: str, seen: Words) -> bool:
    """Whether at least half of the text's plain words stand in the source; fewer than three prove nothing."""
    words = [word for word in _PLAIN.findall(text.lower()) if word not in STOP_WORDS]
    return len(words) < MIN_WORDS or share_in(words, seen) >= MIN_SHARE
