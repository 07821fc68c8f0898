"""Delivers verbatim text in bounded pieces that never cut a fact; used by the command line, the library, MCP and web.

What made answers ungrounded in practice was delivery that cut a passage before its key fact. So a text is cut at the
end of a turn, a line or a sentence alone, what is missing is counted, and a cursor leads to it: passages that follow
each other by their cursors give the whole text again, character for character. One sentence longer than four times the
limit (say, a minified line) has no such end; it is cut at white space and says so (`inside`). Deliberately absent:
snippets of words around each term, and cutting of distilled text, which comes whole or not at all.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from backfill.cuts import WHOLE_UNIT, cut_points, is_cut, unit_start
from backfill.errors import UsageError

if TYPE_CHECKING:
    from backfill.hits import Hit
    from backfill.sought import Sought
    from backfill.types import Exchange

MIN_LIMIT_CHARS = 80
MAX_LIMIT_CHARS = 1 << 20
PAGE_CHARS = 8_000
# Of the part of a hit that is marked as the match.
_MATCH_CHARS = 400
# The best passage is looked for in the first million characters; the tokenizer reads about 5 MB/s.
_MAX_SCORED_CHARS = 1 << 20
_CURSOR = re.compile(r"(user_text|agent_text|thinking|tools\.\d{1,6}\.(?:input|head|tail)):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Passage:
    """A part [start:end) in code points of one field of an exchange; `text` is that slice of it.

    `field` is user_text, agent_text, thinking or tools.N.input|head|tail; `total` is the field's length. `matches`
    are spans within `text` that hold a word of the query. `before` and `after` are cursors to what is missing on
    either side, None where nothing is. `inside`: an end lies inside a sentence, for that was too long to be whole.
    """

    field: str
    text: str
    start: int
    end: int
    total: int
    matches: tuple[tuple[int, int], ...] = ()
    inside: bool = False

    @property
    def before(self) -> str | None:
        return f"{self.field}:0" if self.start else None

    @property
    def after(self) -> str | None:
        return f"{self.field}:{self.end}" if self.end < self.total else None

    def marked(self) -> str:
        """The text with a line before and after it that says what is missing and gives the cursor to it."""
        inside = " inside a sentence" if self.inside else ""
        lines = [self.text.rstrip()] if self.text.strip() else []
        if self.before is not None:
            lines.insert(0, f"[... {self.start:,} characters cut{inside} before this; cursor {self.before}]")
        if self.after is not None:
            lines.append(f"[... {self.total - self.end:,} characters cut{inside} after this; cursor {self.after}]")
        return "\n".join(lines)

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it."""
        names = ("field", "text", "start", "end", "total", "inside", "before", "after")
        return {**{name: getattr(self, name) for name in names}, "matches": [list(span) for span in self.matches]}


@dataclass(frozen=True, slots=True)
class ExchangePage:
    """A page of an exchange's verbatim text; `cursor` gives the next page, None at the end."""

    exchange_id: str
    passages: tuple[Passage, ...]
    cursor: str | None

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it."""
        passages = [passage.to_tree() for passage in self.passages]
        return {"exchange_id": self.exchange_id, "passages": passages, "cursor": self.cursor}


def query_terms(text: str) -> frozenset[str]:
    """What passages of an answer to a query are chosen and marked by: its terms, and its exact parts in one piece.

    The latter begin with a quotation mark, which no term does.
    """
    from backfill.indexes.tokenizer import tokenize
    from backfill.phrases import take_apart

    words, exact = take_apart(text)
    return frozenset(tokenize(words)).union(f'"{part.casefold()}' for part in (*exact.phrases, *exact.errors))


def passage_around(field: str, text: str, terms: Collection[str], limit_chars: int) -> Passage:
    """The run of whole units of up to `limit_chars` with the most distinct `terms`, the earliest of equals.

    A text within the limit comes whole. Raises UsageError for a limit outside 80 to 1,048,576.
    """
    _check_limit(limit_chars)
    wanted = frozenset(terms)
    if len(text) <= limit_chars:
        return _passage(field, text, 0, len(text), wanted)
    stop = min(len(text), max(_MAX_SCORED_CHARS, (WHOLE_UNIT + 1) * limit_chars))
    cuts = list(cut_points(text, 0, stop, limit_chars))
    within = _sought(wanted).within
    found = [within(text[start:end]) for start, end in pairwise(cuts)]
    first, last = _best_window(cuts, found, limit_chars)
    return _passage(field, text, cuts[first], cuts[last], wanted)


def passage_from(field: str, text: str, start: int, limit_chars: int, terms: Collection[str] = ()) -> Passage:
    """The run of whole units of up to `limit_chars` that begins with the unit in which `start` lies.

    Raises UsageError for a limit outside 80 to 1,048,576.
    """
    _check_limit(limit_chars)
    start = unit_start(text, min(max(start, 0), len(text)), WHOLE_UNIT * limit_chars)
    # What lies beyond cannot be in a passage, whatever its units are.
    stop = min(len(text), start + (WHOLE_UNIT + 1) * limit_chars)
    end = start
    for cut in cut_points(text, start, stop, limit_chars):
        if end > start and cut - start > limit_chars:
            break
        end = cut
    return _passage(field, text, start, end, frozenset(terms))


def hit_passages(hit: Hit, terms: Collection[str], limit_chars: int) -> tuple[Passage, ...]:
    """What to show of a hit: its prompt in up to a quarter of the limit, its answer in the rest, each around `terms`.

    An empty text gives no passage. Raises UsageError for a limit outside 320 to 1,048,576.
    """
    _check_limit(limit_chars, WHOLE_UNIT)
    return _spoken_passages(_spoken(hit), terms, limit_chars)


def best_match(hit: Hit, terms: Collection[str]) -> Passage:
    """The part of a hit that answers best: of its answer, or of its prompt where that has more of the terms."""
    parts = [passage_around(f, t, terms, _MATCH_CHARS) for f, t in _spoken(hit).items()]
    within = _sought(frozenset(terms)).within
    return max(reversed(parts), key=lambda part: len(within(part.text)))


def exchange_page(
    exchange: Exchange, *, query: str = "", cursor: str | None = None, limit_chars: int = PAGE_CHARS
) -> ExchangePage:
    """A page of an exchange's fields in reading order: prompt, answer, tool calls, thinking.

    With `query` and no cursor the answer is shown around the query's words. Raises UsageError for a cursor that fits
    no field of the exchange, or a limit outside 320 to 1,048,576.
    """
    _check_limit(limit_chars, WHOLE_UNIT)
    sections = [(field, text) for field, text in _sections(exchange) if text]
    terms = query_terms(query)
    if cursor is None and terms:
        passages = _spoken_passages(_spoken(exchange), terms, limit_chars)
    else:
        passages = tuple(_passages_from(sections, *_place(sections, cursor), limit_chars, terms))
    return ExchangePage(exchange.exchange_id.hex(), passages, _following(sections, passages))


def _spoken_passages(texts: dict[str, str], terms: Collection[str], limit_chars: int) -> tuple[Passage, ...]:
    """Prompt and answer around the terms; the prompt takes up to a quarter, and what it leaves is the answer's."""
    quarter = limit_chars // 4
    limits = {"user_text": quarter, "agent_text": limit_chars - min(quarter, len(texts.get("user_text", "")))}
    return tuple(passage_around(field, text, terms, limits[field]) for field, text in texts.items() if text.strip())


