"""Secrets out of stored text: typed placeholders instead of keys, tokens and passwords.

`Redactor` replaces what the rules find by `[secret:TYPE]` and counts it; with `mask` also e-mail addresses and home
directories. A keyword search over the decoded text decides which rules run at all, so that text without a suspicion
costs a few passes of `str.find`. Deliberately absent: contacting a provider to see whether a key is valid.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

_KEY_WORDS = "PRIVATE KEY"
_KEY_MARK = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_MAX_CHARS = 16_000  # a 16,384-bit RSA key with armour headers, as source code quotes it
_KEY_RUN = re.compile(r"[A-Za-z0-9+/=]{12}")
# Lines of a key whose end was cut off, with the line ends of source code that quotes one.
_KEY_LINES = re.compile(
    r"""[\s\\rn"',+]{0,8}(?:[A-Za-z0-9+/=]{20,80}+[\s\\"',+]{0,8}+(?:\\?[rn])?)+[A-Za-z0-9+/=]{0,80}"""
)
_KEY_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\\r\n"

# (type, keywords of which one must occur, pattern; group `value` is replaced where there is one)
_RULES: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("aws_key", ("AKIA", "ASIA", "ABIA", "ACCA"), re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b")),
    (
        "github_token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})\b"),
    ),
    (
        "gitlab_token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"),
        re.compile(r"\bgl(?:pat|dt|rt|ptt|cbt|soat)-[\w-]{20,255}"),
    ),
    (
        "slack_token",
        ("xox", "xapp-", "hooks.slack.com"),
        re.compile(r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}|hooks\.slack\.com/services/[A-Za-z0-9/]{20,100}"),
    ),
    ("anthropic_key", ("sk-ant-",), re.compile(r"\bsk-ant-[\w-]{16,255}")),
    ("openai_key", ("sk-",), re.compile(r"\bsk-(?:proj-|svcacct-|admin-|None-)?(?=[\w-]*\d)[A-Za-z0-9_-]{20,255}")),
    ("google_key", ("AIza",), re.compile(r"\bAIza[\w-]{35}")),
    ("stripe_key", ("k_live_", "k_test_"), re.compile(r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}\b")),
    ("npm_token", ("npm_",), re.compile(r"\bnpm_[A-Za-z0-9]{36}\b")),
    ("pypi_token", ("pypi-",), re.compile(r"\bpypi-AgE[\w-]{50,1000}")),
    ("hf_token", ("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{30,100}\b")),
    ("jwt", ("eyJ",), re.compile(r"\beyJ[\w-]{8,4000}\.eyJ[\w-]{8,8000}\.[\w-]{8,4000}")),
)

