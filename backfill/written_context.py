"""The detail of an exchange as a model writes it out, aligned to the text that it was copied from.

Models change white space, case, markup and the ends of what they copy. What stands in the exchange all the same becomes
that literal span; what does not is refused, so a context is a slice of stored text in this mode too. Deliberately
absent: likeness; a span that merely resembles the answer could say something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from backfill.extractive import field_text
from backfill.types import Exchange
from backfill.wire import MAX_DETAIL_WORDS

# Of a quote with words of the model's own around it, so much must stand in the text in one run.
MIN_RUN_SHARE = 0.6
MIN_RUN_WORDS = 3

_EDGES = " \t\n\"'`*“”‘’…"
_LAST = ".,;:!?"
_BETWEEN = r"[\s`*\"'“”‘’]+"


def align(said: str, exchange: Exchange) -> tuple[str, int, int] | None:
    """(field, start, end) in code points of the span that a text was copied from; None where there is none.

    The whole text is looked for first, then it without the marks at its end, then its longest run of words.
    """
    words = said.strip(_EDGES).split()[: 2 * MAX_DETAIL_WORDS]
    if not words:
        return None
    texts = list(_texts(exchange))
    for run in _runs(words):
        pattern = re.compile(rf"(?<!\w){_BETWEEN.join(map(re.escape, run))}(?!\w)", re.IGNORECASE)
        for name, text in texts:
            found = pattern.search(text)
            if found is not None:
                return name, found.start(), found.end()
    return None


def _runs(words: list[str]) -> Iterator[list[str]]:
    """The word lists to look for, the longest first."""
    yield words
    bare = words[-1].rstrip(_LAST + _EDGES)
    if bare and bare != words[-1]:
        words = [*words[:-1], bare]
        yield words
    least = max(MIN_RUN_WORDS, int(len(words) * MIN_RUN_SHARE + 0.999))
    for size in range(len(words) - 1, least - 1, -1):
        for start in range(len(words) - size + 1):
            yield words[start : start + size]


def _texts(exchange: Exchange) -> Iterator[tuple[str, str]]:
    """(field, text) of all that a context may come from."""
    names = ["agent_text", "user_text"]
    names += [f"tools.{i}.{part}" for i in range(len(exchange.tools)) for part in ("head", "tail")]
    for name in names:
        if text := field_text(exchange, name):
            yield name, text
