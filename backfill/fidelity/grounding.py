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


def flat_words(texts: Iterable[str]) -> str:
    """The texts as lower-case words with a space before each; compound names are split too."""
    return " " + _GAP.sub(" ", _HUMP.sub(" ", "\n".join(texts))).lower()


def share_in(words: Sequence[str], seen: str) -> float:
    """The share of the words that stand in `flat_words`, their ends apart."""
    hits = sum(f" {word[: max(4, len(word) - 3)]}" in seen for word in words if word)
    return hits / max(1, len(words))


def is_grounded(text: str, seen: str) -> bool:
    """Whether at least half of the text's plain words stand in `flat_words`; fewer than three prove nothing."""
    words = [word for word in _PLAIN.findall(text.lower()) if word not in STOP_WORDS]
    return len(words) < MIN_WORDS or share_in(words, seen) >= MIN_SHARE
