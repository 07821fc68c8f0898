"""Secrets out of an engine's answers, before they are logged, judged or stored.

What an engine reads was redacted already, so a secret in its answer is made up, remembered, or put together from parts.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from backfill.privacy import Redactor

Privacy: TypeAlias = Literal["secrets", "mask", "off"]


def redact_answer(text: str, redactor: Redactor) -> str:
    """The answer with typed placeholders for what the redactor finds, in its decoded strings where it is JSON.

    A secret may hide behind JSON's escapes, so a text with escapes is decoded even if no keyword shows in it.
    """
    if "\\" not in text and not redactor.suspects(text):
        return text
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return redactor.text(text)
    clean = redactor.tree(tree)
    return text if clean == tree else msgspec.json.encode(clean).decode()
