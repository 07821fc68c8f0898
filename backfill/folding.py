"""Folds near copies among ranked hits: the better one is shown, the others and their places are listed with it.

Two exchanges are near copies when their texts share almost all runs of three words, and every word that is no plain
word (a number, a version, a hash, an id) or that denies is the same in both: what differs in a fact is never hidden.
Deliberately absent: copies of one exchange, which are one document with several places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from backfill.hits import Hit

# Jaccard over runs of three words: one word changed in forty leaves 0.85, one in fifteen 0.65.
MIN_SHARED = 0.8
# And the shorter text has at least this share of the longer one's characters.
MIN_SIZE = 0.9
# Longer texts are told apart by their beginning and their length.
_COMPARED_CHARS = 20_000
# "t" is what is left of "doesn't" and its like.
_DENIALS = frozenset(("no", "not", "never", "nor", "none", "without", "cannot", "t"))
# Near copies have nearly the same score, so the hits just above a hit are enough to look at.
COMPARED_HITS = 50
_WORD = re.compile(r"\w+")
# Each hit is compared with several; the words of the longest texts take 0.5 MB.
_RECENT_TEXTS = 16


def near_copies(kept: Sequence[Hit], hit: Hit) -> int:
    """The position in `kept` of a hit that `hit` is a near copy of; -1 where there is none."""
    for number in range(len(kept) - 1, max(-1, len(kept) - 1 - COMPARED_HITS), -1):
        other = kept[number]
        if _alike_in_size(other, hit) and _alike_in_score(other, hit) and _are_near(other, hit):
            return number
    return -1


def scores_agree(one: Mapping[str, float], other: Mapping[str, float], within: float) -> bool:
    """Whether every signal that both have gives them the same score, but for the part `within` of it."""
    for name, a in one.items():
        b = other.get(name)
        if b is not None and abs(a - b) > within * max(abs(a), abs(b), 0.1):
            return False
    return True


def _alike_in_size(one: Hit, other: Hit) -> bool:
    sizes = sorted(len(hit.user_text) + len(hit.agent_text) for hit in (one, other))
    return sizes[0] >= MIN_SIZE * sizes[1]


def _alike_in_score(one: Hit, other: Hit) -> bool:
    """Near copies score nearly the same by every signal; most pairs are told apart by that, without reading them."""
    return scores_agree(one.signals, other.signals, 0.2)


def _are_near(one: Hit, other: Hit) -> bool:
    first, second = (_words((hit.user_text, hit.agent_text)) for hit in (one, other))
    if first == second:
        return True
    if _differ_much(first, second):
        return False
    if list(filter(is_telling, first)) != list(filter(is_telling, second)):
        return False
    runs, others = _runs(first), _runs(second)
    return len(runs & others) >= MIN_SHARED * len(runs | others)


def _differ_much(first: list[str], second: list[str]) -> bool:
    """Whether so many words stand in one text alone that their runs cannot agree; most pairs differ so.

    A run holds at most three words, so the runs that are not shared are at least a third of these words; shared runs
    are at most those of the shorter text.
    """
    apart = len(set(first).symmetric_difference(second))
    shared = max(min(len(first), len(second)) - 2, 1)
    return shared < MIN_SHARED * (shared + apart / 3)


@lru_cache(maxsize=_RECENT_TEXTS)
def _words(hit_texts: tuple[str, str]) -> list[str]:
    return words_of(*hit_texts)


def words_of(user_text: str, agent_text: str) -> list[str]:
    """The words by which two exchanges are compared, in order, in folded case."""
    return _WORD.findall(f"{user_text[:_COMPARED_CHARS]} \0 {agent_text[:_COMPARED_CHARS]}".casefold())


def is_telling(word: str) -> bool:
    """Whether a word must be the same in near copies: it is no plain word, or it denies."""
    return not word.isalpha() or word in _DENIALS


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:], strict=False)) or {tuple(words)}
