"""How deep JSON is nested, without a stack: what is too deep must not depend on who calls the parser from where.

Parsers and the recursive walks over their values give up at what is left of Python's stack, 1,000 frames in all.
Parsers take one a level, walks up to three: with the limits below both leave 400 to the callers.
"""

from __future__ import annotations

import re
from itertools import accumulate

PARSED_DEPTH = 500
WALKED_DEPTH = 200
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_STEPS = [0] * 256
for _mark, _step in zip(b"{[}]", (1, 1, -1, -1), strict=True):
    _STEPS[_mark] = _step


def too_deep(data: bytes, limit: int = PARSED_DEPTH) -> bool:
    """Whether JSON is nested deeper than `limit`. Brackets in strings do not count, so code in a text is no matter;
    of bytes that are not JSON the answer is some bool."""
    if len(data) <= limit or data.count(b"{") + data.count(b"[") <= limit:
        return False
    marks = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, marks)), default=0) > limit
