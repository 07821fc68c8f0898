"""The extractive distiller: palace objects from an exchange's own words, without an LLM.

The core is the prompt's opening sentences, and the answer's where the prompt is short; the context is the literal
sentence, cut at a clause end, that adds most to them. A function of the exchange alone: no corpus statistics,
no clock, no model. Work is bounded: of longer texts the first and last 4,000 characters are read, of tool results the
last six. Deliberately absent: paraphrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backfill import ids
from backfill.fidelity.handles import Handle, find_handles
from backfill.rooms import STOP_WORDS, rooms_of
from backfill.sentences import COURTESY, RAGGED, WORD, Sentence, cut_to, size_bytes, topic_words, weighed_sentences
from backfill.text import sentence_spans, tokens_est
from backfill.toolpaths import files_touched
from backfill.types import Exchange, PalaceObject, Tier

EXTRACTIVE_VERSION: Final = 6

MAX_CORE_BYTES = 116  # 29 tokens_est
MAX_CONTEXT_BYTES = 68  # 17 tokens_est
# Of less room than this only a torn phrase would fit.
_MIN_PIECE_BYTES = 28
_MIN_OPENING_SCORE = -1.0
_MAX_COURTESY_WORDS = 4
_MAX_LABEL_BYTES = 24
_MAX_WEIGHED = 12
_MAX_TOOLS = 6
_MAX_TOOL_CHARS = 2_000
_FIELD = re.compile(r"tools\.(\d{1,6})\.(head|tail)")
# Substring tests of a long output cost a fiftieth of one search with this pattern's alternatives at every place.
_ERROR_HINTS = ("rror", "FAIL", "xception", "panic", "fatal", "denied")
_ERROR_WORD = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|error|Error|ERROR|FAIL|FAILED|fatal|panic|cannot|denied)\b")
_COMMAND = re.compile(
    r"(?:\$ )?(?:npm|npx|yarn|pnpm|git|go|cargo|python3?|pip|uv|pytest|make|docker|kubectl|gh|curl|node|bun|deno|mise"
    r"|bash)\s\S"
)
_WORDS = re.compile(r"\S+")
_SPEAKER = re.compile(r"[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*)?: (?=\S)")
_STOPS = ".!?。！？"
_CLAUSE_ENDS = ",;:.!?，；：。！？"
_KIND_SCORE = {
    "error": 9.0,
    "parameter": 8.0,
    "command": 7.5,
    "number": 6.0,
    "identifier": 5.5,
    "version": 5.0,
    "path": 5.0,
    "quoted": 4.5,
    "host": 4.0,
    "hash": 3.5,
    "url": 3.0,
    "clause": 2.0,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A literal span: `text` equals the stored text of `field` [`start`:`end`] (code points). Higher is better."""

    kind: str
    field: str
    start: int
    end: int
    text: str
    score: float


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


def candidates(exchange: Exchange, limit: int = 16) -> list[Candidate]:
    """The most specific literal spans of an exchange, best first, no text twice, at most `limit`."""
    user, agent = weighed_sentences(exchange)
    picked = sorted([*user, *agent], key=lambda s: -s.score)[:24]
    found: dict[str, Candidate] = {}
    for candidate in (*_tool_candidates(exchange), *_span_candidates(picked, topic_words(user))):
        held = found.get(candidate.text)
        if held is None or candidate.score > held.score:
            found[candidate.text] = candidate
    return sorted(found.values(), key=lambda c: (-c.score, c.field, c.start))[:limit]


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
    words = set(WORD.findall(text.lower())) - STOP_WORDS
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
    known = STOP_WORDS.union(WORD.findall(core.lower()))
    best: Candidate | None = None
    for sentence in sorted((*agent, *user), key=lambda s: -s.score)[:_MAX_WEIGHED]:
        if _plain(sentence.text)[:20] in core:
            continue
        text = cut_to(sentence.text, MAX_CONTEXT_BYTES)
        score = sentence.score + 0.5 * min(len(set(WORD.findall(text.lower())) - known), 8)
        if text and score > (best.score if best else 0.0):
            start = sentence.start
            best = Candidate("clause", sentence.field, start, start + len(text), text, score)
    if best is None or not find_handles(best.text):
        return next(_tool_candidates(exchange), best)
    return best


