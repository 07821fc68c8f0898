"""Terms of a text for BM25: words stemmed, code kept whole and split.

A compound (identifier, path, version, dotted name) gives itself, its segments and their camel and snake parts, so
that `src/retry_policy.ts` is found by its path, its file name and by "retry policies". A term depends on its
white-space-delimited chunk alone, which makes a memo of chunks exact and fast. Any change to the terms of any text
must raise TOKENIZER_VERSION. Deliberately absent: other languages' stemmers and corpus statistics.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from operator import ne

import Stemmer

TOKENIZER_VERSION = 1

MAX_TERM_CHARS = 64
# Longer than any path that people type; what runs on without white space beyond this is data, not a name.
_MAX_COMPOUND_CHARS = 256
# A chunk up to this long is remembered: 65,536 chunks of at most 64 characters and their terms, about 60 MB.
_MEMO_CHARS = 64
_MEMO_CHUNKS = 1 << 16

# Words that carry no topic; short, for "not", "no", "all" and the like do carry one in questions about code.
# fmt: off
STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "did", "do", "does", "for", "from", "had",
    "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on",
    "or", "our", "she", "so", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "those", "to", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with", "would",
    "you", "your", "s", "t", "d", "ll", "m", "re", "ve",
))
# fmt: on

# Scripts written without spaces between words: Han, kana, Hangul, Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# \w lacks the vowel signs of Hebrew, Arabic and the Indic scripts.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_LETTER = rf"(?:(?![{_UNSPACED}])[\w{_MARKS}])"
_PIECE = (
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    r"|(?P<sharp>(?<!\w)[A-Za-z](?:\+\+|#)(?!\w))"
    rf"|(?P<compound>{_LETTER}+(?:(?:[._\-/\\:@+]|::|://|\.\./|:\\){_LETTER}+)*)"
)
_ASCII_COMPOUND = re.compile(r"(?<!\w)[A-Za-z](?:\+\+|#)(?!\w)|\w+(?:(?:[._\-/\\:@+]|::|://|\.\./|:\\)\w+)*")
_PATH_AND_LINE = re.compile(r"(.*[/.][A-Za-z]\w*)((?::\d+){1,2})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_SEGMENTS = re.compile(r"[/\\:@+]+")
_WORDS = re.compile(r"[._\-]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^A-Za-z\d_]+")
_VERSION = re.compile(r"v?\d+(?:[._:\-]\d+)+[\w.+\-]*", re.IGNORECASE)
_LATIN_MARKS = re.compile("[\u0300-\u036f]")
_HEX = re.compile(r"[0-9a-f]{16,}", re.IGNORECASE)
_CLASSES = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "A" * 26 + "a" * 26 + "0" * 10
)

# Its own memo is off: words and chunks are remembered here.
_stemmer = Stemmer.Stemmer("english", 0)


def tokenize(text: str) -> list[str]:
    """The terms of a text in order, repeated as often as they stand there; each of at most 64 characters."""
    terms: list[str] = []
    for chunk in text.split():
        terms += _remembered(chunk) if len(chunk) <= _MEMO_CHARS else _chunk_terms(chunk)
    return terms


def _chunk_terms(chunk: str) -> tuple[str, ...]:
    terms: list[str] = []
    if chunk.isascii():
        for compound in _ASCII_COMPOUND.findall(chunk):
            _add_compound(terms, compound)
        return tuple(terms)
    for match in _piece().finditer(_fold_accents(chunk)):
        if match.lastgroup == "unspaced":
            run = match.group()
            terms += [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
        else:
            _add_compound(terms, match.group())
    return tuple(terms)


_remembered = lru_cache(maxsize=_MEMO_CHUNKS)(_chunk_terms)


@cache
def _piece() -> re.Pattern[str]:
    """Compiled for the first text beyond ASCII: a query seldom has any, and its command would wait 5 ms for it."""
    return re.compile(_PIECE)


def _add_compound(terms: list[str], text: str) -> None:
    if text.isalpha() and (text.islower() or text.istitle()):
        _add_word(terms, text.casefold())
    elif text[-1] in "+#":
        terms.append(text.casefold())
    elif len(text) > _MAX_COMPOUND_CHARS:
        for word in _WORDS.split(_SEGMENTS.sub(".", text)):
            if not _looks_random(word):
                terms += _word_terms(word)
    elif place := _PATH_AND_LINE.fullmatch(text):
        _add_named(terms, place[1])
        terms += place[2][1:].split(":")
    elif date := _DATE.match(text):
        terms.append(date[0])
        if len(text) > len(date[0]):
            _add_whole(terms, text)
    else:
        _add_named(terms, text)


def _add_named(terms: list[str], text: str) -> None:
    """The compound, the last two segments of a path, each segment, and the parts of each."""
    segments = [s for s in _SEGMENTS.split(text) if s.strip(".-")]
    if len(segments) > 1:
        _add_whole(terms, text.replace("\\", "/"))
        if len(segments) > 2 and "://" not in text and ("/" in text or "\\" in text):
            _add_whole(terms, "/".join(segments[-2:]))
    for segment in segments:
        segment = segment.strip(".-")
        if _VERSION.fullmatch(segment):
            _add_whole(terms, segment.removeprefix("v"))
            continue
        words = [w for w in _WORDS.split(segment) if w]
        if len(words) > 1:
            _add_whole(terms, segment)
        for word in words:
            terms += _word_terms(word)


@lru_cache(maxsize=1 << 16)
def _word_terms(word: str) -> tuple[str, ...]:
    """A word without joiners: whole, and its camel-case and digit parts where it has several."""
    terms: list[str] = []
    parts = [] if _looks_random(word) else _CAMEL.findall(word)
    if parts == [word] and word.isalpha():
        _add_word(terms, word.casefold())
        if word.isupper() and terms and terms[-1] != word.casefold():
            # ECONNREFUSED, ENOENT: error names stay whole beside their stem.
            _add_whole(terms, word)
        return tuple(terms)
    _add_whole(terms, word)
    if len(parts) > 1:
        for part in parts:
            if len(part) > 1 or not part.isalpha():
                _add_word(terms, part.casefold())
    return tuple(terms)


def _add_word(terms: list[str], word: str) -> None:
    if word not in STOP_WORDS:
        _add_whole(terms, _stemmer.stemWord(word) if len(word) <= MAX_TERM_CHARS else word)


def _add_whole(terms: list[str], text: str) -> None:
    # A cut term would match what it does not mean, so a longer one is left out; its parts stand for it.
    folded = text.casefold()
    if len(folded) <= MAX_TERM_CHARS:
        terms.append(folded)


def _looks_random(word: str) -> bool:
    """Hashes, base64 and the like: parts of them would fill the vocabulary and match nothing that anyone means.

    Random base64 changes between upper, lower and digit at 62% of its places, camel-case names at under 30%.
    """
    if len(word) < 16 or len(word) > MAX_TERM_CHARS:
        return len(word) > MAX_TERM_CHARS
    if _HEX.fullmatch(word) and not word.isalpha():
        return True
    classes = word.translate(_CLASSES)
    changes: int = sum(map(ne, classes, classes[1:]))
    return changes > 0.4 * len(word)


def _fold_accents(text: str) -> str:
    """Compatibility forms unified and Latin, Greek and Cyrillic accents removed; other marks are letters' parts."""
    return unicodedata.normalize("NFC", _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", text)))
