"""What a distilled object leaves out or pads with: load-bearing facts that are gone, words that say nothing.

Load-bearing are the error that was reported, the value that something was set to, and what was decided. The files
edited need no check: they stand in `files_touched`, which no model writes. Rules are narrow on purpose, for an object
of two sentences leaves out most of its exchange rightly. Deliberately absent: judging which of two facts matters more.
"""

from __future__ import annotations

import re
from collections import deque

from backfill.rooms import STOP_WORDS
from backfill.text import tokens_est
from backfill.types import Exchange, Finding, PalaceObject

CORE = "exchange_core"
# The extractive object, which the quality figures call the baseline, is at most 30 + 17 tokens; 1.25 of it is bloat.
MAX_OBJECT_TOKENS = 59

_READ_CHARS = 6_000
_SENTENCE = re.compile(r"[^.!?\n。！？]+(?:[.!?](?=\S)[^.!?\n。！？]+)*")
_WORD = re.compile(r"[^\W_]{3,}")
_TROUBLE = re.compile(
    r"error|exception|fail|crash|panic|fault|broke|bug|denied|refus|reject|timed? ?out|missing|错误|失败|エラー",
    re.IGNORECASE,
)
# The error names among the handles; finding all handles of an exchange would cost more than all other checks.
_ERROR_NAME = re.compile(
    r"\b(?:[A-Z][A-Za-z0-9]*(?:Error|Exception|Panic|Fault)"
    r"|(?!ERRORS?\b|EXCEPTION\b|E(?:MPTY|VERY|XPECTED|XAMPLE)\b)E[A-Z]{4,}"
    r"|SIG[A-Z]{2,8}"
    r"|(?:HTTP|[Ss]tatus(?: code)?|[Ee]xit(?: code| status)?|[Ee]rror) \d{1,5})\b"
)
_CHANGE = re.compile(
    r"\b(?:set|sets|setting|raised?|lower(?:ed)?|chang(?:ed?|ing)|bump(?:ed)?|increas(?:ed?|ing)|decreas(?:ed?|ing)"
    r"|reduc(?:ed?|ing)|switch(?:ed|ing)?)\b[^.!?\n]{1,80}?\bto\s+[`\"']?(?P<value>[\w./:%-]*\w)",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|chose|agreed to|opted|settled on|went with|going with)\b|决定|決定|결정", re.IGNORECASE
)
_FILLER = re.compile(
    r"\b(?:this (?:exchange|conversation|transcript|session|text|summary)|in this (?:exchange|conversation)"
    r"|the (?:user and (?:the )?agent|conversation|exchange|transcript) (?:discuss|talk|is about|cover|describ|show"
    r"|involv)\w*"
    r"|various (?:changes|things|aspects|issues)|and (?:so on|more)|as (?:mentioned|described) (?:above|before)"
    r"|it is (?:important|worth) (?:to|not)\w*|successfully (?:completed|performed) the (?:task|request))\b",
    re.IGNORECASE,
)


def dropped_facts(made: PalaceObject, exchange: Exchange) -> list[Finding]:
    """The load-bearing facts of the exchange that neither core nor context gives, at most one of each kind."""
    told = f"{made.exchange_core}\n{made.specific_context}"
    texts = (exchange.user_text[:_READ_CHARS], exchange.agent_text[-_READ_CHARS:])
    found = (_dropped_error(told, texts), _dropped_value(told, texts[1]), _dropped_decision(told, texts))
    return [Finding("dropped", fact, CORE) for fact in found if fact]


def bloat(made: PalaceObject, exchange: Exchange) -> list[Finding]:
    """Filler that the exchange does not have, and more words than it has, or than the baseline's budget allows."""
    filler = _FILLER.search(made.exchange_core)
    if filler and filler[0].lower() not in f"{exchange.user_text}\n{exchange.agent_text}".lower():
        return [Finding("bloat", filler[0], CORE)]
    source = max(exchange.tokens_est, tokens_est(exchange.user_text, exchange.agent_text))
    if tokens_est(made.exchange_core) > source + 4 or made.tokens > MAX_OBJECT_TOKENS + tokens_est(
        made.specific_context
    ):
        return [Finding("bloat", f"{made.tokens} tokens for {source}", CORE)]
    return []


def _dropped_error(told: str, texts: tuple[str, str]) -> str:
    """An error that prompt and answer both speak of, by name, where the object speaks of no trouble at all."""
    if _TROUBLE.search(told):
        return ""
    names = [_ERROR_NAME.findall(text) for text in texts]
    shared = next((name for name in names[0] if name in names[1]), "")
    name = shared or (names[0][0] if names[0] else "")
    return "" if name in told else name


def _dropped_value(told: str, answer: str) -> str:
    """The last value that the answer sets, where the object speaks of that change without it."""
    change = deque(_CHANGE.finditer(answer), maxlen=1)
    value = str(change[0]["value"]) if change else ""
    if not any(c.isdigit() for c in value) or value in told:
        return ""
    about = {w.lower() for w in _WORD.findall(change[0][0])} - STOP_WORDS
    words = {w.lower() for w in _WORD.findall(told)}
    return value if len(about & words) >= min(3, len(about)) and about else ""


def _dropped_decision(told: str, texts: tuple[str, str]) -> str:
    """A sentence that says what was decided, where the object shares nearly nothing with any such sentence."""
    decisions = [s for text in texts if _DECISION.search(text) for s in _SENTENCE.findall(text) if _DECISION.search(s)]
    if not decisions:
        return ""
    words = {w.lower()[:6] for w in _WORD.findall(told)}
    for sentence in decisions:
        about = {w.lower()[:6] for w in _WORD.findall(sentence) if w.lower() not in STOP_WORDS}
        if len(about & words) >= min(2, len(about)):
            return ""
    return str(decisions[-1]).strip()[:120]