# Rules whose keywords are common: the pattern is tried at the places of the keywords only.
_URL_MARK = "://"
_URL_PASSWORD = re.compile(r"""://[^\s/:@"'`<>]{0,200}:(?P<value>[^\s/@"'`<>${}*]{3,200})@""")
_BEARER = re.compile(r"(?:bearer|basic)\s+(?P<value>[A-Za-z0-9._~+/=-]{16,2000})", re.IGNORECASE)
_BEARER_NAMES = ("bearer ", "basic ")
_SECRET_NAMES = (
    "passw", "pwd", "passphrase", "secret", "token", "api_key", "apikey", "api-key", "access_key", "accesskey",
    "private_key", "credential",
)  # fmt: skip
_ASSIGNED = re.compile(
    r"""(?P<name>passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access_?key|private_key|credential)s?
        [\w-]{0,40}["'\\]{0,3}\s{0,4}(?:=>|:=|=|:)\s{0,4}["'`\\]{0,3}
        (?P<value>[^\s"'`,;(){}\[\]<>$\\]{8,400})""",
    re.IGNORECASE | re.VERBOSE,
)
_PATTERNS = {kind: pattern for kind, _, pattern in _RULES}
_KEYWORDS = (
    (_KEY_WORDS, _KEY_WORDS),
    *((keyword, kind) for kind, keywords, _ in _RULES for keyword in keywords),
    (_URL_MARK, _URL_MARK),
)
_ALL_NAMES = (*_SECRET_NAMES, *_BEARER_NAMES)
_WORDLIKE = re.compile(r"(?:[A-Za-z]+[._/:-])*[A-Za-z]+\d{0,2}", re.ASCII)
_STOP = re.compile(
    r"example|changeme|your[_-]|placeholder|redacted|xxxx|\.\.\.|^\*+$|process\.env|os\.environ|getenv|\[secret:|^https?://|^/",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_HOME = re.compile(r"(?:/(?:Users|home)/|\b[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))(?!Shared\b)[^\s/\\:\"'`<>|]{1,64}")


class Redactor:
    """Replaces secrets in text and counts them by type. `privacy` is that of `ScanConfig`."""

    def __init__(self, privacy: Literal["secrets", "mask", "off"]) -> None:
        self.counts: Counter[str] = Counter()
        self._secrets = privacy != "off"
        self._mask = privacy == "mask"

    def suspects(self, text: str) -> bool:
        """Whether the text holds a keyword of any rule: without one, `text` and `tree` change nothing."""
        return self._secrets and (self._mask or bool(_hits(text)) or bool(_named_in(text.lower())))

    def text(self, text: str) -> str:
        """The text with typed placeholders for what the rules find."""
        if not self._secrets or not text:
            return text
        for rule in _hits(text):
            if rule == _KEY_WORDS:
                text = self._private_keys(text)
            elif rule == _URL_MARK:
                text = self._at_keywords("url_password", text, text, (_URL_MARK,), _URL_PASSWORD, None)
            else:
                text = self._everywhere(rule, _PATTERNS[rule], text)
        lowered = text.lower()
        names = _named_in(lowered)
        if names:
            bearers = tuple(name for name in names if name in _BEARER_NAMES)
            text = self._at_keywords("bearer", text, lowered, bearers, _BEARER, _has_entropy)
            assigned = tuple(name for name in names if name in _SECRET_NAMES)
            text = self._at_keywords("assignment", text, lowered, assigned, _ASSIGNED, _is_secret_value)
        return self.masked(text) if self._mask else text

    def masked(self, text: str) -> str:
        """E-mail addresses and home directories replaced, where the configuration wants it."""
        if not self._mask:
            return text
        if "@" in text:
            text = self._everywhere("email", _EMAIL, text)
        return _HOME.sub("~", text)

    def tree(self, value: Any) -> Any:
        """A JSON value with every string, key or value, replaced as in `text`.

        A string under a name that says password, token or the like is judged together with that name.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._named(key, item) for key, item in value.items()}
        return value

    def _named(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or not self._secrets or len(value) > 400:
            return self.tree(value)
        prefix = f"{name}="
        if _ASSIGNED.search(prefix + value):
            judged = self.text(prefix + value)
            if judged.startswith(prefix):
                return judged.removeprefix(prefix)
        return self.text(value)

    def _private_keys(self, text: str) -> str:
        """Key blocks replaced, also those of which only the beginning or the end is there."""
        spans: list[tuple[int, int]] = []
        begin: re.Match[str] | None = None
        for mark in (*_KEY_MARK.finditer(text), None):
            if begin is not None:
                whole = mark is not None and mark[1] == "END" and mark.start() - begin.end() <= _KEY_MAX_CHARS
                if mark is not None and whole and _KEY_RUN.search(text, begin.end(), mark.start()):
                    spans.append((begin.start(), mark.end()))
                elif not whole and (lines := _KEY_LINES.match(text, begin.end())):
                    spans.append((begin.start(), lines.end()))
            elif mark is not None and mark[1] == "END":
                start = len(text[max(0, mark.start() - _KEY_MAX_CHARS) : mark.start()].rstrip(_KEY_CHARS))
                start += max(0, mark.start() - _KEY_MAX_CHARS)
                if mark.start() - start >= 40:
                    spans.append((start, mark.end()))
            begin = mark if mark is not None and mark[1] == "BEGIN" else None
        return self._replaced("private_key", text, spans)

    def _everywhere(self, kind: str, pattern: re.Pattern[str], text: str) -> str:
        text, n = pattern.subn(f"[secret:{kind}]", text)
        if n:
            self.counts[kind] += n
        return text

    def _at_keywords(
        self,
        kind: str,
        text: str,
        searched: str,
        keywords: tuple[str, ...],
        pattern: re.Pattern[str],
        accept: Callable[[re.Match[str]], bool] | None,
    ) -> str:
        """Replaces group `value` of `pattern`, which is tried at each place of a keyword in `searched`."""
        if len(searched) != len(text):  # lower case may be longer, or an earlier rule has replaced something
            searched = text.lower() if len(text.lower()) == len(text) else text
        spans: list[tuple[int, int]] = []
        for keyword in keywords:
            at = searched.find(keyword)
            while at >= 0:
                match = pattern.match(text, at)
                if match and (accept is None or accept(match)):
                    spans.append(match.span("value"))
                at = searched.find(keyword, at + len(keyword))
        return self._replaced(kind, text, sorted(spans))

    def _replaced(self, kind: str, text: str, spans: list[tuple[int, int]]) -> str:
        """The text with a placeholder for each of the sorted spans; of overlapping ones the first counts."""
        if not spans:
            return text
        pieces: list[str] = []
        done = 0
        for start, end in spans:
            if start >= done:
                pieces += (text[done:start], f"[secret:{kind}]")
                done = end
                self.counts[kind] += 1
        return "".join((*pieces, text[done:]))


def _hits(text: str) -> list[str]:
    """The rules of which a keyword occurs in the text, in their order."""
    found = []
    for keyword, rule in _KEYWORDS:
        if keyword in text and rule not in found:
            found.append(rule)
    return found


def _named_in(lowered: str) -> list[str]:
    return [name for name in _ALL_NAMES if name in lowered]


def shannon_bits(text: str) -> float:
    """Shannon entropy per character, in bits."""
    n = len(text)
    return -sum(c / n * math.log2(c / n) for c in Counter(text).values())


def _has_entropy(match: re.Match[str]) -> bool:
    value = match["value"]
    return any(c.isdigit() for c in value) and shannon_bits(value) >= 3.0 and not _STOP.search(value)


def _is_secret_value(match: re.Match[str]) -> bool:
    """A value that looks random, or for passwords merely mixed: code and prose assign plenty to `token`."""
    value = match["value"]
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if not letters or _STOP.search(value) or _WORDLIKE.fullmatch(value):
        return False
    if match["name"].lower().startswith(("passw", "pwd", "passphrase")):
        return digits > 0 and shannon_bits(value) >= 2.5
    return digits >= 2 and len(value) >= 16 and shannon_bits(value) >= 3.5