def _passages_from(
    sections: list[tuple[str, str]], at: int, offset: int, limit_chars: int, terms: Collection[str]
) -> Iterator[Passage]:
    left = limit_chars
    for field, text in sections[at:]:
        passage = passage_from(field, text, offset, max(left, MIN_LIMIT_CHARS), terms)
        yield passage
        left -= len(passage.text)
        offset = 0
        if passage.after is not None or left < MIN_LIMIT_CHARS:
            return


def _spoken(of: Hit | Exchange) -> dict[str, str]:
    return {"user_text": of.user_text, "agent_text": of.agent_text}


def _sections(exchange: Exchange) -> Iterator[tuple[str, str]]:
    yield "user_text", exchange.user_text
    yield "agent_text", exchange.agent_text
    for number, tool in enumerate(exchange.tools):
        yield f"tools.{number}.input", tool.input
        yield f"tools.{number}.head", tool.head
        yield f"tools.{number}.tail", tool.tail
    yield "thinking", exchange.thinking


def _place(sections: list[tuple[str, str]], cursor: str | None) -> tuple[int, int]:
    """(number of the section, offset in it) that a cursor leads to."""
    if cursor is None:
        return 0, 0
    match = _CURSOR.fullmatch(cursor)
    names = [field for field, _ in sections]
    if match is None or match[1] not in names or int(match[2]) > len(sections[names.index(match[1])][1]):
        raise UsageError(f"{cursor[:40]!r} is not a cursor of this exchange", hint="take one that an answer gave")
    return names.index(match[1]), int(match[2])


def _following(sections: list[tuple[str, str]], passages: Sequence[Passage]) -> str | None:
    if not passages:
        return None
    last = passages[-1]
    if last.after is not None:
        return last.after
    at = [field for field, _ in sections].index(last.field) + 1
    return f"{sections[at][0]}:0" if at < len(sections) else None


def _check_limit(limit_chars: int, passages: int = 1) -> None:
    least = passages * MIN_LIMIT_CHARS
    if not least <= limit_chars <= MAX_LIMIT_CHARS:
        raise UsageError(f"a limit is {least} to {MAX_LIMIT_CHARS:,} characters, not {limit_chars:,}")


def _passage(field: str, text: str, start: int, end: int, terms: frozenset[str]) -> Passage:
    part = text[start:end]
    inside = not (is_cut(text, start) and is_cut(text, end))
    return Passage(field, part, start, end, len(text), tuple(_sought(terms).spans(part)) if terms else (), inside)


def _sought(terms: frozenset[str]) -> Sought:
    # Imported here: a page without a query needs no stemmer.
    from backfill.sought import sought

    return sought(terms)


def _best_window(cuts: list[int], found: list[frozenset[str]], limit_chars: int) -> tuple[int, int]:
    """(first, last) of `cuts` that bound the units to show: the most terms, without idle units, then room around."""
    inside: Counter[str] = Counter()
    best, best_terms = (0, 1), -1
    end = 0
    for first in range(len(found)):
        while end < len(found) and (end <= first or cuts[end + 1] - cuts[first] <= limit_chars):
            inside.update(found[end])
            end += 1
        n_terms = sum(count > 0 for count in inside.values())
        if n_terms > best_terms:
            best, best_terms = (first, end), n_terms
        inside.subtract(found[first])
    telling = [n for n in range(*best) if found[n]] or [best[0]]
    first, last = telling[0], telling[-1] + 1
    if first and cuts[last] - cuts[first - 1] <= limit_chars:
        first -= 1
    last = max(last, bisect_right(cuts, cuts[first] + limit_chars) - 1)
    return min(first, bisect_left(cuts, cuts[last] - limit_chars)), last
