"""Printing for people and machines: transcripts are untrusted text, so nothing of them reaches a terminal unfiltered.

Styled by rich on a terminal, plain elsewhere; rich is imported only where it is used.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

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


def print_json(tree: dict[str, Any]) -> None:
    """Exactly one line. ASCII alone, so that neither an encoding nor a terminal can be upset by a transcript."""
    print(json.dumps(tree, ensure_ascii=True, separators=(",", ":"), allow_nan=False))


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Prints (style, text) lines: with their styles on a terminal, plain otherwise. Text must have been cleaned."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for style, text in lines:
            console.print(Text(text, style=style), soft_wrap=True)
        return
    # A pipe in an ASCII locale shall get question marks, not an exception.
    encoding = sys.stdout.encoding or "utf-8"
    for _, text in lines:
        print(text.encode(encoding, "replace").decode(encoding))


def print_warnings(warnings: Iterable[str]) -> None:
    """One line on stderr each."""
    for warning in warnings:
        print(f"backfill: {clean_line(warning)}", file=sys.stderr)
