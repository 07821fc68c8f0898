"""The extractive distiller: palace objects from an exchange's own words, without an LLM.

The core is one literal sentence of the prompt (the topic) and one of the agent (the outcome); the context is the most
specific literal span outside them. A function of the exchange alone: no corpus statistics, no clock, no model.
Work is bounded: of longer texts the first and last 20,000 characters are read. Deliberately absent: paraphrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backfill import ids
from backfill.fidelity.handles import Handle, find_handles
from backfill.paths import word_set
from backfill.rooms import STOP_WORDS, rooms_of
from backfill.text import tokens_est
from backfill.toolpaths import files_touched
from backfill.types import Exchange, PalaceObject, Tier

EXTRACTIVE_VERSION: Final = 1

MAX_CORE_BYTES = 128  # 32 tokens_est
MAX_CONTEXT_BYTES = 64  # 16 tokens_est
_TOPIC_BYTES = 60
_WINDOW_CHARS = 20_000
_MAX_SENTENCES = 48

_FIELD = re.compile(r"tools\.(\d{1,6})\.(head|tail)")
_STOP = re.compile(r"[.!?][*_\"'`)\]]*[ \t]+(?=\S)|[。！？]+[」』”）]*")
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_LEAD = re.compile(r"(?:[-*+>•✓✅❌⏺☐☑#]+|\d{1,2}[.)](?=\s)|\*\*|__|\[[ xX]\]|\s)+")
_TRAIL = " \t*_#|"
_ABBREVIATION = re.compile(r"(?:\be\.g|\bi\.e|\bvs|\betc|\bcf|\bNo|\d)\.$")
_OUTCOMES = word_set(
    """
    fix fixed fixes add added adds remove removed removes change changed changes update updated updates create created
    creates replace replaced replaces implement implemented implements refactor refactored delete deleted deletes move
    moved renamed decided decide chose chosen switch switched raised raises lower lowered increase increased reduce
    reduced now pass passes passed cause caused causes because root instead problem issue means returns returned uses
    fails failed works done found should must never only agreed plan went bought started got
    """
)
_OUTCOMES_CJK = (
    "修复",
    "添加",
    "删除",
    "修改",
    "更新",
    "原因",
    "解决",
    "改为",
    "수정",
    "추가",
    "삭제",
    "変更",
    "追加",
    "削除",
)
_MECHANICS = re.compile(
    r"(?:let me\b|let's\b|i'll\b|i will\b|i'm going\b|now let me\b|now i\b|now,? let|next,? |looking at|sure\b"
    r"|great\b|perfect\b"
    r"|okay\b|ok\b|thanks|thank you|you're|good (?:question|catch|point|idea)"
    r"|i can see|i see\b|first,? |here's|here is|here are"
    r"|would you like|do you want|should i|want me|hi\b|hello|hey\b|excellent|got it|understood|absolutely|of course"
    r"|what (?:would|do) you|summary|yes\b.{0,6}$|no\b.{0,6}$|changes made|done[.!]?$|wow\b|我来|让我|好的)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_CLAUSE = re.compile(
    r"[,;:，；：、](?=\s|[^\x00-\x7f])| (?=[-–—(]|(?:and|but|so|because|which|instead|when|since|if)\b )"
)
_DANGLING = re.compile(r"(?: (?:a|an|the|of|on|in|to|for|from|with|by|at|as|and|or|that|which|is|are|was|same|its?))+$")
_RAGGED = " ,;:([-–—*`\t"
_HINT = re.compile(r"`|\d|[a-z][A-Z]|\w_\w|[/=]")
_TRIVIAL = word_set("yes no ok okay sure continue proceed go thanks please do it y n yep 继续 好 好的 是 可以 네 はい")
_ERROR_LINE = re.compile(
    r"[^\n]*?(?:\b[A-Z]\w*(?:Error|Exception)\b|\b(?:error|Error|ERROR|FAIL|FAILED|fatal|panic|cannot|denied)\b)[^\n]*"
)
_COMMAND = re.compile(
    r"(?:\$ )?(?:npm|npx|yarn|pnpm|git|go|cargo|python3?|pip|uv|pytest|make|docker|kubectl|gh|curl|node|bun|deno|mise"
    r"|bash)\s\S"
)
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


@dataclass(frozen=True, slots=True)
class Sentence:
    """A stripped sentence of a field with what its plain features are worth."""

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
    user, agent = _sentences(exchange)
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
    user, agent = _sentences(exchange)
    picked = sorted([*user, *agent], key=lambda s: -s.score)[:24]
    found: dict[str, Candidate] = {}
    for candidate in (*_tool_candidates(exchange), *_span_candidates(picked, _topic_words(user))):
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


def _sentences(exchange: Exchange) -> tuple[list[Sentence], list[Sentence]]:
    """The weighed sentences of the prompt and of the answer, in order."""
    user = list(_split(exchange.user_text, "user_text"))
    agent = list(_split(exchange.agent_text, "agent_text"))
    topic = _topic_words(user)
    return (
        [_weigh_user(sentence, n, len(user)) for n, sentence in enumerate(user)],
        [_weigh_agent(sentence, topic, n, len(agent)) for n, sentence in enumerate(agent)],
    )


def _windows(text: str) -> list[tuple[int, str]]:
    """(offset, text) of what is read: all of it, or both ends."""
    if len(text) <= 2 * _WINDOW_CHARS:
        return [(0, text)] if text else []
    return [(0, text[:_WINDOW_CHARS]), (len(text) - _WINDOW_CHARS, text[-_WINDOW_CHARS:])]


def _split(text: str, field: str) -> Iterator[Sentence]:
    """Yields the sentences and lines outside code fences and tables, without markup at their ends."""
    for offset, window in _windows(text):
        pieces = list(_outside_fences(window))
        spans = [span for low, high in pieces for span in _breaks(window, low, high)]
        half = _MAX_SENTENCES // 2
        for start, end in spans if len(spans) <= 2 * half else [*spans[:half], *spans[-half:]]:
            lead = _LEAD.match(window, start, end)
            low = lead.end() if lead else start
            body = window[low:end].rstrip(_TRAIL)
            if len(body) < 2 or body[0] in "|{}<$" or not any(c.isalnum() for c in body[:40]):
                continue
            if body.startswith("`") and body.endswith("`") and "`" not in body[1:-1] and " " not in body:
                continue
            yield Sentence(field, offset + low, offset + low + len(body), body, 0.0)


def _outside_fences(window: str) -> Iterator[tuple[int, int]]:
    start = 0
    if "```" in window or "~~~" in window:
        for match in _FENCE.finditer(window):
            yield start, match.start()
            start = match.end()
    yield start, len(window)


def _breaks(window: str, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yields the spans of lines and of the sentences in them."""
    start = low
    while start < high:
        end = window.find("\n", start, high)
        end = high if end < 0 else end
        begin = start
        if end - start > 24:
            for match in _STOP.finditer(window, start, end):
                if match[0][0] == "." and _ABBREVIATION.search(
                    window, max(start, match.start() - 5), match.start() + 1
                ):
                    continue
                # Closing quotes and brackets stay with their sentence.
                yield begin, match.start() + len(match[0].rstrip(" \t"))
                begin = match.end()
        if begin < end:
            yield begin, end
        start = end + 1


