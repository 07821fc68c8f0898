"""Sentences of an exchange: found, weighed and cut to a budget.

Splits prompt and answer into sentences and lines outside code fences and tables, weighs each by position, length,
shared words and signs of an outcome, and cuts long ones at clause ends. Weights are hand-set and the same for every
corpus. Work is bounded: both ends of a long text are read, and of many sentences the first and the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from backfill.paths import word_set
from backfill.rooms import STOP_WORDS
from backfill.types import Exchange

_WINDOW_CHARS = 4_000
_MAX_SENTENCES = 32
_TOPIC_SENTENCES = 6

# Opens with one set of characters, which is searched for at the speed of C.
_STOP = re.compile(r"[.!?。！？](?:(?<=[.!?])[*_\"'`)\]]*[ \t]+(?=\S)|(?<=[。！？])[。！？]*[」』”）]*)")
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
    r"|if you (?:need|have)|feel free|have a (?:great|nice|good)|i hope you|is there anything"
    r"|please (?:let me know|confirm)"
    r"|i can see|i see\b|first,? |here's|here is|here are"
    r"|would you like|do you want|should i|want me|hi\b|hello|hey\b|excellent|got it|understood|absolutely|of course"
    r"|what (?:would|do) you|summary|yes\b.{0,6}$|no\b.{0,6}$|changes made|done[.!]?$|wow\b|我来|让我|好的)",
    re.IGNORECASE,
)
COURTESY = re.compile(
    r"thanks|thank you|(?:hi|hello|hey|(?:good )?morning)\b|have a (?:great|nice|good)|i hope you|that's all|谢谢",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_ASCII_WORD = re.compile(r"[a-z0-9]{3,}")  # the same of such a text, three times as fast
_CLAUSE = re.compile(
    r"[,;:，；：、](?=\s|[^\x00-\x7f])| (?=[-–—(]|(?:and|but|so|because|which|instead|when|since|if)\b )"
)
_DANGLING = re.compile(r"(?: (?:a|an|the|of|on|in|to|for|from|with|by|at|as|and|or|that|which|is|are|was|same|its?))+$")
_TO_EDGE = re.compile(r".*\W", re.DOTALL)
RAGGED = " ,;:([-–—*`\t"
_HUMP = re.compile(r"[a-z][A-Z]")
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W_]")
_READ_CHARS = 240
_TRIVIAL = word_set("yes no ok okay sure continue proceed go thanks please do it y n yep 继续 好 好的 是 可以 네 はい")


class Sentence(msgspec.Struct, frozen=True):
    """A stripped sentence of a field with what its plain features are worth."""

    field: str
    start: int
    end: int
    text: str
    score: float


def weighed_sentences(exchange: Exchange) -> tuple[list[Sentence], list[Sentence]]:
    """The weighed sentences of the prompt and of the answer, in order."""
    user = list(_split(exchange.user_text))
    agent = list(_split(exchange.agent_text))
    topic = _content_words(text for _, text in user[:_TOPIC_SENTENCES])
    return (
        [
            Sentence("user_text", start, start + len(text), text, _user_score(text, n, len(user)))
            for n, (start, text) in enumerate(user)
        ],
        [
            Sentence("agent_text", start, start + len(text), text, _agent_score(text, topic, n, len(agent)))
            for n, (start, text) in enumerate(agent)
        ],
    )


def _windows(text: str) -> list[tuple[int, str]]:
    """(offset, text) of what is read: all of it, or both ends."""
    if len(text) <= 2 * _WINDOW_CHARS:
        return [(0, text)] if text else []
    return [(0, text[:_WINDOW_CHARS]), (len(text) - _WINDOW_CHARS, text[-_WINDOW_CHARS:])]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yields (start, text) of the sentences and lines outside code fences and tables, without markup at their ends."""
    for offset, window in _windows(text):
        pieces = list(_outside_fences(window))
        spans = [span for low, high in pieces for span in _breaks(window, low, high)]
        half = _MAX_SENTENCES // 2
        for start, end in spans if len(spans) <= 2 * half else [*spans[:half], *spans[-half:]]:
            lead = None if window[start].isalpha() else _LEAD.match(window, start, end)
            low = lead.end() if lead else start
            body = window[low:end].rstrip(_TRAIL)
            if len(body) < 2 or body[0] in "|{}<$" or not _LETTER.search(body, 0, 40):
                continue
            if body.startswith("`") and body.endswith("`") and "`" not in body[1:-1] and " " not in body:
                continue
            yield offset + low, body


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
        if end - start > 8:
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


