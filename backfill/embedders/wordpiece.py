"""The BERT WordPiece tokenizer in plain Python: the tokens of Hugging Face's fast tokenizer, without its package.

Devlin et al. 2019 (arXiv 1810.04805), in the variant of `tokenizers.BertNormalizer` and `BertPreTokenizer`: special
tokens are recognised in the text, characters are lower-cased one at a time (no final sigma), accents are removed
where text is lower-cased. Differs from it only for some 560 characters younger than its Unicode 8 tables.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

_MAX_WORD_CHARS = 100
# Normalisation removes NUL from every text, so it can stand between words.
_BREAK = "\0"
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Characters(dict[int, str]):
    """Code points to normalised text, with breaks around CJK characters and punctuation; filled as they are met.

    One character never changes what another becomes: combining marks, which NFD may reorder, are all removed.
    """

    def __init__(self, lowercase: bool) -> None:
        super().__init__()
        self._lowercase = lowercase

    def __missing__(self, code: int) -> str:
        self[code] = text = self._normal(chr(code))
        return text

    def _normal(self, character: str) -> str:
        if character in "\0\ufffd":
            return ""
        if unicodedata.category(character) in ("Cc", "Cf", "Co") and character not in "\t\n\r":
            return ""
        if character.isspace():
            return _BREAK
        text = character
        if self._lowercase:
            bare = "".join(c for c in unicodedata.normalize("NFD", character) if unicodedata.category(c) != "Mn")
            text = "".join(c.lower() for c in bare)
        text = "".join(f"{_BREAK}{c}{_BREAK}" if _is_punctuation(c) else c for c in text)
        return f"{_BREAK}{text}{_BREAK}" if any(a <= ord(character) <= b for a, b in _CJK) else text


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return "!" <= character <= "~" and not character.isalnum()
    return unicodedata.category(character).startswith("P")


class WordPieceTokenizer:
    """Texts to token ids. `vocabulary` maps tokens to ids; `special` are tokens recognised as they stand in a text."""

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        *,
        lowercase: bool = True,
        special: Sequence[str] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    ) -> None:
        """Raises KeyError where the vocabulary lacks [UNK], [CLS] or [SEP]."""
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._start, self._end = vocabulary["[CLS]"], vocabulary["[SEP]"]
        known = [token for token in special if token in vocabulary]
        self._special = re.compile("|".join(map(re.escape, known)) or r"(?!)")
        self._characters = _Characters(lowercase)

    def encode(self, text: str, max_tokens: int) -> tuple[list[int], bool]:
        """At most `max_tokens` ids with [CLS] and [SEP] around them, and whether tokens were left out."""
        ids, position = [self._start], 0
        for match in [*self._special.finditer(text), None]:
            between = text[position : match.start() if match else len(text)]
            for word in between.translate(self._characters).split(_BREAK):
                ids += self._pieces(word)
            if match is None:
                break
            ids.append(self._vocabulary[match.group()])
            position = match.end()
        cut = len(ids) > max_tokens - 1
        return [*ids[: max_tokens - 1], self._end], cut

    def _pieces(self, word: str) -> list[int]:
        """Longest-match-first pieces, or one [UNK] where the word is too long or has no pieces."""
        if len(word) > _MAX_WORD_CHARS:
            return [self._unknown]
        ids: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._vocabulary.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if number is not None:
                    break
            else:
                return [self._unknown]
            ids.append(number)
            start = end
        return ids
