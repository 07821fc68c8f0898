"""Handles: the parts of a text that must be right to the letter.

Paths, identifiers, numbers with units, versions, error names, quoted strings, hashes, URLs, hosts and parameters with
values. One compiled pattern, one pass; spans are code points of the given text and never overlap. Deliberately
absent: ordinary words, small bare numbers and kebab-case prose, whose absence from a source proves nothing.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, cast

import msgspec

from backfill.paths import is_path_word

HandleKind: TypeAlias = Literal[
    "path", "identifier", "number", "version", "error", "quoted", "hash", "url", "host", "parameter"
]


class Handle(msgspec.Struct, frozen=True):
    """A literal span: `text` equals the scanned text [`start`:`end`].

    A struct, as all that is made by the hundred an exchange: a frozen dataclass takes eleven times as long to make.
    """

    kind: HandleKind
    text: str
    start: int
    end: int


_UNITS = (
    r"ns|us|µs|μs|ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|%|percent|[KMGT]i?B|[kmg]b"
    r"|bytes?|bits?|px|rem|em|fps|Hz|[kMG]Hz|rps|qps|req/s|tok/s|[KMG]?i?B/s|tokens?|rows?|lines?|retries|requests?|users?"
    r"|workers?|threads?|cores?|GPUs?|x|dollars|USD|EUR|°C"
)
_HANDLE = re.compile(
    # At other characters nothing begins: one test spares a dozen.
    r"(?<![\w])(?=[\w ,;\n`\"“「'~./\\@$€£+-])(?:"
    # Runs of plain words are most of a text: one cheap alternative takes them before the others are tried.
    r"(?P<plain>(?:(?![EeSs](?:xit|tatus|rror)\b|localhost\b(?![,;]?[ \n]))"
    r"[A-Za-z]?[a-z]*[,;.!?)]{0,3}(?:[ \n]+(?![=:])|\Z))+)"
    r"|"
    r"(?P<url>[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:!?])"
    r"|(?P<tick>`[^`\s](?:[^`\n]{0,158}[^`\s])?`)"
    r"|(?P<quoted>\"[^\"\n]{2,120}\"|“[^”\n]{2,120}”|「[^」\n]{2,120}」|'[^'\n]{3,80}'(?!\w))"
    r"|(?P<parameter>--?[A-Za-z][\w-]*=[^\s,;`\"')]+|[A-Za-z_][\w.-]*\s?=\s?"
    r"(?:-?\d[\w.]*|true|false|null|none|\"[^\"\n]{0,60}\"|'[^'\n]{0,60}'|[\w./:@-]*\w)"
    r"|[a-z_][\w.]*:\s(?:-?\d[\w.]*|true|false|null)\b(?!,\d))"
    r"|(?P<error>[A-Z][A-Za-z0-9]*(?:Error|Exception|Panic|Fault)\b|E[A-Z]{4,}\b|SIG[A-Z]{2,8}\b|[A-Z]{1,5}\d{3,5}\b"
    r"|(?:HTTP|[Ss]tatus(?:\scode)?|[Ee]xit(?:\scode|\sstatus)?|[Ee]rror)\s\d{1,5}\b)"
    r"|(?P<hash>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b)"
    r"|(?P<host>(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b|localhost(?::\d{1,5})?\b|[A-Za-z][\w-]*(?:\.[\w-]+)*:\d{2,5}\b(?!:)"
    r"|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|io|dev|internal|local)\b(?![/\w(]))"
    r"|(?P<version>v?\d+\.\d+\.\d+(?:[-+.]?[\w.+-]*\w)?|v\d+(?:\.\d+)*\b)"
    r"|(?P<number>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d{1,2}:\d{2}\b"
    r"|[-+~$€£]?\d[\d,_]*(?:\.\d+)?(?:\s?(?:" + _UNITS + r")(?![\w])|(?![\w])))"
    r"|(?P<flag>--[A-Za-z][\w-]*|-[A-Za-z](?![\w]))"
    r"|(?P<path>[~./\\@]*[\w.-]+(?:[/\\][\w.@\[\]()+-]*[\w\]])+|[A-Za-z]:\\[\w.\\-]*\w|\.?[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,9}\b(?!\()"
    r"|\.[a-z][\w.-]*\w)"
    r"|(?P<identifier>[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w+)+(?:\(\))?|\w+_\w*(?:\(\))?|[a-z]+\d*[A-Z]\w*(?:\(\))?"
    r"|[A-Z][a-z0-9]+[A-Z]\w*(?:\(\))?|[A-Za-z]\w+\(\)|[A-Z][A-Z0-9]{2,}\b)"
    r")"
)
# Character classes of ASCII alone are looked up and not asked for: 1.7 times as fast on the same text.
_ASCII_HANDLE = re.compile(_HANDLE.pattern, re.ASCII)
_SEPARATORS = re.compile(r"[\x1c-\x1f]")  # white space in Unicode's eyes only
_CALL = re.compile(r"[A-Za-z_][\w.]*")
_DOTTED = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "a.m", "p.m", "u.s"})
_COMMON_CAPITALS = frozenset(
    {"AND", "NOT", "THE", "FOR", "BUT", "YES", "API", "CLI", "URL", "TODO", "NOTE", "JSON", "HTTP", "SQL", "README"}
)


def find_handles(text: str) -> list[Handle]:
    """The handles of a text in order, without overlap."""
    handles: list[Handle] = []
    for match in _pattern_for(text).finditer(text):
        kind = match.lastgroup or ""
        if kind == "plain":
            continue
        start, end = match.span()
        body = match[0]
        if kind == "tick":
            start, end = start + 1, end - 1
            handles.append(_ticked(text[start:end], start, end))
        elif kind == "quoted":
            handles.append(Handle("quoted", body[1:-1], start + 1, end - 1))
        elif kind == "path":
            found = _path_or_dotted(body)
            if found:
                handles.append(Handle(found, body, start, end))
        elif kind == "number":
            if not (body[-1].isdigit() and len(body) < 2):
                handles.append(Handle("number", body, start, end))
        elif kind == "host" and is_path_word(place := body.partition(":")[0]):
            handles.append(Handle("path", place, start, start + len(place)))
        elif kind == "identifier" and body in _COMMON_CAPITALS:
            continue
        else:
            known = "identifier" if kind == "flag" else kind
            handles.append(Handle(cast("HandleKind", known), body, start, end))
    return handles


def _pattern_for(text: str) -> re.Pattern[str]:
    return _ASCII_HANDLE if text.isascii() and not _SEPARATORS.search(text) else _HANDLE


def _ticked(body: str, start: int, end: int) -> Handle:
    """A back-ticked span: its own kind if one handle fills it, code otherwise."""
    if " " not in body:
        match = _pattern_for(body).match(body)
        if match and match.end() == len(body) and match.lastgroup not in ("plain", "tick", "quoted"):
            kind = match.lastgroup or ""
            if kind == "path":
                return Handle(_path_or_dotted(body) or "identifier", body, start, end)
            return Handle("identifier" if kind == "flag" else cast("HandleKind", kind), body, start, end)
        if is_path_word(body):
            return Handle("path", body, start, end)
        return Handle("identifier", body, start, end)
    return Handle("quoted", body, start, end)


def _path_or_dotted(body: str) -> HandleKind | None:
    if is_path_word(body):
        return "path"
    if _DOTTED.fullmatch(body) and body.lower() not in _ABBREVIATIONS:
        return "identifier"
    return None
