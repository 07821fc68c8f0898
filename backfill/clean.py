"""Text of transcripts made harmless for a terminal or a prompt: no escapes, no control characters, no reordering."""

from __future__ import annotations

import re

# ECMA-48 sequences go whole: OSC, DCS and the like up to their end, CSI with its parameters, then two-byte escapes.
_ESCAPES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# Control characters but tab and line feed; marks that reorder text, which can make code read as what it is not.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without terminal escapes, control characters and bidirectional marks; CR LF becomes LF."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def clean_line(text: str) -> str:
    """The same on one line."""
    return " ".join(clean(text).split())
