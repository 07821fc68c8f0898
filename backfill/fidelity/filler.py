"""Filler: sentences and trailing clauses that say nothing of their source.

A faithful sentence holds a handle or at least one pair of neighbouring content words of its source; of 297 sentences
written by hand two have neither, and of general talk ("this improves the overall quality") 1 in 250 has such a pair.
Single words prove nothing: most sources say "user" and "changes". Deliberately absent: a list of phrases, and scripts
without spaces between words.
"""

from __future__ import annotations

import itertools
import re

from backfill.fidelity.handles import find_handles
from backfill.rooms import STOP_WORDS
from backfill.text import sentence_spans

# Above this share of its words in the source a sentence without a pair is a paraphrase.
MAX_SHARE = 0.7
MIN_WORDS = 3
_PREFIX = 5

_WORD = re.compile(r"[a-z]{3,}")
_COURTESY = re.compile(
    r"(?:please )?(?:let me know|feel free|happy to|glad to|is there anything|hope (?:this|that)|thanks?|thank you)\b",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r", (?=(?:which|thus|thereby|thereafter|and)? ?(?:\w{3,}ing|ensures?|makes?|provides?|allows?|improves?|helps?)\b)"
)


def filler_in(text: str, source: str) -> str:
    """The first sentence or trailing clause of a text that says nothing of the source; "" where there is none.

    A text of one sentence and one clause is left to the test whether it is grounded at all.
    """
    parts = [part for a, b in sentence_spans(text) for part in _TRAILING.split(text[a:b])]
    if len(parts) < 2:
        return ""
    lower = ""
    pairs: set[tuple[str, str]] | None = None
    for part in parts:
        if _COURTESY.match(part):
            return part.strip()
        stems = _stems(part)
        if len(stems) < MIN_WORDS or find_handles(part):
            continue
        lower = lower or source.lower()
        # Substrings first: they let nearly all pass, and pairs cost a pass over the whole source.
        if sum(stem in lower for stem in stems) > MAX_SHARE * len(stems):
            continue
        pairs = pairs or set(itertools.pairwise(_stems(source)))
        if pairs.isdisjoint(itertools.pairwise(stems)):
            return part.strip()
    return ""


def _stems(text: str) -> list[str]:
    return [word[:_PREFIX] for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]
