"""Assertions of absence: what a distilled text denies, and whether its source denies it too.

That a transcript does not mention a thing is no fact about the thing, yet models like to write it. A denial counts as
supported where a sentence of the source denies something in the same words. Deliberately absent: understanding; a
denial in other words than the source's is reported.
"""

from __future__ import annotations

import re

from backfill.paths import word_set

_WORD = re.compile(r"[^\W_]+(?:['’]t)?")
_CUE_WORDS = (
    "no|not|never|none|nothing|nobody|nowhere|neither|nor|without|cannot|lacks?|lacking|absent|missing|unspecified"
    r"|unknown|un(?:mentioned|stated|resolved)|(?:is|are|was|were|do|does|did|has|have|had|ca|could|wo|would|should|must)n['’]t"
)
_CUE = re.compile(rf"\b(?:{_CUE_WORDS})\b", re.IGNORECASE)
# Says something about the transcript itself: never a fact of what was done.
_ABOUT_THE_TEXT = re.compile(
    r"\b(?:no|not|without)\b[^.;]{0,40}\b(?:mention(?:ed|s)?|specif(?:ied|y|ies)|stated?|discussed|provided|given"
    r"|described|indicated|shown|available|included|recorded)\b"
    r"(?=[^.;]{0,30}(?:$|[.;]|\bin the (?:text|transcript|exchange|conversation)))",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[,;:!?()]|\.(?=\s|$)|\b(?:when|because|since|after|before|if|while|and|but|so|as|which|until|than)\b",
    re.IGNORECASE,
)
_SKIPPED = word_set(
    "the a an is are was were be been of to in on at for any more than only just yet it this that do did"
)
# A gap, not a statement: "the missing colon", "without a timeout". What was taken out is a gap too.
_GAP = re.compile(r"without|missing|absent|lacks?|lacking|none|un\w+", re.IGNORECASE)
_TAKEN_OUT = re.compile(
    r"\b(?:remov|omit|drop|delet|strip|exclud|skip|disabl|ignor|avoid)\w*|\binstead of\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?:[^.!?\n。！？]|[.!?](?=\S))+")
_PREFIX = 5
_REACH = 80


def absences(text: str, source: str) -> list[str]:
    """The denials of `text` that `source` does not make, each as its words from the cue on."""
    found = []
    for cue in _CUE.finditer(text):
        if _is_no_denial(text, cue):
            continue
        after, before = _words_after(text, cue.end()), _words_before(text, cue.start())
        said = text[cue.start() : cue.start() + 60].split(".")[0].strip()
        if _ABOUT_THE_TEXT.match(text, cue.start()) and said.lower() not in source.lower():
            found.append(said)
            continue
        if _GAP.fullmatch(cue[0]) and _has_gap(source, after or before):
            continue
        if (after or before) and not _denied_in(source, after, before):
            found.append(said)
    return found


def _is_no_denial(text: str, cue: re.Match[str]) -> bool:
    """`None` as a value, "if not," and "no?"."""
    if cue[0] == "None":
        return cue.start() > 0
    return text[cue.end() : cue.end() + 1] == "?" or text[max(0, cue.start() - 4) : cue.start()].lower().endswith("if ")


def _has_gap(source: str, about: list[str]) -> bool:
    """Whether one sentence of the source denies or takes out something and has all of these words."""
    sentences = (s for s in _SENTENCE.findall(source) if _CUE.search(s) or _TAKEN_OUT.search(s))
    return not about or any(all(word in s.lower() for word in about) for s in sentences)


def _denied_in(source: str, after: list[str], before: list[str]) -> bool:
    """Whether a denial of the source is of the same words: what follows its cue there, or what it says of itself."""
    first = after[0] if after else before[-1]
    for cue in _CUE.finditer(source):
        near = source[max(0, cue.start() - _REACH) : cue.end() + _REACH]
        if first not in near.lower():
            continue
        denied, about = _scope(source, cue)
        if not after and (first in about or first in denied):
            return True
        if after and first in denied and all(word in denied or word in about for word in after[1:]):
            return True
    return False


def _scope(source: str, cue: re.Match[str]) -> tuple[set[str], set[str]]:
    """Stems of the clause that a cue of the source denies: after it, and before it."""
    after = _CLAUSE_END.split(source[cue.end() : cue.end() + _REACH], maxsplit=1)[0]
    before = _CLAUSE_END.split(source[max(0, cue.start() - _REACH) : cue.start()])[-1]
    return {w[:_PREFIX] for w in _weighty(after)}, {w[:_PREFIX] for w in _weighty(before)}


def _words_after(text: str, at: int) -> list[str]:
    """The stems of the next two words of weight in the clause."""
    clause = _CLAUSE_END.split(text[at : at + _REACH], maxsplit=1)[0]
    return [word[:_PREFIX] for word in _weighty(clause)[:2]]


def _words_before(text: str, at: int) -> list[str]:
    return [word[:_PREFIX] for word in _weighty(text[max(0, at - 60) : at])[-1:]]


def _weighty(text: str) -> list[str]:
    return [w for w in map(str.lower, _WORD.findall(text)) if w not in _SKIPPED and not _CUE.fullmatch(w)]
