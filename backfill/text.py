"""Text measures and cuts that several stages share."""

from __future__ import annotations

import re

# Opens with one set of characters, which is searched for at the speed of C; the white space after it must follow.
_SENTENCE_END = re.compile(r"[.!?。！？\n](?:(?<=\n)\s*|\s+)")


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
    """A pattern without capital letters that is searched for in any case.

    Without folding, small letters are searched ten times as fast; of ASCII they are the same, so folding is left to
    other texts, whose letters may fold to ASCII ones.
    """

    def __init__(self, pattern: str) -> None:
        self._folding = re.compile(pattern, re.IGNORECASE)
        self._small = re.compile(pattern)

    def is_in(self, text: str) -> bool:
        """Whether it stands in the text."""
        return (self._small.search(text.lower()) if text.isascii() else self._folding.search(text)) is not None
