"""Candidates: the literal spans of an exchange that may be an object's specific context, ranked.

Errors, parameters with values, commands, numbers with the words around them, names, quotes and short clauses of the
sentences that weigh most, and the error lines of the last tool results. A function of the exchange alone. Deliberately
absent: the choice among them, which is the model's, or `extractive`'s.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

import msgspec

from backfill.fidelity.handles import Handle, find_handles
from backfill.sentences import Sentence, cut_to, lower_words, size_bytes, topic_words, weighed_sentences
from backfill.types import Exchange

MAX_CONTEXT_BYTES = 68  # 17 tokens_est
_MAX_TOOLS = 6
_MAX_TOOL_CHARS = 2_000
# Substring tests of a long output cost a fiftieth of one search with this pattern's alternatives at every place.
_ERROR_HINTS = ("rror", "FAIL", "xception", "panic", "fatal", "denied")
_ERROR_WORD = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|error|Error|ERROR|FAIL|FAILED|fatal|panic|cannot|denied)\b")
_COMMAND = re.compile(
    r"(?:\$ )?(?:npm|npx|yarn|pnpm|git|go|cargo|python3?|pip|uv|pytest|make|docker|kubectl|gh|curl|node|bun|deno|mise"
    r"|bash)\s\S"
)
_WORDS = re.compile(r"\S+")
_TOPIC_SCORE = 0.5
_CLAUSE_ENDS = ",;:.!?，；：。！？"
_KIND_SCORE = {
    "error": 9.0,
    "parameter": 8.0,
    "command": 7.5,
    "number": 6.0,
    "identifier": 5.5,
    "version": 5.0,
    "path": 5.0,
    "quoted": 4.5,
    "host": 4.0,
    "hash": 3.5,
    "url": 3.0,
    "clause": 2.0,
}


class Candidate(msgspec.Struct, frozen=True):
    """A literal span: `text` equals the stored text of `field` [`start`:`end`] (code points). Higher is better."""

    kind: str
    field: str
    start: int
    end: int
    text: str
    score: float


def candidates(exchange: Exchange, limit: int = 16) -> list[Candidate]:
    """The most specific literal spans of an exchange, best first, no text twice, at most `limit`."""
    user, agent = weighed_sentences(exchange)
    picked = sorted([*user, *agent], key=lambda s: -s.score)[:24]
    made = [(-1, candidate) for candidate in tool_candidates(exchange)]
    made += _best_spans(picked, topic_words(user), limit)
    found: dict[str, Candidate] = {}
    for _, candidate in sorted(made, key=itemgetter(0)):
        held = found.get(candidate.text)
        if held is None or candidate.score > held.score:
            found[candidate.text] = candidate
    return sorted(found.values(), key=lambda c: (-c.score, c.field, c.start))[:limit]


class _Span(msgspec.Struct, frozen=True):
    """A handle of a sentence, or (None) its opening clause: a candidate to be. `most` is what it may score at best."""

    sentence: Sentence
    handle: Handle | None
    kind: str
    most: float


def _best_spans(sentences: Sequence[Sentence], topic: frozenset[str], limit: int) -> Iterator[tuple[int, Candidate]]:
    """Yields (place, candidate) of handles, numbers with the words around them, and short clauses as a last resort.

    Widening a span costs most, so it is done best first, until none that is left can come among the `limit` best.
    """
    spans = list(enumerate(_spans(sentences)))
    if len(spans) > limit:
        spans.sort(key=lambda item: -item[1].most)
    words: dict[int, list[tuple[int, int]]] = {}
    scores: dict[str, float] = {}
    for place, span in spans:
        if len(scores) >= limit and sum(map(span.most.__lt__, scores.values())) >= limit:
            return
        made = _of_span(span, topic, words)
        if made is not None:
            scores[made.text] = max(made.score, scores.get(made.text, made.score))
            yield place, made


def _spans(sentences: Sequence[Sentence]) -> Iterator[_Span]:
    for sentence in sentences:
        for handle in find_handles(sentence.text[:240]):
            kind = "command" if handle.kind == "quoted" and _COMMAND.match(handle.text) else handle.kind
            yield _Span(sentence, handle, kind, _score_of(sentence, handle, kind) + _TOPIC_SCORE)
        yield _Span(sentence, None, "clause", 2.0 + 0.2 * sentence.score)


def _score_of(sentence: Sentence, handle: Handle, kind: str) -> float:
    score = _KIND_SCORE[kind] + 0.2 * sentence.score
    return score - 2.0 if kind == "number" and handle.text[-1].isdigit() else score


def _of_span(span: _Span, topic: frozenset[str], words: dict[int, list[tuple[int, int]]]) -> Candidate | None:
    """The candidate of a span; None for a clause of no words. `words` keeps those of sentences by their start."""
    sentence, handle = span.sentence, span.handle
    if handle is None:
        clause = cut_to(sentence.text[:240], MAX_CONTEXT_BYTES)
        score = span.most - (0.0 if size_bytes(clause) >= 20 else 2.0)
        start = sentence.start
        return Candidate("clause", sentence.field, start, start + len(clause), clause, score) if clause else None
    start, end = handle.start, handle.end
    if span.kind in ("number", "error", "parameter", "version"):
        known = words.get(id(sentence))
        if known is None:
            known = words[id(sentence)] = [match.span() for match in _WORDS.finditer(sentence.text)]
        start, end = _widen(sentence.text, start, end, known)
    elif size_bytes(handle.text) > MAX_CONTEXT_BYTES:
        end = start + len(cut_to(handle.text, MAX_CONTEXT_BYTES))
    text = sentence.text[start:end]
    score = _score_of(sentence, handle, span.kind)
    if topic and not topic.isdisjoint(lower_words(text)):
        score += _TOPIC_SCORE
    return Candidate(span.kind, sentence.field, sentence.start + start, sentence.start + end, text, score)


def _widen(text: str, start: int, end: int, words: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Grows a span by whole words (their spans) of its clause, left and right in turn, while it fits the context."""
    last = len(words) - 1
    first = min(bisect_right(words, start, key=itemgetter(1)), last)
    last = min(bisect_left(words, end, key=itemgetter(1)), last)
    low, high = words[first][0], words[last][1]
    if size_bytes(text[low:high]) > MAX_CONTEXT_BYTES:
        return start, start + len(cut_to(text[start:end], MAX_CONTEXT_BYTES))
    fits = _fits_ascii if text.isascii() else _fits
    left = right = True
    while left or right:
        left = left and first > 0 and text[words[first - 1][1] - 1] not in _CLAUSE_ENDS
        if left and (left := fits(text, words[first - 1][0], high)):
            first -= 1
            low = words[first][0]
        right = right and last + 1 < len(words) and text[high - 1] not in _CLAUSE_ENDS
        if right and (right := fits(text, low, words[last + 1][1])):
            last += 1
            high = words[last][1]
    return low, max(end, low + len(text[low:high].rstrip(_CLAUSE_ENDS)))


