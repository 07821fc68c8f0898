"""How deep JSON is nested, without a stack: what is too deep must not depend on who calls the parser from where.

Parsers and the recursive walks over their values give up at what is left of Python's stack, 1,000 frames in all.
Parsers take one a level, walks up to three: with the limits below both leave 400 to the callers.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

PARSED_DEPTH = 500
WALKED_DEPTH = 200
# Below it two counts cost less than what numpy does before it counts.
_SHORT_BYTES = 8000
_CASE = 0x20  # `[` is 0x5B, `{` is 0x7B
_OPENING = ord("{")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_STEPS = [0] * 256
for _mark, _step in zip(b"{[}]", (1, 1, -1, -1), strict=True):
    _STEPS[_mark] = _step


def too_deep(data: bytes, limit: int = PARSED_DEPTH) -> bool:
    """Whether JSON is nested deeper than `limit`. Brackets in strings do not count, so code in a text is no matter;
    of bytes that are not JSON the answer is some bool. Linear in the bytes, whatever they are."""
    if len(data) <= limit or _opening(data) <= limit:
        return False
    # Without escapes every other piece between quotes is outside of strings; backslashes stand inside of them alone.
    pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    marks = b"".join(pieces).translate(None, _NO_BRACKETS)
    if _opening(marks) <= limit:
        return False
    return max(accumulate(map(_STEPS.__getitem__, marks))) > limit


def _opening(data: bytes) -> int:
    """How many brackets open, in strings or not."""
    if len(data) < _SHORT_BYTES:
        return data.count(b"{") + data.count(b"[")
    return int(np.count_nonzero((np.frombuffer(data, np.uint8) | _CASE) == _OPENING))
