"""Cuts a verbatim text to the passage that answers a query, at ends of lines and sentences only.

What made answers ungrounded in practice was delivery that cut a passage before its key fact; so cuts are counted and
said. Deliberately absent: snippets of words around each term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from backfill.text import sentence_spans

# Sentences are matched with the query in the first million characters; the tokenizer reads about 5 MB/s.
MAX_SCORED_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text, and how many characters were left out before and after it."""

    text: str
    cut_before: int
    cut_after: int


def best_passage(text: str, terms: Collection[str], limit_chars: int) -> Passage:
    """The run of whole sentences of up to `limit_chars` with the most distinct `terms`, the earliest of equals.

    A text within the limit comes whole. A single sentence (say, a minified line) may take up to four times the limit;
    beyond that it is cut at a space around its first term.
    """
    if len(text) <= limit_chars:
        return Passage(text, 0, 0)
    spans = sentence_spans(text[:MAX_SCORED_CHARS])
    if not spans:
        return Passage("", 0, len(text))
    wanted = frozenset(terms)
    found = [_terms_of(text[start:end], wanted) for start, end in spans]
    first, last = _best_window(spans, found, limit_chars)
    start, end = spans[first][0], spans[last][1]
    if first == last and end - start > 4 * limit_chars:
        start, end = _within_sentence(text, start, end, wanted, limit_chars)
    return Passage(text[start:end], start, len(text) - end)


def _terms_of(sentence: str, wanted: frozenset[str]) -> frozenset[str]:
    from backfill.indexes.tokenizer import tokenize

    return wanted.intersection(tokenize(sentence)) if wanted else frozenset()


def _best_window(spans: list[tuple[int, int]], found: list[frozenset[str]], limit_chars: int) -> tuple[int, int]:
    inside: Counter[str] = Counter()
    best, best_terms = (0, 0), -1
    end = 0
    for first, (start, _) in enumerate(spans):
        while end < len(spans) and (end <= first or spans[end][1] - start <= limit_chars):
            inside.update(found[end])
            end += 1
        n_terms = sum(count > 0 for count in inside.values())
        if n_terms > best_terms:
            best, best_terms = (first, end - 1), n_terms
        inside.subtract(found[first])
    return best


def _within_sentence(text: str, start: int, end: int, wanted: frozenset[str], limit_chars: int) -> tuple[int, int]:
    places = [at for term in wanted if (at := text.lower().find(term, start, end)) >= 0]
    begin = max(start, min(places, default=start) - limit_chars // 4)
    begin = start if begin == start else max(text.find(" ", begin, begin + limit_chars // 4) + 1, begin)
    stop = min(end, begin + limit_chars)
    space = text.rfind(" ", begin + limit_chars // 2, stop)
    return begin, space if space > 0 and stop < end else stop
