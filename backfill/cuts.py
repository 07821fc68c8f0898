"""Where a text may be cut without cutting a fact: at the end of a line or a sentence.

Deliberately absent: choosing what to show (`delivery`), and grammar; a mark that may not end a sentence does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A unit may pass the limit of a passage so many times before it is cut inside.
WHOLE_UNIT = 4
# Where a text may be cut: the end of each match. Line ends with the blank lines after them (the next line keeps its
# indentation), and the white space after the marks that end a sentence.
_LINE_END = r"\r?\n(?:[^\S\n]*\n)*"
_CLOSERS = r"[*_\"'`”’」』）)\]]*"
_CUT = re.compile(
    rf"{_LINE_END}|[.!?]{_CLOSERS}(?:[^\S\n]*{_LINE_END}|[^\S\n]+)|[。！？]{_CLOSERS}(?:[^\S\n]*{_LINE_END})?"
)
# "e.g. ", "approx. ", an initial or the numeral of a list: no sentence ends here.
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:\w|\w\.\w|\d\d|vs|cf|etc|no|nr|approx|ca|resp|fig|vol|sec|dr|mr|mrs|ms|st)$", re.IGNORECASE
)


def natural_cuts(text: str, start: int, stop: int) -> Iterator[int]:
    """Positions in (start, stop] where a line or a sentence has ended, in order; `stop` if it is the text's end."""
    for match in _CUT.finditer(text, start, stop):
        lead = text[max(0, match.start() - 8) : match.start()]
        if "\n" in match[0]:
            # A line that ends in a colon announces what follows it.
            fits = match[0][0] in ".!?。！？" or not lead.rstrip().endswith((":", "："))
        else:
            fits = match[0][0] != "." or not _ABBREVIATION.search(lead)
        if fits and match.end() != len(text):
            yield match.end()
    if stop == len(text) and stop > start:
        yield stop


def cut_points(text: str, start: int, stop: int, limit_chars: int) -> Iterator[int]:
    """`start`, then the ends of units up to `stop`; a unit beyond four limits is divided at white space.

    Units that go on beyond `stop` are left out, unless they have passed four limits already.
    """
    yield start
    last = start
    for cut in natural_cuts(text, start, stop):
        if cut == last:
            continue
        if cut - last > WHOLE_UNIT * limit_chars:
            yield from _inside_cuts(text, last, cut, limit_chars)
        yield cut
        last = cut
    if stop - last > WHOLE_UNIT * limit_chars:
        yield from _inside_cuts(text, last, stop, limit_chars)


def _inside_cuts(text: str, start: int, stop: int, limit_chars: int) -> Iterator[int]:
    while stop - start > limit_chars:
        space = text.rfind(" ", start + limit_chars // 2, start + limit_chars)
        start = space + 1 if space >= 0 else start + limit_chars
        yield start


def unit_start(text: str, at: int, longest_chars: int) -> int:
    """The start of the unit in which `at` lies; `at` itself in a unit of more than `longest_chars`.

    Cursors that lie inside a long sentence are thus kept, or a reader would come to the same page again and again.
    """
    if at in (0, len(text)):
        return at
    low = max(0, at - longest_chars)
    before = 0 if low == 0 else -1
    for cut in natural_cuts(text, low, min(len(text), at + longest_chars)):
        if cut > at:
            return before if before >= 0 and cut - before <= longest_chars else at
        before = cut
    return at


def is_cut(text: str, at: int) -> bool:
    """Whether a line or a sentence has ended at `at`; runs of white space beyond 256 characters are not followed."""
    if at in (0, len(text)):
        return True
    return at in natural_cuts(text, max(0, at - 256), min(len(text), at + 256))
