"""The extractive distiller: palace objects from an exchange's own words, without an LLM.

The core is the prompt's opening sentences, and the answer's where the prompt is short; the context is the literal
sentence, cut at a clause end, that adds most to them. A function of the exchange alone: no corpus statistics,
no clock, no model. Work is bounded: of longer texts the first and last 4,000 characters are read, of tool results the
last six. Deliberately absent: paraphrase.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from backfill import ids
from backfill.candidates import MAX_CONTEXT_BYTES, Candidate, candidates, tool_candidates
from backfill.fidelity.handles import find_handles
from backfill.rooms import STOP_WORDS, rooms_of
from backfill.sentences import COURTESY, RAGGED, Sentence, cut_to, lower_words, size_bytes, weighed_sentences
from backfill.text import sentence_spans, tokens_est
from backfill.toolpaths import files_touched
from backfill.types import Exchange, PalaceObject, Tier

__all__ = [
    "MAX_CONTEXT_BYTES",
    "Candidate",
    "candidates",
    "extract",
    "extractive_fingerprint",
    "field_text",
    "raw_object",
]

EXTRACTIVE_VERSION: Final = 6

MAX_CORE_BYTES = 116  # 29 tokens_est
# Of less room than this only a torn phrase would fit.
_MIN_PIECE_BYTES = 28
_MIN_OPENING_SCORE = -1.0
_MAX_COURTESY_WORDS = 4
_MAX_LABEL_BYTES = 24
_MAX_WEIGHED = 12
_FIELD = re.compile(r"tools\.(\d{1,6})\.(head|tail)")
_SPEAKER = re.compile(r"[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*)?: (?=\S)")
_STOPS = ".!?。！？"


def extractive_fingerprint(min_tokens: int) -> str:
    """Fingerprint of objects that this module makes: its version and the one setting that decides the tier."""
    return ids.fingerprint(
        {"stage": "distill", "engine": "extractive", "version": EXTRACTIVE_VERSION, "min_tokens": min_tokens}
    )


def field_text(exchange: Exchange, field: str) -> str:
    """The stored text of a context field. Raises KeyError for a field that the exchange does not have."""
    if field == "user_text":
        return exchange.user_text
    if field == "agent_text":
        return exchange.agent_text
    match = _FIELD.fullmatch(field)
    if not match or int(match[1]) >= len(exchange.tools):
        raise KeyError(field)
    tool = exchange.tools[int(match[1])]
    return tool.head if match[2] == "head" else tool.tail


def extract(exchange: Exchange, *, generation: int, fingerprint: str, min_tokens: int = 12) -> PalaceObject:
    """The extractive object of an exchange row; a raw one where it is below `min_tokens` or holds no sentence."""
    if exchange.tokens_est < min_tokens:
        return raw_object(exchange, generation=generation, fingerprint=fingerprint)
    user, agent = weighed_sentences(exchange)
    core = _core(user, agent)
    if not core:
        return raw_object(exchange, generation=generation, fingerprint=fingerprint)
    context = _best_context(exchange, user, agent, core)
    return _object(exchange, core, context, "extractive", generation, fingerprint)


def raw_object(exchange: Exchange, *, generation: int, fingerprint: str) -> PalaceObject:
    """The raw object: both texts whole, one line each, no context; files and rooms as for any other."""
    lines = [" ".join(text.split()) for text in (exchange.user_text, exchange.agent_text)]
    core = "\n".join(line for line in lines if line)
    return _object(exchange, core, None, "raw", generation, fingerprint)


def _object(
    exchange: Exchange, core: str, context: Candidate | None, tier: Tier, generation: int, fingerprint: str
) -> PalaceObject:
    files = files_touched(exchange)
    text = context.text if context else ""
    return PalaceObject(
        exchange_id=exchange.exchange_id,
        exchange_core=core,
        specific_context=text,
        context_field=context.field if context else "user_text",
        context_start=context.start if context else 0,
        context_end=context.end if context else 0,
        room_assignments=rooms_of(exchange, files),
        files_touched=files,
        tier=tier,
        generation=generation,
        fingerprint=fingerprint,
        tokens=tokens_est(core + "\n" + text),
        findings=(),
        source_row=ids.row_hash(exchange),
    )


def _core(user: Sequence[Sentence], agent: Sequence[Sentence]) -> str:
    """The prompt's opening sentences; where they leave room, the answer's.

    One speaker's words in one vector find more than a topic and an outcome together do, and opening words more than the
    sentences that weigh most; outcomes are left to the context and the claims.
    """
    head = _opening(user, MAX_CORE_BYTES)
    room = MAX_CORE_BYTES - size_bytes(head) - 2
    tail = _opening(agent, room) if room >= _MIN_PIECE_BYTES else ""
    tail = tail if size_bytes(tail) >= _MIN_PIECE_BYTES or not head else ""
    if not head and not tail:
        return _plain(cut_to((*user, *agent)[0].text, MAX_CORE_BYTES)) if user or agent else ""
    head, tail = _plain(head), _plain(tail)
    core = _join(head, tail) if head and tail else head or tail
    if len(sentence_spans(core)) <= 2:
        return core
    # What a core may be is two sentences: one a speaker, or the first and the others.
    if head and tail:
        return _join(_run_on(head), _run_on(tail))
    end = sentence_spans(core)[0][1]
    return f"{core[:end]} {_run_on(core[end:])}"


def _run_on(text: str) -> str:
    """The sentences of a text as one, held together by semicolons."""
    *others, last = (text[start:end] for start, end in sentence_spans(text))
    return "; ".join([*(other.rstrip(RAGGED + _STOPS) for other in others), last])


def _opening(sentences: Sequence[Sentence], budget_bytes: int) -> str:
    """The first sentences that say something, under their speaker's label, the last one cut at a clause end."""
    speaker = _speaker(sentences) if sentences else ""
    telling = [sentence for sentence in sentences if not _says_little(sentence, speaker)]
    text = speaker if telling and telling[0] is not sentences[0] else ""
    empty = True
    for sentence in telling:
        joined = text + sentence.text if empty else _join(text, sentence.text)
        if size_bytes(joined) > budget_bytes:
            room = budget_bytes - size_bytes(joined) + size_bytes(sentence.text)
            piece = cut_to(sentence.text, room) if empty or room >= _MIN_PIECE_BYTES else ""
            if empty:
                return text + piece
            return _join(text, piece) if size_bytes(piece) >= _MIN_PIECE_BYTES else text
        text, empty = joined, False
    return text


