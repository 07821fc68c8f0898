"""Token ids of a text by those of its words, each asked of the tokenizer once.

Most words of a prompt stood in prompts before. A byte-level tokenizer splits a text into words before it merges
anything, so the ids of a text are those of its words in a row, and known ones are looked up. Which words a tokenizer
makes is its own affair: a text is cut only where `WordIds.of` has seen it cut, before white space or a mark that
follows a letter or digit, and before a single space. Deliberately absent: other tokenizers; they get None.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

MAX_WORDS = 1 << 16  # with their ids some 15 MB
MAX_WORD_CHARS = 32

_ALNUM = "A-Za-z0-9"
# No apostrophe, for some tokenizers keep "don't" whole.
_MARKS = r"!-&(-/:-@\[-`{-~"
_WORD = re.compile(
    rf"[ \n]*[{_MARKS}]+(?= [!-~])"
    rf"|[^{_ALNUM}]*[{_ALNUM}]+(?:[^{_ALNUM}{_MARKS} \n][^{_ALNUM}]*[{_ALNUM}]+)*(?=[{_MARKS} \n])"
    r"|.+",
    re.DOTALL,
)


class WordIds:
    """Ids of texts that hold none of the tokenizer's control tokens."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._known: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, backend: Any) -> WordIds | None:
        """For a tokenizer of `tokenizers`, or None where it may join what is cut here, or reads a word by its place."""
        splits = getattr(backend, "pre_tokenizer", None)
        # Canonical composition changes no letter, digit or mark of ASCII, nor what stands before one.
        composed = backend is not None and type(backend.normalizer).__name__ in ("NoneType", "NFC")
        if splits is None or not composed or getattr(backend.model, "dropout", None):
            return None
        made = cls(backend)
        samples = _samples()
        alike = all(_cuts(splits, text) for text in samples) and all(made._agrees(text) for text in samples[::16])
        return made if alike else None

    def ids(self, text: str) -> list[int]:
        """The ids of a text, as the tokenizer gives them for the whole."""
        words = _WORD.findall(text)
        known = self._known
        if len(known) > MAX_WORDS:
            known.clear()
        new = [word for word in dict.fromkeys(words) if word not in known]
        if new:
            known.update(self._asked(new))
        ids: list[int] = []
        for word in words:
            ids += known[word]
        for word in new:
            if len(word) > MAX_WORD_CHARS:
                del known[word]
        return ids

    def _agrees(self, text: str) -> bool:
        whole: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return self.ids(text) == whole

    def _asked(self, words: list[str]) -> dict[str, tuple[int, ...]]:
        encoded = self._backend.encode(words, is_pretokenized=True, add_special_tokens=False)
        found: dict[str, list[int]] = {word: [] for word in words}
        for token, number in zip(encoded.ids, encoded.word_ids, strict=True):
            found[words[number]].append(token)
        return {word: tuple(ids) for word, ids in found.items()}


def _samples() -> list[str]:
    """Texts that are cut at every mark and at each space, with letters, digits, marks and white space around."""
    marks = [chr(c) for c in range(33, 127) if not chr(c).isalnum() and chr(c) != "'"]
    after = ("a", "Zz", "7", " ", "\n", "(", ".", "\u00e9", "\u4e2d", "  a", "\n\n}", "'s")
    texts = [f"{left}{mark}{right}" for left in ("a", "Zz9") for mark in (*marks, " ", "\n") for right in after]
    return texts + [f"a{mark}{mark} {right}" for mark in marks for right in (*marks, "a", "7")]


def _cuts(splits: Any, text: str) -> bool:
    """Whether a pre-tokenizer cuts wherever `_WORD` does."""
    ends = {end for _, (_, end) in splits.pre_tokenize_str(text)}
    return ends.issuperset(itertools.accumulate(map(len, _WORD.findall(text))))