def lower_words(text: str) -> list[str]:
    """The words of a text that may carry content, in small letters: three letters or more, or two characters of CJK."""
    lower = text.lower()
    return (_ASCII_WORD if lower.isascii() else _WORD).findall(lower)


def topic_words(sentences: Sequence[Sentence]) -> frozenset[str]:
    """The content words of the first sentences, lower case: what the exchange is about."""
    return _content_words(s.text for s in sentences[:_TOPIC_SENTENCES])


def _content_words(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(lower_words(" ".join(texts)[:1_000])) - STOP_WORDS


def _user_score(text: str, position: int, total: int) -> float:
    words = set(lower_words(text[:_READ_CHARS])) - STOP_WORDS
    score = 0.5 * min(len(words), 6) + (1.2 if position == 0 else 0.4 if position == total - 1 else 0.0)
    score += 0.5 if text.endswith(("?", "？")) else 0.0
    score += _length_score(text)
    if not words or text.lower().strip(" .!,。！") in _TRIVIAL:
        score -= 4.0
    if COURTESY.match(text):
        score -= 1.5
    return score


def _agent_score(text: str, topic: frozenset[str], position: int, total: int) -> float:
    read = text[:_READ_CHARS]
    words = set(lower_words(read))
    score = 0.7 * min(len(words & topic), 4) + 0.15 * min(len(words - STOP_WORDS), 8)
    hints = read.count("`") // 2 + read.count("_") + read.count("/") + read.count("=")
    hints += bool(_DIGIT.search(read)) + bool(_HUMP.search(read))
    score += 0.3 * min(hints, 4)
    if not words.isdisjoint(_OUTCOMES) or (not read.isascii() and any(word in read for word in _OUTCOMES_CJK)):
        score += 1.5
    if _MECHANICS.match(read):
        score -= 3.0
    if read.endswith((":", "：")):
        score -= 1.5
    if read.endswith(("?", "？")):
        score -= 1.0
    if position * 2 >= total:
        score += 0.8
    if position == 0:
        score += 0.4
    return score + _length_score(read)


def _length_score(text: str) -> float:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size < 16:
        return -1.5
    if size < 32:
        return -0.4
    return 0.0 if size <= 160 else -0.6


def size_bytes(text: str) -> int:
    """UTF-8 bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut_to(text: str, budget_bytes: int) -> str:
    """The text up to the last clause end within the budget; where there is none, up to the last word."""
    if size_bytes(text) <= budget_bytes:
        return text
    limit = budget_bytes if text.isascii() else _chars_within(text, budget_bytes)
    end = max((m.start() for m in _CLAUSE.finditer(text, 0, limit + 1) if m.start() <= limit), default=0)
    if end < limit // 3:
        space = text.rfind(" ", 0, limit + 1)
        # A path or URL torn inside a word would be a handle that the source does not have.
        edge = None if space > 0 else _TO_EDGE.match(text, limit // 3, limit + 1)
        end = space if space > 0 else edge.end() - 1 if edge else limit
    if text.count("`", 0, end) % 2 and (tick := text.rfind("`", 0, end)) > limit // 3:
        end = tick
    return _DANGLING.sub("", text[:end]).rstrip(RAGGED)


def _chars_within(text: str, budget_bytes: int) -> int:
    return len(text[:budget_bytes].encode("utf-8", "replace")[:budget_bytes].decode("utf-8", "ignore"))
