"""Faults planted into faithful texts: what a model does wrong, made by rule, so that the right finding is known.

A plant is a function of the text and its source alone; one that would happen to be true of the source is not made.
Kinds: a changed digit, a swapped path, a made-up version, a missing error, a denied fact, filler.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backfill.fidelity.handles import find_handles

# Half of the fillers were written after the checks.
FILLERS = (
    "In this exchange, the user and the agent discussed various aspects of the task.",
    "Overall, this was a productive session that moved the project forward.",
    "The agent provided a comprehensive and detailed response to the request.",
    "This ensures that everything works as expected and meets the requirements.",
    "It is worth noting that this improves the overall quality and maintainability of the code.",
    "Further improvements can be made in the future as needed.",
    "The conversation covered several important topics and related matters.",
    "Let me know if there is anything else that would be helpful.",
)
HELD_OUT_FILLERS = (
    "The exchange highlights the importance of clear communication and careful planning.",
    "The assistant responded helpfully and addressed all of the concerns that were raised.",
    "These changes make the whole system more robust, flexible and easy to maintain.",
    "As a result, the user can continue with confidence.",
    "The summary above captures the essence of what took place.",
    "Several steps were taken to achieve the desired outcome.",
    "This provides a solid foundation for any further work on the topic.",
    "Both sides agreed that it was a good and useful discussion.",
)
MISSING_ERROR = "missing error"
_DIGITS = "0123456789"
_HAS_DIGIT = frozenset({"number", "version", "hash", "error", "parameter", "host", "url"})
_VERB = re.compile(r"\b(?:is|are|was|were|has|have|had|can|could|will|should|must|does|did)\b(?! not\b|n't)")
_PARTICIPLE = re.compile(r"(?<![\w.`/\"-])(?!(?:failed|need(?:ed)?|based)\b)([a-z]{3,}ed)\b(?=\s)(?![^\s]*[_/.])")
_DENIALS = ("no", "not", "never", "without", "cannot", "nothing", "none")
# What is said to have gone wrong, not what might ("would fail", "raises when").
_TROUBLE = re.compile(
    r"(?!.*\b(?:would|could|may|might|when|if|handling|misleading)\b)(?:.*?)"
    r"(?:\w(?:Error|Exception)\b|\berrors?\b|\bexception\b|\bfailed\b|\bcrash|\bpanic|\bundefined\b"
    r"|KeyboardInterrupt|\bexhausted\b|\btimed ?out\b|out of range|not a valid|not found)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?<=[;:,.!?])\s+|\s+(?=(?:because|since|although|but|against|so)\b)")


@dataclass(frozen=True, slots=True)
class Plant:
    """A kind of fault: `make` takes a text and its source and gives the faulty text, or None where none fits."""

    kind: str
    make: Callable[[str, str], str | None]


def changed_digit(text: str, source: str) -> str | None:
    """One digit of a number, version, hash or code changed, to one that the source does not have."""
    spots = [h.start + i for h in find_handles(text) if h.kind in _HAS_DIGIT for i, c in _digits(h.text)]
    for at in _rotated(spots, text):
        for step in range(1, 10):
            digit = _DIGITS[(int(text[at]) + step) % 10]
            changed = text[:at] + digit + text[at + 1 :]
            whole = _run_at(changed, at)
            if whole not in source and not (digit == "0" and _run_at(text, at)[0] == text[at]):
                return changed
    return None


def swapped_path(text: str, source: str, others: Sequence[str]) -> str | None:
    """A path replaced: by one of `others`, or by the same file below another folder."""
    paths = [h for h in find_handles(text) if h.kind == "path" and len(h.text) > 3]
    for handle in _rotated(paths, text):
        folder, _, name = handle.text.rpartition("/")
        near = [f"{folder.rpartition('/')[0]}/shared/{name}".lstrip("/")] if folder else []
        for other in (*near, *others) if _number(text) % 2 else (*others, *near):
            if other not in source and other not in text:
                return text[: handle.start] + other + text[handle.end :]
    return None


def made_up_version(text: str, source: str) -> str | None:
    """A version that nobody named, at the end of the first sentence."""
    seed = _number(text)
    for step in range(9):
        version = f"{1 + (seed + step) % 9}.{(seed >> 4) % 30}.{(seed >> 9) % 20}"
        if version not in source:
            words = (f" in version {version}", f" with v{version}", f" (since {version})")[seed % 3]
            return text.rstrip(".") + words + "."
    return None


def missing_error(text: str, source: str) -> str | None:
    """The clauses that speak of the trouble left out; None where nothing else remains or nothing spoke of it."""
    parts = _CLAUSE.split(text)
    kept = [part for part in parts if not _TROUBLE.search(part)]
    rest = " ".join(kept).strip(" ;:,")
    if len(kept) == len(parts) or len(re.findall(r"\w+", rest)) < 3:
        return None
    return rest[:1].upper() + rest[1:].rstrip(".") + "."


def denied_fact(text: str, source: str) -> str | None:
    """The first statement of a text denied; None for a text that denies something already."""
    if any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in _DENIALS) or "n't" in text:
        return None
    match = _VERB.search(text)
    if match:
        return f"{text[: match.end()]} not{text[match.end() :]}"
    match = _PARTICIPLE.search(text)
    return f"{text[: match.start()]}not {text[match.start() :]}" if match else None


def filler(text: str, source: str, fillers: Sequence[str] = FILLERS) -> str | None:
    """A sentence that says nothing, before or after the text."""
    said = fillers[_number(text) % len(fillers)]
    return f"{said} {text}" if _number(text) % 3 == 0 else f"{text.rstrip()} {said}"


def plants(others: Sequence[str]) -> tuple[Plant, ...]:
    """All kinds; `others` are paths to swap in, in a fixed order."""
    return (
        Plant("changed digit", changed_digit),
        Plant("swapped path", lambda text, source: swapped_path(text, source, _rotated(others, text))),
        Plant("made-up version", made_up_version),
        Plant(MISSING_ERROR, missing_error),
        Plant("denied fact", denied_fact),
        Plant("filler", filler),
        Plant("filler, held out", lambda text, source: filler(text, source, HELD_OUT_FILLERS)),
    )


def _digits(text: str) -> list[tuple[int, str]]:
    return [(i, c) for i, c in enumerate(text) if c in _DIGITS]


def _run_at(text: str, at: int) -> str:
    """The run of letters and digits around a place."""
    start = len(text[:at]) - len(re.search(r"[\w.]*$", text[:at])[0])  # type: ignore[index]
    return re.match(r"[\w.]+", text[start:])[0].strip(".")  # type: ignore[index]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).digest())


def _rotated(items: Sequence, text: str) -> list:  # type: ignore[type-arg]
    """The items from a place on that the text decides."""
    start = _number(text) % len(items) if items else 0
    return [*items[start:], *items[:start]]