def _span_candidates(sentences: Sequence[Sentence], topic: frozenset[str]) -> Iterator[Candidate]:
    """Yields the handles of sentences, numbers with the words around them, and short clauses as a last resort."""
    for sentence in sentences:
        text = sentence.text[:240]
        for handle in find_handles(text):
            yield _of_handle(sentence, handle, topic)
        clause = cut_to(text, MAX_CONTEXT_BYTES)
        if clause:
            start = sentence.start
            score = 2.0 + 0.2 * sentence.score - (0.0 if size_bytes(clause) >= 20 else 2.0)
            yield Candidate("clause", sentence.field, start, start + len(clause), clause, score)


def _of_handle(sentence: Sentence, handle: Handle, topic: frozenset[str]) -> Candidate:
    kind = "command" if handle.kind == "quoted" and _COMMAND.match(handle.text) else handle.kind
    start, end = handle.start, handle.end
    if kind in ("number", "error", "parameter", "version"):
        start, end = _widen(sentence.text, start, end)
    elif size_bytes(handle.text) > MAX_CONTEXT_BYTES:
        end = start + len(cut_to(handle.text, MAX_CONTEXT_BYTES))
    text = sentence.text[start:end]
    score = _KIND_SCORE[kind] + 0.2 * sentence.score
    if kind == "number" and handle.text[-1].isdigit():
        score -= 2.0
    if topic and any(w in topic for w in WORD.findall(text.lower())):
        score += 0.5
    return Candidate(kind, sentence.field, sentence.start + start, sentence.start + end, text, score)


def _widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Grows a span by whole words of its clause, left and right in turn, while it fits the context budget."""
    words = [match.span() for match in _WORDS.finditer(text)]
    first = next((n for n, (_, stop) in enumerate(words) if stop > start), 0)
    last = next((n for n, (_, stop) in enumerate(words) if stop >= end), len(words) - 1)
    low, high = words[first][0], words[last][1]
    if size_bytes(text[low:high]) > MAX_CONTEXT_BYTES:
        return start, start + len(cut_to(text[start:end], MAX_CONTEXT_BYTES))
    left = right = True
    while left or right:
        left = left and first > 0 and text[words[first - 1][1] - 1] not in _CLAUSE_ENDS
        if left and (left := size_bytes(text[words[first - 1][0] : high]) <= MAX_CONTEXT_BYTES):
            first -= 1
            low = words[first][0]
        right = right and last + 1 < len(words) and text[high - 1] not in _CLAUSE_ENDS
        if right and (right := size_bytes(text[low : words[last + 1][1]]) <= MAX_CONTEXT_BYTES):
            last += 1
            high = words[last][1]
    return low, max(end, low + len(text[low:high].rstrip(_CLAUSE_ENDS)))


def _tool_candidates(exchange: Exchange) -> Iterator[Candidate]:
    """Yields the first error line of the latest tool results that have one, the last result first."""
    for number in range(len(exchange.tools) - 1, max(-1, len(exchange.tools) - 1 - _MAX_TOOLS), -1):
        tool = exchange.tools[number]
        for part, text in (("tail", tool.tail[:_MAX_TOOL_CHARS]), ("head", tool.head[:_MAX_TOOL_CHARS])):
            start, end = _error_line(text)
            body = cut_to(text[start:end], MAX_CONTEXT_BYTES)
            if len(body) > 8:
                yield Candidate("error", f"tools.{number}.{part}", start, start + len(body), body, 7.0)


def _error_line(text: str) -> tuple[int, int]:
    """Span of the first line that reports an error, without the white space around it; empty where there is none."""
    places = [at for hint in _ERROR_HINTS if (at := text.find(hint)) >= 0]
    start = text.rfind("\n", 0, min(places)) + 1 if places else len(text)
    while start < len(text):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if not line.startswith("@@") and _ERROR_WORD.search(line):
            low = start + len(line) - len(line.lstrip())
            return low, low + len(line.strip())
        start += len(line) + 1
    return 0, 0
