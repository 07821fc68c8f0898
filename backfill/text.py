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
    start = 0
    for match in [*_SENTENCE_END.finditer(text), None]:
        end = match.start() + (match[0][0] != "\n") if match else len(text)
        piece = text[start:end]
        stripped = piece.strip()
        if stripped:
            lead = len(piece) - len(piece.lstrip())
            spans.append((start + lead, start + lead + len(stripped)))
        start = match.end() if match else end
    return spans
