"""Checks of a palace object against the exchange it was made from.

Finds handles of the core that the exchange does not hold: `mangled` where the exchange has something close, else
`invented`; a context that is not the slice it claims to be; and, with `absence` and `omissions`, what is denied, left
out or padded. Substring searches decide almost every case; only what they miss is compared further. Deliberately
absent: judging meaning, which needs a model.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from backfill.extractive import field_text
from backfill.fidelity.absence import absences
from backfill.fidelity.handles import Handle, find_handles
from backfill.fidelity.omissions import CORE, bloat, dropped_facts
from backfill.types import Exchange, Finding, PalaceObject

Verdict: TypeAlias = Literal["supported", "mangled", "invented"]

# Kinds that refuse what they are found in, with what the retry is told; the others stay on it for its reader.
HARD = {
    "invented": "{} does not stand in the exchange",
    "mangled": "{} does not stand in the exchange",
    "context_mismatch": "{} does not stand in the exchange",
    "absence": "the exchange does not say {!r}",
    "secret": "{} stands for a secret",
    "leak": "{!r} is the instruction, not the exchange",
}
_LEAK_WORDS = 4
_PLACEHOLDER = re.compile(r"\[secret:\w+\]")
_PLAIN_WORD = re.compile(r"[^\W\d_]+")

_NUMBER = re.compile(r"\d[\d,_]*(?:\.\d+)?")
_TOKEN = re.compile(r"[\w./:@+-]{2,}")
_UNITS = {
    spelling: unit
    for unit, spellings in (
        ("ns", "ns nanosecond nanoseconds"),
        ("us", "us µs μs microsecond microseconds"),
        ("ms", "ms msec millisecond milliseconds"),
        ("s", "s sec secs second seconds"),
        ("min", "min mins minute minutes"),
        ("h", "h hr hrs hour hours"),
        ("d", "day days"),
        ("week", "week weeks"),
        ("month", "month months"),
        ("year", "year years"),
        ("%", "% percent"),
        ("B", "byte bytes"),
        ("KB", "kb kib"),
        ("MB", "mb mib"),
        ("GB", "gb gib"),
        ("TB", "tb tib"),
    )
    for spelling in spellings.split()
}
_NEAR_RATIO = 0.8
_MAX_TOKENS = 5_000


def check_object(obj: PalaceObject, exchange: Exchange) -> tuple[Finding, ...]:
    """What does not hold or is gone, each with the handle and its field; kinds in `HARD` refuse the object.

    `context_mismatch`, `mangled`, `invented`, `absence` (a denial that the exchange does not make), `secret`, `leak`
    (words of the instruction), `dropped` (a load-bearing fact) and `bloat`.
    """
    findings: list[Finding] = []
    if not _context_holds(obj, exchange):
        findings.append(Finding("context_mismatch", obj.specific_context[:120], obj.context_field))
    core, source = obj.exchange_core, exchange_source(exchange)
    for handle in find_handles(_PLACEHOLDER.sub(" ", core) if "[secret:" in core else core):
        verdict = classify(handle, source)
        if verdict != "supported":
            findings.append(Finding(verdict, handle.text, CORE))
    findings += [Finding("absence", said, CORE) for said in absences(core, source)]
    findings += [Finding("secret", mark, CORE) for mark in _PLACEHOLDER.findall(core) if mark not in source]
    findings += [Finding("leak", words, CORE) for words in leaked(core, source)]
    if not findings:  # a value that is wrong is not one that is left out
        findings += dropped_facts(obj, exchange) + bloat(obj, exchange, source)
    return tuple(dict.fromkeys(findings))


def leaked(text: str, source: str) -> list[str]:
    """The first run of four words that the text shares with the instruction but not with its source."""
    words = [w.lower() for w in _PLAIN_WORD.findall(text)]
    flat = ""
    for run in zip(*(words[k:] for k in range(_LEAK_WORDS)), strict=False):
        if run in _instruction_runs():
            flat = flat or " ".join(w.lower() for w in _PLAIN_WORD.findall(source))
            if " ".join(run) not in flat:
                return [" ".join(run)]
    return []


@lru_cache(maxsize=1)
def _instruction_runs() -> frozenset[tuple[str, ...]]:
    # Imported late: the prompts import the schema, which is checked with this module.
    from backfill.claim_prompt import ASK as CLAIMS_ASK
    from backfill.claim_prompt import SYSTEM as CLAIMS_SYSTEM
    from backfill.prompts import INSTRUCTIONS

    runs: set[tuple[str, ...]] = set()
    for text in (*(text for pair in INSTRUCTIONS.values() for text in pair), CLAIMS_SYSTEM, CLAIMS_ASK):
        words = [w.lower() for w in _PLAIN_WORD.findall(text)]
        runs.update(zip(*(words[k:] for k in range(_LEAK_WORDS)), strict=False))
    return frozenset(runs)


def classify(handle: Handle, source: str) -> Verdict:
    """`supported` where the source holds the handle, `mangled` where it has something close, else `invented`."""
    if _supported(handle, source):
        return "supported"
    return "mangled" if _near(handle, source) else "invented"


def _context_holds(obj: PalaceObject, exchange: Exchange) -> bool:
    try:
        text = field_text(exchange, obj.context_field)
    except KeyError:
        return False
    start, end = obj.context_start, obj.context_end
    return 0 <= start <= end <= len(text) and text[start:end] == obj.specific_context


def exchange_source(exchange: Exchange) -> str:
    """All that an object may take its words from: both texts, thinking, paths, tool calls and their results."""
    parts = [exchange.user_text, exchange.agent_text, exchange.thinking, *exchange.text_paths]
    for tool in exchange.tools:
        parts += [tool.name, *tool.paths, tool.input, tool.head, tool.tail]
    return "\n".join(parts)


def _supported(handle: Handle, source: str) -> bool:
    if _occurs(handle.text, source):
        return True
    if handle.kind == "quoted":
        return _flat(handle.text) in _flat(source)
    if handle.kind == "number":
        return _number_occurs(handle.text, source)
    if handle.kind == "error" and " " in handle.text:
        return all(_occurs(number, source) for number in _NUMBER.findall(handle.text))
    if handle.kind == "parameter":
        key, _, value = re.sub(r"\s*[=:]\s*", "=", handle.text, count=1).partition("=")
        return _occurs(key, source) and _occurs(value.strip("\"'"), source)
    if handle.kind == "path":
        plain = handle.text.replace("\\", "/").removeprefix("./").lstrip("@")
        return _occurs(plain, source.replace("\\", "/") if "\\" in source else source)
    if handle.kind == "identifier":
        name = handle.text.removesuffix("()")
        # "Container.level" of a text that shows `level` in the class Container.
        return _occurs(name, source) or ("." in name and all(_occurs(part, source) for part in name.split(".")))
    return False


def _occurs(text: str, source: str) -> bool:
    """Whether the text stands in the source as a whole: not as a part of a longer word or number."""
    at = source.find(text) if text else -1
    while at >= 0:
        end = at + len(text)
        before = source[at - 1 : at]
        after = source[end : end + 1]
        inside = (_wordy(before) and _wordy(text[0])) or (_wordy(after) and _wordy(text[-1]))
        if text[0].isdigit() and before in (".", ",") and source[at - 2 : at - 1].isdigit():
            inside = True
        if text[-1].isdigit() and after in (".", ",") and source[end + 1 : end + 2].isdigit():
            inside = True
        if not inside:
            return True
        at = source.find(text, at + 1)
    return False


def _wordy(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())


def _number_occurs(text: str, source: str) -> bool:
    """Whether the value occurs, whatever its separators, with the same unit, a bare one, or as another count.

    Only units of a dimension can contradict ("45 s" against "45 ms"); "1,240 rows" may be "rows: 1240".
    """
    match = _NUMBER.search(text)
    if not match:
        return False
    value = match[0]
    plain = value.replace(",", "").replace("_", "")
    spellings = {value, plain, f"{int(plain):,}" if plain.isdigit() and len(plain) < 16 else plain}
    unit = _UNITS.get(text[match.end() :].strip().lower())
    for spelling in spellings:
        if spelling in source:
            for found in re.finditer(
                rf"(?<![\d.,]){re.escape(spelling)}(?!\d|[.,]\d)[\s-]?([a-zµμ%]+)?", source, re.IGNORECASE
            ):
                other = _UNITS.get((found[1] or "").lower())
                if unit is None or other is None or other == unit:
                    return True
    return False


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


def _near(handle: Handle, source: str) -> bool:
    """Whether the source has a token that this one looks like a damaged copy of."""
    if handle.kind == "quoted":
        words = _TOKEN.findall(handle.text)
        return bool(words) and sum(word in source for word in words) / len(words) >= _NEAR_RATIO
    if handle.kind == "number":
        match = _NUMBER.search(handle.text)
        value = match[0].replace(",", "") if match else handle.text
        numbers = {number.replace(",", "") for number in _NUMBER.findall(source)}
        return value in numbers or any(_is_slip(value, other) for other in numbers)
    return _has_close(handle.text, _TOKEN.findall(source)[:_MAX_TOKENS])


def _is_slip(value: str, other: str) -> bool:
    """One digit off, or the same digits in another order; single digits prove nothing."""
    if len(value) < 2 or abs(len(value) - len(other)) > 1:
        return False
    if len(value) == len(other):
        return sorted(value) == sorted(other) or (
            len(value) > 2 and sum(a != b for a, b in zip(value, other, strict=True)) == 1
        )
    short, long = sorted((value, other), key=len)
    return len(short) > 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _has_close(text: str, tokens: Iterable[str]) -> bool:
    folded = _letters(text)
    for token in dict.fromkeys(tokens):
        if abs(len(token) - len(text)) * 4 > len(text) + 4:
            continue
        if _letters(token) == folded:
            return True
        matcher = difflib.SequenceMatcher(None, text, token, autojunk=False)
        if matcher.real_quick_ratio() >= _NEAR_RATIO and matcher.quick_ratio() >= _NEAR_RATIO <= matcher.ratio():
            return True
    return False


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).casefold()
