"""Where secrets stand in a text: one pass for all keywords, then each rule where one of its keywords is.

The pass is Aho-Corasick over the UTF-8 bytes with ASCII letters folded. Deliberately absent: replacing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from backfill.privacy.keys import KEY_WORDS, key_spans
from backfill.privacy.rules import RULES, Rule
from backfill.privacy.values import is_cookie_value

Found = tuple[int, int, int]  # start, end, number of the kind in KINDS

# Of a value that was refused, so many of the keywords inside it are tried again: keeps hostile text linear.
_MAX_INNER_TRIES = 8
_PAIR = re.compile(r"""([\w.%-]{1,100})=((?:[^;,\s"'`\\]){8,8000})""")
_COOKIES = re.compile(r"""(?i:cookie)s?["'\\]{0,8}\s{0,4}[:=]\s{0,4}["'\\]{0,8}(?P<pairs>[^\n"'`\\]{10,16000})""")

_KEYS, _COOKIE = len(RULES), len(RULES) + 1
KINDS = (*(rule.kind for rule in RULES), "private_key", "cookie")
_PRECEDENCE = (_KEYS, *range(len(RULES)), _COOKIE)
_RANK = {kind: rank for rank, kind in enumerate(_PRECEDENCE)}
_BY_KEYWORD: dict[str, list[int]] = {}
for _number, _rule in enumerate(RULES):
    for _keyword in _rule.keywords:
        _BY_KEYWORD.setdefault(_keyword, []).append(_number)
for _keyword in KEY_WORDS:
    _BY_KEYWORD.setdefault(_keyword, []).append(_KEYS)
_BY_KEYWORD.setdefault("cookie", []).append(_COOKIE)
# What is replaced already says `secret:` itself.
_PLACEHOLDER = re.compile(rf"\[secret:(?:{'|'.join(sorted({*KINDS, 'email'}))})\]")
_WANTED = tuple(_BY_KEYWORD.values())


@cache
def _automaton() -> Any:
    # Only reading transcripts needs the package; what opens a bundle imports this module without it.
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    return BytesAhoCorasick([keyword.encode() for keyword in _BY_KEYWORD], implementation=Implementation.DFA)


def has_keyword(data: bytes) -> bool:
    """Whether a keyword of any rule stands in UTF-8 text."""
    return bool(_automaton().find_matches_as_indexes(data.lower()))


def find(text: str) -> list[Found]:
    """Sorted spans of secrets that do not touch, each with the kind that takes precedence in it."""
    raw = text.encode("utf-8", "surrogatepass")
    hits = _automaton().find_matches_as_indexes(raw.lower(), overlapping=True)
    if not hits:
        return []
    places: dict[int, list[int]] = {}
    if len(raw) == len(text):  # bytes are code points
        for keyword, at, _ in hits:
            for number in _WANTED[keyword]:
                places.setdefault(number, []).append(at)
        for starts in places.values():
            if len(starts) > 1:
                starts.sort()
    else:
        hits.sort(key=lambda hit: hit[1])
        for keyword, at in _characters(raw, hits):
            for number in _WANTED[keyword]:
                places.setdefault(number, []).append(at)
    found: list[Found] = []
    for number, starts in places.items():
        if number == _KEYS:
            found += ((start, end, _KEYS) for start, end in key_spans(text))
        elif number == _COOKIE:
            found += ((start, end, _COOKIE) for start, end in _cookies(text, starts))
        else:
            found += ((start, end, number) for start, end in _matches(RULES[number], text, starts))
    if found and "[secret:" in text:
        inside = {at for mark in _PLACEHOLDER.finditer(text) for at in range(mark.start() + 1, mark.end())}
        found = [span for span in found if span[0] not in inside]
    return _united(found) if found else found


def _characters(raw: bytes, hits: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """(keyword, offset in code points) of hits sorted by their offset in bytes."""
    done = chars = 0
    for keyword, start, _ in hits:
        if start > done:
            chars += len(raw[done:start].decode("utf-8", "surrogatepass"))
            done = start
        yield keyword, chars


def _matches(rule: Rule, text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    taken = refused = tries = 0
    for at in starts:
        if at < taken:
            continue
        if at >= refused:
            tries = 0
        elif tries >= _MAX_INNER_TRIES:
            continue
        tries += 1
        match = rule.pattern.match(text, at - rule.before) if at >= rule.before else None
        if match is None:
            continue
        if rule.accept is not None and not rule.accept(match):
            refused = max(refused, match.end())
            continue
        groups = match.re.groupindex
        name = "quoted" if "quoted" in groups and match["quoted"] is not None else "value" if "value" in groups else 0
        taken = match.end(name)
        yield match.span(name)


def _cookies(text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    """The values of cookies that are longer than a setting; attributes such as `Path=/` are shorter."""
    taken = 0
    for at in starts:
        header = _COOKIES.match(text, at) if at >= taken else None
        if header is None:
            continue
        taken = header.end()
        for pair in _PAIR.finditer(text, header.start("pairs"), header.end("pairs")):
            if is_cookie_value(pair[1], pair[2]):
                yield pair.span(2)


def _united(found: list[Found]) -> list[Found]:
    """Overlapping spans become one: what a rule left out of its own match must not stay behind."""
    found.sort()
    united: list[Found] = []
    for start, end, kind in found:
        if united and start < united[-1][1]:
            before = united[-1]
            best = min(before[2], kind, key=_RANK.__getitem__)
            united[-1] = (before[0], max(before[1], end), best)
        else:
            united.append((start, end, kind))
    return united
