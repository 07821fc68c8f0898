"""Text measures and cuts that several stages share."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Opens with one set of characters, which is searched for at the speed of C; the white space after it must follow.
_SENTENCE_END = re.compile(r"[.!?。！？\n](?:(?<=\n)\s*|\s+)")

# A dotted and a dotless I, a long s, the sign of Kelvin.
FOLDS_TO_ASCII = "\u0130\u0131\u017f\u212a"


def tokens_est(*texts: str) -> int:
    """Estimated tokens of the texts together: ceil(UTF-8 bytes / 4)."""
    return (sum(len(t.encode("utf-8", "surrogatepass")) for t in texts) + 3) // 4


def clean_unicode(text: str) -> str:
    """Replaces lone surrogates by U+FFFD, so that the text can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Code point spans of the sentences and lines of a text, without surrounding white space, in order."""
    spans: list[tuple[int, int]] = []
    start = len(text) - len(text.lstrip())
    # A match takes all white space behind it, so what comes next begins with none.
    for match in _SENTENCE_END.finditer(text, start):
        at, behind = match.span()
        end = start + len(text[start:at].rstrip()) if text[at] == "\n" else at + 1
        if start < end:
            spans.append((start, end))
        start = behind
    end = start + len(text[start:].rstrip())
    return [*spans, (start, end)] if start < end else spans


class AnyCase:
    """A pattern without capital letters or line breaks that is searched for in any case.

    Without folding, small letters are searched ten times as fast. Folding is left to texts with one of the four other
    letters that fold to ASCII ones.
    """

    def __init__(self, pattern: str) -> None:
        self._folding = re.compile(pattern, re.IGNORECASE)
        self._small = re.compile(pattern)

    def is_in(self, text: str) -> bool:
        """Whether it stands in the text."""
        pattern, text = self._ready(text)
        return pattern.search(text) is not None

    def lines_in(self, text: str) -> Iterator[int]:
        """Yields the numbers of the lines that it stands in."""
        pattern, text = self._ready(text)
        number = at = 0
        while match := pattern.search(text, at):
            number += text.count("\n", at, match.start())
            yield number
            at = text.find("\n", match.end()) + 1
            if not at:
                return
            number += 1

    def _ready(self, text: str) -> tuple[re.Pattern[str], str]:
        if text.isascii() or not any(letter in text for letter in FOLDS_TO_ASCII):
            return self._small, text.lower()
        return self._folding, text
