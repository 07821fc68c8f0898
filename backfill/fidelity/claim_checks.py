"""Checks of a claim's text: does it stand alone, and does its source hold it?

A claim is read far from its exchange, so that a pronoun without a name, a greeting or a word on the agent's tools makes
it worthless, and a denied fact makes it wrong. Handles are classified as those of objects are. Deliberately absent:
the claim's place and kind, which its window decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backfill.fidelity.absence import absences
from backfill.fidelity.checks import classify, leaked
from backfill.fidelity.filler import filler_in
from backfill.fidelity.grounding import Words, is_grounded
from backfill.fidelity.handles import find_handles
from backfill.paths import word_set
from backfill.text import tokens_est
from backfill.types import ClaimKind, Finding

MIN_WORDS = 4
MAX_CLAIM_TOKENS = 64
FIELD = "claim"

DANGLING = re.compile(
    r"(?:(?:and|but|so|also|then|because|which|however) )?"
    r"(?:it|its|it's|this|that|that's|these|those|they|they're|them|their|he|she|his|her|there|here|both|the (?:above"
    r"|former|latter|same|following|issue|problem|change|changes|fix|file|code|error))\b(?! \w+[._/(]\w)",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:hi|hey|hello|thanks|thank you|good (?:morning|evening|afternoon)|you're welcome|welcome|bye|see you|no problem"
    r"|have a (?:nice|great|good)|happy to help|glad to hear|sounds good|great|awesome|perfect|nice)\b"
    r"[^.!?]{0,30}[.!?]?$"
    r"|(?:thanks|thank you|happy to help|glad to hear|let me know|feel free|is there anything)\b",
    re.IGNORECASE,
)
_MECHANICS = re.compile(
    r"(?:(?:the )?(?:agent|assistant|model|ai) (?:then |also )?(?:read|reads|opened|opens|searched|searches|listed"
    r"|lists|ran|runs|used|uses|called|calls|looked|looks|viewed|checked|grepped)\b"
    r"|(?:let me|let's|i'll|i will|i'm going to|now i|next,? i|first,? i)\b"
    r"|(?:reading|opening|searching|listing|looking|checking|running|viewing|calling) (?:at |for |in |through )?"
    r"(?:the |all |this )?(?:file|files|folder|directory|repo|repository|code|codebase|command|tool|output|results?)\b"
    r"|(?:tool|bash|grep|glob|read|edit|write) (?:call|tool|output|result)\b|user (?:asked|said|wants|requested)\b"
    r"|the user (?:asked|asks|said|wants|requested)\b)",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\w+(?:['’]\w+)?|[぀-ヿ㐀-鿿가-힯]")
_ASKS = re.compile(r"[?？]\W*$")

_DECISION = re.compile(
    r"\b(?:decid\w+|decision|chose|chosen|choose|agreed|opted|settled on|rather than|instead of|in favou?r of|went with"
    r"|going with|will use|switch(?:ed|ing)? (?:to|from)|plan(?:ned)? to|trade-?off)\b|决定|決め|결정",
    re.IGNORECASE,
)
_INCIDENT = re.compile(
    r"\b(?:error|errors|exception|fail(?:s|ed|ing|ure)?|crash\w*|broke|broken|outage|regression|timed? ?out|timeouts?"
    r"|panic|leak\w*|deadlock\w*|corrupt\w*|hang|hangs|hung|bug|root cause|segfault|denied|refused|stuck"
    r"|traceback)\b"
    r"|[A-Z]\w*(?:Error|Exception)\b|错误|失败|エラー|오류",
    re.IGNORECASE,
)
_HOWTO = re.compile(
    r"\b(?:to \w+[^.]{0,60}?,? (?:run|use|call|add|set|pass)|run `|use `|by running|you can|steps?:|how to"
    r"|install with)\b"
    r"|`\$? ?\w+ [^`]+`",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\b(?:prefer\w*|always|never|please (?:use|keep|do not|don't|avoid)|do not use|don't (?:use|add|like)|avoid"
    r"|love[sd]?|likes?|enjoys?|favou?rite|hates?|wants?)\b",
    re.IGNORECASE,
)
_STATUS = word_set(
    """
    added adds fixed fixes implemented merged deployed released removed renamed updated created moved refactored passes
    passed pass passing done finished completed works ready committed pushed installed upgraded migrated replaced
    """
)
_SET_TO = re.compile(
    r"\b(?:set|raised|lowered|increased|decreased|reduced|bumped|changed|defaults?)\b.*\bto\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """What claims may take their words from, as it stands and as `Words`; made once for many claims."""

    text: str
    words: Words

    @classmethod
    def of(cls, *texts: str) -> ClaimSource:
        text = "\n".join(texts)
        return cls(text, Words([text]))


def claim_faults(text: str, made_from: ClaimSource) -> tuple[Finding, ...]:
    """What makes a text no claim of its source: the texts of its exchanges, and what names they may take over.

    Kinds: short, bloat, dangling, greeting, mechanics, question, absence, leak, ungrounded, mangled, invented.
    """
    findings = [Finding(kind, handle, FIELD) for kind, handle in _form_faults(text)]
    source = made_from.text
    findings += [Finding("absence", said, FIELD) for said in absences(text, source)]
    findings += [Finding("leak", words, FIELD) for words in leaked(text, source)]
    idle = filler_in(text, source)
    if idle:
        findings.append(Finding("bloat", idle[:80], FIELD))
    if not is_grounded(text, made_from.words):
        findings.append(Finding("ungrounded", text[:80], FIELD))
    for handle in find_handles(text):
        verdict = classify(handle, source)
        if verdict != "supported":
            findings.append(Finding(verdict, handle.text, FIELD))
    return tuple(dict.fromkeys(findings))


def claim_kind(text: str) -> ClaimKind:
    """The kind of a claim by its words, for engines that give none."""
    if _DECISION.search(text):
        return "decision"
    if _SET_TO.search(text) or any(handle.kind == "parameter" for handle in find_handles(text)):
        return "config"
    if _INCIDENT.search(text):
        return "incident"
    if _HOWTO.search(text):
        return "howto"
    if _PREFERENCE.search(text):
        return "preference"
    return "status" if not _STATUS.isdisjoint(text.lower().split()) else "fact"


def _form_faults(text: str) -> list[tuple[str, str]]:
    words = _WORDS.findall(text)
    faults = []
    if len(words) < MIN_WORDS:
        faults.append(("short", text[:60]))
    if tokens_est(text) > MAX_CLAIM_TOKENS:
        faults.append(("bloat", f"{tokens_est(text)} tokens"))
    if match := DANGLING.match(text):
        faults.append(("dangling", match[0]))
    if match := _GREETING.match(text):
        faults.append(("greeting", match[0][:40]))
    if match := _MECHANICS.match(text):
        faults.append(("mechanics", match[0]))
    if _ASKS.search(text):
        faults.append(("question", text[-40:]))
    return faults