def _topic_words(sentences: Sequence[Sentence]) -> frozenset[str]:
    text = " ".join(s.text for s in sentences[:6])[:1_000].lower()
    return frozenset(w for w in _WORD.findall(text) if w not in STOP_WORDS)


def _weigh_user(sentence: Sentence, position: int, total: int) -> Sentence:
    words = set(_WORD.findall(sentence.text[:400].lower())) - STOP_WORDS
    score = 0.5 * min(len(words), 6) + (1.2 if position == 0 else 0.4 if position == total - 1 else 0.0)
    score += 0.5 if sentence.text.endswith(("?", "？")) else 0.0
    score += _length_score(sentence.text)
    if not words or sentence.text.lower().strip(" .!,。！") in _TRIVIAL:
        score -= 4.0
    return Sentence(sentence.field, sentence.start, sentence.end, sentence.text, score)


def _weigh_agent(sentence: Sentence, topic: frozenset[str], position: int, total: int) -> Sentence:
    text = sentence.text[:400]
    words = set(_WORD.findall(text.lower()))
    score = 0.7 * min(len(words & topic), 4) + 0.15 * min(len(words - STOP_WORDS), 8)
    score += 0.3 * min(len(_HINT.findall(text)), 4)
    if not words.isdisjoint(_OUTCOMES) or (not text.isascii() and any(word in text for word in _OUTCOMES_CJK)):
        score += 1.5
    if _MECHANICS.match(text):
        score -= 3.0
    if text.endswith((":", "：")):
        score -= 1.5
    if text.endswith(("?", "？")):
        score -= 1.0
    if position * 2 >= total:
        score += 0.8
    if position == 0:
        score += 0.4
    score += _length_score(text)
    return Sentence(sentence.field, sentence.start, sentence.end, sentence.text, score)


