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
_SENTENCE = re.compile(r"(?:[^.!?\n。！？]|[.!?](?=\S))+")
_CLAUSE_END = re.compile(
    r"[,;:!?()]|\.(?=\s|$)|\b(?:when|because|since|after|before|if|while|and|but|so|as|which|until|than)\b",
    re.IGNORECASE,
)
_SKIPPED = word_set(
    "the a an is are was were be been of to in on at for any more than only just yet it this that do did"
)
_PREFIX = 5


def absences(text: str, source: str) -> list[str]:
    """The denials of `text` that `source` does not make, each as its words from the cue on."""
    found = []
    spans: list[str] | None = None
    for cue in _CUE.finditer(text):
        about = _words_after(text, cue.end()) or _words_before(text, cue.start())
        said = text[cue.start() : cue.start() + 60].split(".")[0].strip()
        if _ABOUT_THE_TEXT.match(text, cue.start()) and said.lower() not in source.lower():
            found.append(said)
            continue
        if spans is None:
            spans = [s.lower() for s in _SENTENCE.findall(source) if _CUE.search(s)]
        if about and not any(all(word in span for word in about) for span in spans):
            found.append(said)
    return found


def _words_after(text: str, at: int) -> list[str]:
    """The stems of the next two words of weight in the clause."""
    clause = _CLAUSE_END.split(text[at : at + 80], maxsplit=1)[0]
    words = [w.lower() for w in _WORD.findall(clause) if w.lower() not in _SKIPPED and not _CUE.fullmatch(w)]
    return [word[:_PREFIX] for word in words[:2]]


def _words_before(text: str, at: int) -> list[str]:
    words = [w.lower() for w in _WORD.findall(text[max(0, at - 60) : at]) if w.lower() not in _SKIPPED]
    return [word[:_PREFIX] for word in words[-1:]]
