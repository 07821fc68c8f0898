"""Control marks of chat templates: a transcript that quotes `<|im_end|>` must not end its own turn."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Marks of the common families, for servers whose tokenizer is out of reach.
COMMON = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|\[/?INST\]|<<?/?SYS>>?|<(?:start|end)_of_turn>|<(?:bos|eos|pad)>|</?think>"
)


def special_texts(added: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of the texts that a tokenizer turns into control tokens (`<|im_end|>`), the longest first."""
    marks = sorted((text for text in added if len(text) > 2 and not text.isspace()), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, marks))) if marks else None


def defuse(text: str, special: re.Pattern[str] | None) -> str:
    """The text with a space inside every control mark."""
    return special.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text) if special else text
