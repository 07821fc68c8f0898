"""Claims from an exchange's own words, without an LLM: the small units that search finds best.

A claim is a literal sentence or clause, or two of them: what was asked about, and what came of it. A sentence that does
not say what it is about gets the subject in front, a literal span of the prompt. A function of the texts of the
exchange and of the claims before it in its window; no corpus statistics. Deliberately absent: paraphrase, and claims
from tool traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backfill import ids
from backfill.fidelity.claim_checks import DANGLING, ClaimSource, claim_faults, claim_kind
from backfill.fidelity.handles import find_handles
from backfill.rooms import STOP_WORDS
from backfill.sentences import RAGGED, Sentence, cut_to, lower_words, size_bytes, topic_words, weighed_sentences
from backfill.types import Claim, ClaimKind, Exchange
from backfill.windows import WINDOWS_VERSION, Window

EXTRACTIVE_CLAIMS_VERSION: Final = 2

MAX_CLAIMS = 4
# 10 to 20 words; a claim with its subject in front may have a few more.
MAX_CLAIM_BYTES = 132
_TOPIC_BYTES = 60
_SUBJECT_BYTES = 40
_TOKENS_PER_CLAIM = 250
_MIN_SCORE = 1.0
_MIN_NEW_WORDS = 3
_FIRST_PERSON = re.compile(r"(?:I|We)(?:'ve| have| had|'m| am)?(?: (?:just|now|also|then|have))* (?=[a-z]{3,}ed\b)")
_LEAD_IN = re.compile(
    r"(?:so|and|but|also|then|now|well|yes|yeah|okay|ok|hi|hey|hello|sure|great|perfect|done|please|can you|could you)"
    r"\b[,.!]? +(?=\S)",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*)?: (?=\S)")
# Names whole, so that two settings of one file are two facts.
_TOKEN = re.compile(r"\w[\w./:-]+\w|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_ASKS = re.compile(r"[?？]\W*$")


@dataclass(frozen=True, slots=True)
class Statement:
    """The words of a claim and its kind."""

    text: str
    kind: ClaimKind


def claims_fingerprint_extractive(min_tokens: int) -> str:
    """Fingerprint of claims that this module makes."""
    versions = [EXTRACTIVE_CLAIMS_VERSION, WINDOWS_VERSION]
    return ids.fingerprint({"stage": "claims", "engine": "extractive", "versions": versions, "min_tokens": min_tokens})


def claims_of_window(window: Window, *, generation: int, fingerprint: str, min_tokens: int = 12) -> list[Claim]:
    """The extractive claims of a window. Those of an exchange depend on it and on the exchanges before it alone."""
    claims: list[Claim] = []
    for exchange, started_at in zip(window.exchanges, window.starts, strict=True):
        if exchange.tokens_est < min_tokens:
            continue
        ids_ = (exchange.exchange_id,)
        claims += [
            make_claim(window, said, ids_, started_at, "extractive", generation, fingerprint)
            for said in extractive_claims(exchange, before=[claim.text for claim in claims])
        ]
    return claims


def make_claim(
    window: Window,
    said: Statement,
    exchange_ids: Iterable[bytes],
    started_at: int | None,
    tier: str,
    generation: int,
    fingerprint: str,
) -> Claim:
    """A row of the claims table; `started_at` (microseconds) gives its date (UTC)."""
    sources = tuple(sorted(set(exchange_ids)))
    date = None if started_at is None else started_at // 86_400_000_000
    return Claim(
        claim_id=ids.claim_id(said.text, said.kind, date, sources),
        exchange_ids=sources,
        session_id=window.session_id,
        window=window.window,
        text=said.text,
        kind=said.kind,
        date=date,
        tier=tier,  # type: ignore[arg-type]
        generation=generation,
        fingerprint=fingerprint,
        source=window.source,
        reading=window.reading,
    )


def extractive_claims(exchange: Exchange, *, before: Sequence[str] = (), limit: int = MAX_CLAIMS) -> list[Statement]:
    """At most `limit` claims of an exchange, in the order of its text: one, and one for each 250 tokens.

    The first is its topic and outcome (of a dialogue, each speaker's best sentence); the others are sentences with
    names, values or outcomes that add words. What `before` says already is left out. Empty where nothing is worth
    finding: greetings, questions without an answer.
    """
    user, agent = weighed_sentences(exchange)
    spoken = bool(_speaker(user) and _speaker(agent))
    wanted = min(limit, 1 + spoken + exchange.tokens_est // _TOKENS_PER_CLAIM)
    source = ClaimSource.of(exchange.user_text, exchange.agent_text)
    subject = _subject(user)
    known = [_words(text) for text in before]
    placed: list[tuple[int, int, Statement]] = []
    for field, position, text in _drafts(user, agent, subject, spoken):
        words = _words(text)
        if len(placed) == wanted:
            break
        if any(len(words - other) < _MIN_NEW_WORDS for other in known) or claim_faults(text, source):
            continue
        known.append(words)
        placed.append((field, position, Statement(text, claim_kind(text))))
    return [said for _, _, said in sorted(placed, key=lambda item: item[:2])]


def _drafts(
    user: Sequence[Sentence], agent: Sequence[Sentence], subject: str, spoken: bool
) -> Iterable[tuple[int, int, str]]:
    """Yields (0 for the prompt or 1, position, text) of possible claims, the best first.

    Where two people talk, what one says is no outcome of what the other asks: each sentence stands for itself.
    """
    pair = "" if spoken else _pair(user, agent)
    if pair:
        yield 0, -1, pair
    topic = topic_words(user)
    ranked = [(s.score, 1, n, s) for n, s in enumerate(agent)]
    # A prompt's sentence that tells something is as good as an answer's; one that asks is in the pair.
    ranked += [(s.score - (0.0 if spoken else 1.0), 0, n, s) for n, s in enumerate(user)]
    for score, field, position, sentence in sorted(ranked, key=lambda item: (-item[0], item[1], item[2])):
        if score < _MIN_SCORE or sentence.text[0] in "([" or sentence.text[-1] in "?？:：":
            continue
        text = _standing(sentence.text, subject, topic if field else frozenset(), user if not field else agent)
        if text:
            yield field, position, text


def _pair(user: Sequence[Sentence], agent: Sequence[Sentence]) -> str:
    """What was asked about and what came of it; one of them where the other says nothing."""
    topic = max(user, key=lambda s: s.score, default=None)
    outcome = max(agent, key=lambda s: s.score, default=None)
    if outcome is None or outcome.score < 0.0 or _ASKS.search(outcome.text):
        return "" if topic is None or topic.score < _MIN_SCORE or _ASKS.search(topic.text) else _alone(user, topic)
    said = _FIRST_PERSON.sub("", _clean(outcome.text))
    if topic is None or topic.score < _MIN_SCORE:
        return "" if DANGLING.match(said) else _fitted(said, MAX_CLAIM_BYTES)
    asked = cut_to(_asked(topic.text), max(_TOPIC_BYTES, MAX_CLAIM_BYTES - 2 - size_bytes(said)))
    if not asked:
        return _fitted(said, MAX_CLAIM_BYTES)
    tail = _fitted(said, MAX_CLAIM_BYTES - 2 - size_bytes(asked))
    return f"{asked.rstrip(RAGGED + '.?!')}: {tail}" if tail else asked


def _alone(sentences: Sequence[Sentence], sentence: Sentence) -> str:
    """A sentence that stands for itself, under its speaker's name where the text has one."""
    who = _speaker(sentences)
    text = _asked(sentence.text)
    return _fitted(text if text.startswith(who) else who + text, MAX_CLAIM_BYTES)


def _standing(text: str, subject: str, topic: frozenset[str], around: Sequence[Sentence]) -> str:
    """The sentence so that it stands alone: its subject in front where it does not say what it is about."""
    who = _speaker(around)
    said = _FIRST_PERSON.sub("", _clean(text))
    if who:
        return _fitted(said if said.startswith(who) else who + said, MAX_CLAIM_BYTES)
    named = bool(find_handles(said[:MAX_CLAIM_BYTES])) or not topic.isdisjoint(lower_words(said))
    if DANGLING.match(said) or not named:
        if not subject or subject.lower() in said.lower():
            return "" if DANGLING.match(said) else _fitted(said, MAX_CLAIM_BYTES)
        return f"{subject}: {_fitted(said, MAX_CLAIM_BYTES - 2 - size_bytes(subject))}"
    return _fitted(said, MAX_CLAIM_BYTES)


def _subject(user: Sequence[Sentence]) -> str:
    """What the prompt is about, as a literal span: its best sentence's first name, else its first words."""
    best = max(user, key=lambda s: s.score, default=None)
    if best is None or best.score < 0.0:
        return ""
    for handle in find_handles(best.text[:240]):
        if handle.kind in ("path", "identifier", "error") and size_bytes(handle.text) <= _SUBJECT_BYTES:
            return handle.text
    return cut_to(_asked(best.text), _SUBJECT_BYTES).rstrip(RAGGED + ".?!")


def _asked(text: str) -> str:
    """A prompt's sentence without what only opens it."""
    text = _clean(text)
    while (match := _LEAD_IN.match(text)) and len(text) - match.end() > 12:
        text = text[match.end() :]
    return text


def _clean(text: str) -> str:
    """One line without emphasis marks, which come in pairs that a cut would tear."""
    return " ".join(text.replace("**", "").replace("__", "").split())


def _fitted(text: str, budget_bytes: int) -> str:
    """The text cut to the budget, before a bracket or quote that the cut left open."""
    cut = cut_to(text, budget_bytes)
    if len(cut) == len(text):
        return cut
    opens = [cut.rfind(mark) for mark in '`"' if cut.count(mark) % 2]
    opens += [cut.rfind(left) for left, right in ("()", "[]") if cut.count(left) > cut.count(right)]
    end = min((at for at in opens if at > len(cut) // 2), default=len(cut))
    return cut[:end].rstrip(RAGGED)


def _speaker(sentences: Sequence[Sentence]) -> str:
    """The label that opens a text ("Caroline: "), with its colon; empty where it has none."""
    match = _SPEAKER.match(sentences[0].text) if sentences and sentences[0].start == 0 else None
    return match[0] if match and size_bytes(match[0]) <= 24 else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(text.lower())) - STOP_WORDS
