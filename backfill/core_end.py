"""The end of a core that a model did not end itself.

The automaton of the wire schema lets 24 words through and then forbids spaces: a model that is not done writes its next
words without them ("were being treated as twoparateessions."), small models in 60 of 100 answers. What comes after the
last whole word is no word of the text, and what leads up to it hangs in the air: both go. Only the mark is added.
"""

from __future__ import annotations

from backfill.fidelity.grounding import Words
from backfill.paths import word_set
from backfill.text import sentence_spans
from backfill.wire import MAX_CORE_WORDS

MIN_LAST_WORDS = 3
_MARKS = ".!?"
_LOOSE = " ,;:-_–—([{<=+/&|"
# Words that announce another: articles, prepositions, conjunctions, auxiliaries, pronouns before a verb.
_ANNOUNCING = word_set(
    """
    a an the this that these those which who whose of in on at to from for with without by as into onto over under
    about after before between and or but if then than so because since while until though when where whether is are
    was were be been being am do does did has have had having can could should would will shall may might must not no
    i we you he she it they my our your his her its their each every any some more also
    """
)


def closed(core: str, seen: Words) -> str:
    """The core without an end that the bound on words cut off; as it is where it is shorter than the bound, or longer,
    as of an engine that heeds no bound and ends its sentences itself.

    The last word stays where the source has it as a whole word. Words that announce another and then stand last go, and
    so does a last sentence of which fewer than three words are left.
    """
    words = core.split(" ")
    if len(words) != MAX_CORE_WORDS:
        return core
    last = words[-1].rstrip(_MARKS)
    if not last or not seen.has(last):
        words.pop()
    while words and _hangs(words[-1]):
        words.pop()
    kept = " ".join(words).rstrip(_LOOSE)
    spans = sentence_spans(kept)
    if len(spans) > 1 and len(kept[slice(*spans[-1])].split()) < MIN_LAST_WORDS:
        kept = kept[: spans[-2][1]]
    return kept if not kept or kept[-1] in _MARKS else f"{kept}."


def _hangs(word: str) -> bool:
    """Whether nothing may end with this word: it opens something, or announces another word."""
    bare = word.strip(_LOOSE + "*`'\"")
    return word[-1:] not in _MARKS and (not bare or bare.lower() in _ANNOUNCING)
