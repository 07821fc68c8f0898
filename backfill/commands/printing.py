"""Printing for people and machines: transcripts are untrusted text, so nothing of them reaches a terminal unfiltered.

Styled by rich on a terminal, plain elsewhere; rich is imported only where it is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from backfill.clean import clean, clean_line

__all__ = ["clean", "clean_line", "print_json", "print_lines", "print_warnings"]


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
