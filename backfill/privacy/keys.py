"""Private keys over several lines: PEM, OpenSSH, PGP and PuTTY blocks, whole, quoted in code, or cut off at one end.

Deliberately absent: lines from the middle of a key without one of its marks; they look like any base64.
"""

from __future__ import annotations

import re

Span = tuple[int, int]

KEY_WORDS = ("private key", "private-lines:")
MAX_CHARS = 20_000  # a 16,384-bit RSA key with armour headers, as source code quotes it

_MARK = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_RUN = re.compile(r"[A-Za-z0-9+/=]{12}")
# Lines of a key whose end was cut off, with the line ends and line numbers of what quotes one.
_LINES = re.compile(
    r"""(?:[\s\\rn"',+>|]|\d{1,5}[\t→:|]){0,12}"""
    r"""(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash): ?[^\n\\]{1,100}(?:\\?[rn]|\s)+)*"""
    r"""(?:[A-Za-z0-9+/=]{16,80}+[\s\\"',+]{0,12}+(?:\\?[rn])?)+[A-Za-z0-9+/=]{0,80}"""
)
_KEY_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\\r\n"
_PUTTY = re.compile(
    r"Private-Lines:\s{0,4}\d{1,4}(?:\s|\\{1,8}[rn])+(?P<value>(?:[A-Za-z0-9+/=]{1,80}+(?:\s|\\{1,8}[rn])*+)+"
    r"(?:Private-(?:MAC|Hash):\s*[0-9a-f]{40,64})?)"
)


def key_spans(text: str) -> list[Span]:
    """The spans of key blocks, also of those of which only the beginning or the end is there."""
    spans = [match.span("value") for match in _PUTTY.finditer(text)]
    begin: re.Match[str] | None = None
    for mark in (*_MARK.finditer(text), None):
        if begin is not None:
            whole = mark is not None and mark[1] == "END" and mark.start() - begin.end() <= MAX_CHARS
            if mark is not None and whole and _RUN.search(text, begin.end(), mark.start()):
                spans.append((begin.start(), mark.end()))
            elif not whole and (lines := _LINES.match(text, begin.end())):
                spans.append((begin.start(), lines.end()))
        elif mark is not None and mark[1] == "END":
            low = max(0, mark.start() - MAX_CHARS)
            start = low + len(text[low : mark.start()].rstrip(_KEY_CHARS))
            if mark.start() - start >= 40:
                spans.append((start, mark.end()))
        begin = mark if mark is not None and mark[1] == "BEGIN" else None
    return spans