def _says_little(sentence: Sentence, speaker: str) -> bool:
    """Whether it is a greeting, thanks, a mere yes, or an announcement of what comes next."""
    if sentence.score < _MIN_OPENING_SCORE:
        return True
    text = sentence.text.removeprefix(speaker)
    words = set(lower_words(text)) - STOP_WORDS
    return len(words) <= _MAX_COURTESY_WORDS and COURTESY.match(text) is not None


def _speaker(sentences: Sequence[Sentence]) -> str:
    """The label that opens a text ("Caroline: "), with its colon; empty where it has none."""
    match = _SPEAKER.match(sentences[0].text) if sentences[0].start == 0 else None
    return match[0] if match and size_bytes(match[0]) <= _MAX_LABEL_BYTES else ""


def _plain(text: str) -> str:
    """Without emphasis marks, which come in pairs that a cut would tear."""
    return text.replace("**", "").replace("__", "") if "**" in text else text


def _join(head: str, tail: str) -> str:
    if head[-1:] in _STOPS:
        return f"{head} {tail}"
    return f"{head.rstrip(RAGGED)}. {tail}" if head.isascii() else f"{head} {tail}"


def _best_context(
    exchange: Exchange, user: Sequence[Sentence], agent: Sequence[Sentence], core: str
) -> Candidate | None:
    """The sentence that adds most to the core; where it holds no handle, a tool's error line goes before it.

    What counts is what the sentence weighs and how many content words the core lacks: as a vector of its own, a
    sentence finds more than a name with its neighbours does.
    """
    known = STOP_WORDS.union(lower_words(core))
    best: Candidate | None = None
    for sentence in sorted((*agent, *user), key=lambda s: -s.score)[:_MAX_WEIGHED]:
        if _plain(sentence.text)[:20] in core:
            continue
        text = cut_to(sentence.text, MAX_CONTEXT_BYTES)
        score = sentence.score + 0.5 * min(len(set(lower_words(text)) - known), 8)
        if text and score > (best.score if best else 0.0):
            start = sentence.start
            best = Candidate("clause", sentence.field, start, start + len(text), text, score)
    if best is None or not find_handles(best.text):
        return next(tool_candidates(exchange), best)
    return best
