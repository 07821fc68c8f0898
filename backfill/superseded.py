"""Which claims a later claim replaces: derived from the visible claims, never stored with them.

Two claims are about the same thing only where a rule says so to the letter; likeness never joins them, for two
statements that contradict each other are as alike as two that agree. Light: shared by `compose` and `verify`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backfill.fidelity.handles import Handle, find_handles
from backfill.ids import digest_fields
from backfill.paths import word_set
from backfill.types import Claim, Occurrence, Superseded

_CONDITION = re.compile(r"\b(?:if|when|whenever|unless|whether|would|could|should|might|may)\b", re.IGNORECASE)
_VALUES = frozenset({"number", "version", "hash", "quoted", "host", "url"})
_WORD = re.compile(r"[^\W_]+")
# Words that change with the value: "raised to 30 s" and "lowered to 10 s" speak of one setting.
_CHANGES = word_set(
    """
    raised raise lowered lower increased increase decreased decrease reduced reduce changed change set sets bumped
    bump updated update moved move now is are was were been be has have had the a an to from of at in on still
    currently again back new old by for and it its this that we i
    """
)


def derive_superseded(claims: Iterable[Claim], places: Mapping[bytes, Sequence[Occurrence]]) -> list[Superseded]:
    """For each claim that a later one replaces, the first later claim that gives its subject another value.

    Claims meet where project, kind and subject are equal. The subject of a claim of kind `config` that names settings
    (parameters, identifiers) is the set of these names; that of any other claim is its words in order, without values
    (numbers, versions, quoted text, parameter values) and without words that change with a value. The time of a claim
    is the latest start among the visible exchanges that it names; a claim that states a condition or a wish, or one
    without a time, neither replaces nor is replaced, and of claims of one moment none is the later. `places` has the
    occurrences of an exchange, best first.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[int, bytes, tuple[str, ...]]]] = defaultdict(list)
    for claim in claims:
        first = [places[xid][0] for xid in claim.exchange_ids if places.get(xid)]
        times = [place.started_at for place in first if place.started_at is not None]
        subject, values = subject_of(claim)
        if times and subject and values and not _CONDITION.search(claim.text):
            project = min(place.project for place in first)
            groups[project, claim.kind, subject].append((max(times), claim.claim_id, values))
    return marks_in(groups.values())


def marks_in(groups: Iterable[list[tuple[int, bytes, Any]]]) -> list[Superseded]:
    """The marks among claims (time, claim_id, values) of one project, kind and subject each."""
    marks = []
    for members in groups:
        members.sort()
        for i, (time, claim_id, values) in enumerate(members):
            later = next((m for m in members[i + 1 :] if m[0] > time and m[2] != values), None)
            if later:
                marks.append(Superseded(claim_id, later[1]))
    return marks


def subject_keys(claim: Claim) -> tuple[bytes, bytes]:
    """Hashes (16 bytes each) of kind and subject, and of the values; zeros where the claim is never marked or marks."""
    subject, values = subject_of(claim)
    if not subject or not values or _CONDITION.search(claim.text):
        return bytes(16), bytes(16)
    return digest_fields([claim.kind.encode(), *(s.encode() for s in subject)]), digest_fields(
        value.encode() for value in values
    )


def subject_of(claim: Claim) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a claim is about and the values that it gives, as `derive_superseded` says; either may be empty."""
    handles = find_handles(claim.text)
    names: set[str] = set()
    values: list[str] = []
    rest = claim.text
    for handle in reversed(handles):
        name, value = _split(handle)
        if name:
            names.add(name)
        if value:
            values.append(value)
            rest = rest[: handle.start] + name + rest[handle.end :]
    if claim.kind == "config" and names:
        return tuple(sorted(names)), tuple(sorted(values))
    words = [word.lower() for word in _WORD.findall(rest)]
    values += [word for word in words if word.isdigit()]
    return tuple(w for w in words if w not in _CHANGES and not w.isdigit()), tuple(sorted(values))


def _split(handle: Handle) -> tuple[str, str]:
    """(name, value) of a handle; one of them is empty unless it is a parameter."""
    if handle.kind == "parameter":
        name, _, value = re.sub(r"\s*[=:]\s*", "=", handle.text, count=1).partition("=")
        return name.lstrip("-"), value.strip("\"'")
    if handle.kind in _VALUES:
        return "", handle.text
    return (handle.text.removesuffix("()"), "") if handle.kind == "identifier" else ("", "")