def _length_score(text: str) -> float:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size < 16:
        return -1.5
    if size < 32:
        return -0.4
    return 0.0 if size <= 160 else -0.6


def _core(user: Sequence[Sentence], agent: Sequence[Sentence]) -> str:
    """The topic sentence and the outcome sentence, each cut at clause ends to its share of the budget."""
    topic = max(user, key=lambda s: (s.score, -s.start), default=None)
    outcome = max(agent, key=lambda s: (s.score, -s.start), default=None)
    if topic is not None and outcome is not None and topic.score < 0.0:
        topic = None
    if outcome is None and topic is None:
        return ""
    if topic is None or outcome is None:
        return "".join(_plain(_cut(only.text, MAX_CORE_BYTES)) for only in (topic, outcome) if only is not None)
    head = _cut(topic.text, max(_TOPIC_BYTES, MAX_CORE_BYTES - 2 - _size(outcome.text)))
    tail = _cut(outcome.text, MAX_CORE_BYTES - 2 - _size(head)).rstrip(" :：")
    return _plain(_join(head, tail))


def _plain(text: str) -> str:
    """Without emphasis marks, which come in pairs that a cut would tear."""
    return text.replace("**", "").replace("__", "") if "**" in text else text


def _join(head: str, tail: str) -> str:
    if head[-1:] in ".!?。！？":
        return f"{head} {tail}"
    return f"{head.rstrip(_RAGGED)}. {tail}" if head.isascii() else f"{head} {tail}"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _cut(text: str, budget_bytes: int) -> str:
    """The text up to the last clause end within the budget; where there is none, up to the last word."""
    if _size(text) <= budget_bytes:
        return text
    limit = budget_bytes if text.isascii() else _chars_within(text, budget_bytes)
    end = max((m.start() for m in _CLAUSE.finditer(text, 0, limit + 1) if m.start() <= limit), default=0)
    if end < limit // 3:
        space = text.rfind(" ", limit // 2, limit + 1)
        end = space if space > 0 else limit
    if text.count("`", 0, end) % 2 and (tick := text.rfind("`", 0, end)) > limit // 3:
        end = tick
    return _DANGLING.sub("", text[:end]).rstrip(_RAGGED)


def _chars_within(text: str, budget_bytes: int) -> int:
    return len(text[:budget_bytes].encode("utf-8", "replace")[:budget_bytes].decode("utf-8", "ignore"))


def _best_context(
    exchange: Exchange, user: Sequence[Sentence], agent: Sequence[Sentence], core: str
) -> Candidate | None:
    """The best candidate of a few good sentences that the core does not already hold."""
    picked = sorted(agent, key=lambda s: -s.score)[:4] + sorted(user, key=lambda s: -s.score)[:1]
    best: Candidate | None = None
    for candidate in (*_tool_candidates(exchange), *_span_candidates(picked, _topic_words(user))):
        score = candidate.score - (4.0 if candidate.text in core else 0.0)
        if best is None or score > best.score:
            best = Candidate(candidate.kind, candidate.field, candidate.start, candidate.end, candidate.text, score)
    return best


def _span_candidates(sentences: Sequence[Sentence], topic: frozenset[str]) -> Iterator[Candidate]:
    """Yields the handles of sentences, numbers with the words around them, and short clauses as a last resort."""
    for sentence in sentences:
        text = sentence.text[:400]
        for handle in find_handles(text):
            yield _of_handle(sentence, handle, topic)
        clause = _cut(text, MAX_CONTEXT_BYTES)
        if clause:
            start = sentence.start
            yield Candidate("clause", sentence.field, start, start + len(clause), clause, 2.0 + 0.2 * sentence.score)


def _of_handle(sentence: Sentence, handle: Handle, topic: frozenset[str]) -> Candidate:
    kind = "command" if handle.kind == "quoted" and _COMMAND.match(handle.text) else handle.kind
    start, end = handle.start, handle.end
    if kind in ("number", "error", "parameter", "version"):
        start, end = _widen(sentence.text, start, end)
    elif _size(handle.text) > MAX_CONTEXT_BYTES:
        end = start + len(_cut(handle.text, MAX_CONTEXT_BYTES))
    text = sentence.text[start:end]
    score = _KIND_SCORE[kind] + 0.2 * sentence.score
    if kind == "number" and handle.text[-1].isdigit():
        score -= 2.0
    if topic and any(w in topic for w in _WORD.findall(text.lower())):
        score += 0.5
    return Candidate(kind, sentence.field, sentence.start + start, sentence.start + end, text, score)


def _widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Grows a span by whole words of its clause while it fits the context budget; a bare value says little."""
    if not text.isascii():
        return (start, end) if _size(text[start:end]) <= MAX_CONTEXT_BYTES else (start, start + 16)
    if end - start > MAX_CONTEXT_BYTES:
        return start, start + MAX_CONTEXT_BYTES
    while True:
        left = text.rfind(" ", 0, max(0, start - 1)) + 1 if start > 0 else start
        if (
            left < start
            and end - left <= MAX_CONTEXT_BYTES
            and text[start - 1] == " "
            and text[start - 2] not in ",;:."
        ):
            start = left
            continue
        break
    while end < len(text) and text[end] == " ":
        right = text.find(" ", end + 1)
        right = len(text) if right < 0 else right
        if right - start > MAX_CONTEXT_BYTES or text[end - 1] in ",;:.":
            break
        end = right
    return start, len(text[:end].rstrip(" ,;:.*")) if end > start else end


def _tool_candidates(exchange: Exchange) -> Iterator[Candidate]:
    """Yields the first error line of the latest tool results that have one."""
    for number in range(len(exchange.tools) - 1, max(-1, len(exchange.tools) - 7), -1):
        tool = exchange.tools[number]
        for part, text in (("tail", tool.tail[:2_000]), ("head", tool.head[:2_000])):
            if "rror" not in text and "FAIL" not in text and "xception" not in text and "panic" not in text:
                continue
            match = _ERROR_LINE.search(text)
            if not match:
                continue
            low = match.start() + len(match[0]) - len(match[0].lstrip())
            body = _cut(text[low : match.end()].rstrip(), MAX_CONTEXT_BYTES)
            if len(body) > 8:
                yield Candidate("error", f"tools.{number}.{part}", low, low + len(body), body, 7.0)