def _fits_ascii(text: str, low: int, high: int) -> bool:
    return high - low <= MAX_CONTEXT_BYTES


def _fits(text: str, low: int, high: int) -> bool:
    return size_bytes(text[low:high]) <= MAX_CONTEXT_BYTES


def tool_candidates(exchange: Exchange) -> Iterator[Candidate]:
    """Yields the first error line of the latest tool results that have one, the last result first."""
    for number in range(len(exchange.tools) - 1, max(-1, len(exchange.tools) - 1 - _MAX_TOOLS), -1):
        tool = exchange.tools[number]
        for part, text in (("tail", tool.tail[:_MAX_TOOL_CHARS]), ("head", tool.head[:_MAX_TOOL_CHARS])):
            start, end = _error_line(text)
            body = cut_to(text[start:end], MAX_CONTEXT_BYTES)
            if len(body) > 8:
                yield Candidate("error", f"tools.{number}.{part}", start, start + len(body), body, 7.0)


def _error_line(text: str) -> tuple[int, int]:
    """Span of the first line that reports an error, without the white space around it; empty where there is none."""
    places = [at for hint in _ERROR_HINTS if (at := text.find(hint)) >= 0]
    start = text.rfind("\n", 0, min(places)) + 1 if places else len(text)
    while start < len(text):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if not line.startswith("@@") and _ERROR_WORD.search(line):
            low = start + len(line) - len(line.lstrip())
            return low, low + len(line.strip())
        start += len(line) + 1
    return 0, 0
