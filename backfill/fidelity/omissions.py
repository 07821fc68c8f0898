"""What a distilled object leaves out or pads with: load-bearing facts that are gone, words that say nothing.

Load-bearing are the error that was reported, the value that something was set to, and what was decided. The files
edited need no check: they stand in `files_touched`, which no model writes. Rules are narrow on purpose, for an object
of two sentences leaves out most of its exchange rightly. Deliberately absent: judging which of two facts matters more.
"""

from __future__ import annotations

import re
from collections import deque

from backfill.fidelity.filler import filler_in
from backfill.rooms import STOP_WORDS
from backfill.text import AnyCase, tokens_est
from backfill.types import Exchange, Finding, PalaceObject

CORE = "exchange_core"
# The extractive object, which the quality figures call the baseline, is at most 30 + 17 tokens; 1.25 of it is bloat.
MAX_OBJECT_TOKENS = 59

_READ_CHARS = 6_000
# In a longer prompt a "why" may be one question of many, or stand in what was pasted.
_SHORT_PROMPT_CHARS = 400
_SENTENCE = re.compile(r"[^.!?\n。！？]+(?:[.!?](?=\S)[^.!?\n。！？]+)*")
_WORD = re.compile(r"[^\W_]{3,}")
_TROUBLE = AnyCase(
    r"error|exception|fail|crash|panic|fault\b|broke|bug\b|denied|refus|reject|timed? ?out|missing|invalid|undefined"
    r"|exhaust|leak|stale|corrupt|hang|hung\b|deadlock|conflict|wrong|incorrect|mislead|unable|cannot|can['’]t"
    r"|not found|not a valid|no such|does not exist|错误|失败|エラー|오류"
)
# The error names among the handles; finding all handles of an exchange would cost more than all other checks.
_ERRNO = (
    r"E(?:ACCES|ADDRINUSE|ADDRNOTAVAIL|AGAIN|BADF|BUSY|CONNABORTED|CONNREFUSED|CONNRESET|EXIST|HOSTUNREACH|INTEGRITY"
    r"|INTR|INVAL|ISDIR|LIFECYCLE|LOOP|MFILE|NAMETOOLONG|NETUNREACH|NOENT|NOEXEC|NOMEM|NOSPC|NOTCONN|NOTDIR|NOTEMPTY"
    r"|NOTFOUND|NOTSUP|PERM|PIPE|RESOLVE|ROFS|TIMEDOUT|XDEV)"
)
_ERROR_NAME = re.compile(
    rf"\b(?:[A-Z][A-Za-z0-9]*(?:Error|Exception|Panic|Fault)|{_ERRNO}|SIG[A-Z]{{2,8}}"
    r"|(?:HTTP|[Ss]tatus(?: code)?|[Ee]xit(?: code| status)?|[Ee]rror) \d{1,5})\b"
)
_ERRNO_ONLY = re.compile(_ERRNO)
# One of these stands in every other error name; looking for them costs a tenth of a search for the pattern.
_NAME_HINTS = ("Error", "Exception", "Panic", "Fault", "SIG", "HTTP ", "tatus ", "xit ", "rror ", " code ")
# An error as what happened: a line of a log, a heading, or a sentence with its cause; not "error handling" in passing.
_REPORT = re.compile(
    r"(?:^|(?<=[\s`'\"]))(?:(?:[A-Za-z]\w*)?(?:Error|Exception)|[Ee]rror|ERROR|FAILED|[Ff]atal|[Cc]rash|[Pp]anic)"
    r"(?:\[\w+\])?: (?=\S)[^\n]{3,60}"
    r"|^\s*(?:ERROR|FAILED)\b[^\n]{0,60}"
    r"|^(?:#+|\*\*)[^\n]{0,40}?\b[A-Z]\w+(?:Error|Exception)\b"
    r"|\b(?:failed|crashed|broke|hung)\b[^.\n]{0,40}\b(?:because|since|due to|with)\b"
    r"|\b(?:the|this|an) (?:\w+ ){0,2}(?:crash|exception)\b"
    r"|[\"“'][^\"”'\n]{3,60}[\"”'] error\b"
    r"|\bwhy (?:\w+ ){1,4}(?:fail(?:s|ed)?|crash(?:es|ed)?|break|stale|exhausted)\b",
    re.MULTILINE,
)
# A question after the cause of a trouble: what is in trouble is then what the exchange is about.
_WHY = re.compile(
    r"\bwhy (?P<about>(?:[\w'/.-]+ ){1,6}?(?:fail\w*|crash\w*|break\w*|broken?|hang\w*|hung|stuck|stale|exhausted"
    r"|leak\w*))\b",
    re.IGNORECASE,
)
_REPORT_HINTS = ("rror", "RROR", "xception", "ailed", "AILED", "rash", "anic", "atal", "broke", "hung", "why ", "Why ")
# The answer ends with what could not be done, and a tool said why.
_GAVE_UP = AnyCase(r"\b(?:could ?n[o']t|could not|unable to|can(?:not|['’]t)|failed)\b")
_TOOL_ERROR = re.compile(r"\s*(?:Error|error|fatal|Traceback)\b[^\n]{3,80}")
_CHANGE = re.compile(
    r"\b(?:set|sets|setting|raised?|lower(?:ed)?|chang(?:ed?|ing)|bump(?:ed)?|increas(?:ed?|ing)|decreas(?:ed?|ing)"
    r"|reduc(?:ed?|ing)|switch(?:ed|ing)?)\b[^.!?\n]{1,80}?\bto\s+[`\"']?(?P<value>[\w./:%-]*\w)",
    re.IGNORECASE,
)
# What a value that holds a digit stands behind, in small letters.
_TO_VALUE = re.compile(r"to\s+[`\"']?[\w./:%-]*?\d")
_DECISION = re.compile(
    r"\b(?:decided|decision|chose|agreed to|opted|settled on|went with|going with)\b|决定|決定|결정", re.IGNORECASE
)
_DECISION_HINTS = (
    *("decided", "decision", "chose", "agreed to", "opted", "settled on", "went with", "going with"),
    *("决定", "決定", "결정"),
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
    found = (_dropped_error(told, texts, exchange), _dropped_value(told, texts[1]), _dropped_decision(told, texts))
    return [Finding("dropped", fact, CORE) for fact in found if fact]


def bloat(made: PalaceObject, exchange: Exchange, source: str) -> list[Finding]:
    """Filler that the exchange does not have (`source` is all of its text), and more words than it has, or than the
    baseline's budget allows."""
    filler = _FILLER.search(made.exchange_core)
    if filler and filler[0].lower() not in f"{exchange.user_text}\n{exchange.agent_text}".lower():
        return [Finding("bloat", filler[0], CORE)]
    idle = filler_in(made.exchange_core, source)
    if idle:
        return [Finding("bloat", idle[:120], CORE)]
    said = max(exchange.tokens_est, tokens_est(exchange.user_text, exchange.agent_text))
    if tokens_est(made.exchange_core) > said + 4 or made.tokens > MAX_OBJECT_TOKENS + tokens_est(made.specific_context):
        return [Finding("bloat", f"{made.tokens} tokens for {said}", CORE)]
    return []


def _dropped_error(told: str, texts: tuple[str, str], exchange: Exchange) -> str:
    """The error that the exchange is about, where the object speaks of no trouble at all.

    It is one that the prompt names, the one that both texts name, or one that the answer gives as what happened. Where
    the prompt asks why something is in trouble, speaking of another trouble, such as the cause, is not enough.
    """
    asked = _WHY.search(texts[0]) if len(texts[0]) <= _SHORT_PROMPT_CHARS else None
    if asked is not None:
        about = {word.lower()[:4] for word in _WORD.findall(asked["about"]) if word.lower() not in STOP_WORDS}
        if len(about) > 1 and about.isdisjoint(word.lower()[:4] for word in _WORD.findall(told)):
            return " ".join(asked[0].split())
    if _TROUBLE.is_in(told):
        return ""
    names = [_error_names(text) for text in texts]
    shared = next((name for name in names[0] if name in names[1]), "")
    name = shared or (names[0][0] if names[0] else "")
    if not name:
        hinted = (text for text in texts if any(hint in text for hint in _REPORT_HINTS))
        report = next((found for text in hinted if (found := _REPORT.search(text))), None)
        if report is None and _GAVE_UP.is_in(texts[1][-400:]):
            report = next((found for tool in exchange.tools if (found := _TOOL_ERROR.match(tool.head))), None)
        name = " ".join(report[0].split()) if report else ""
    return "" if name in told else name


def _error_names(text: str) -> list[str]:
    hinted = any(hint in text for hint in _NAME_HINTS) or _ERRNO_ONLY.search(text)
    return _ERROR_NAME.findall(text) if hinted else []


def _dropped_value(told: str, answer: str) -> str:
    """The last value that the answer sets, where the object speaks of that change without it."""
    if not _TO_VALUE.search(answer.lower()):
        return ""
    change = deque(_CHANGE.finditer(answer), maxlen=1)
    value = str(change[0]["value"]) if change else ""
    if not any(c.isdigit() for c in value) or value in told:
        return ""
    about = {w.lower() for w in _WORD.findall(change[0][0])} - STOP_WORDS
    words = {w.lower() for w in _WORD.findall(told)}
    return value if len(about & words) >= min(3, len(about)) and about else ""


def _dropped_decision(told: str, texts: tuple[str, str]) -> str:
    """A sentence that says what was decided, where the object shares nearly nothing with any such sentence."""
    hinted = [text for text in texts if _hints_at_decision(text.lower())]
    decisions = [s for text in hinted if _DECISION.search(text) for s in _SENTENCE.findall(text) if _DECISION.search(s)]
    if not decisions:
        return ""
    words = {w.lower()[:6] for w in _WORD.findall(told)}
    for sentence in decisions:
        about = {w.lower()[:6] for w in _WORD.findall(sentence) if w.lower() not in STOP_WORDS}
        if len(about & words) >= min(2, len(about)):
            return ""
    return str(decisions[-1]).strip()[:120]


def _hints_at_decision(lower: str) -> bool:
    return any(hint in lower for hint in _DECISION_HINTS)
