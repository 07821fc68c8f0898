"""Secrets out of stored text: typed placeholders instead of keys, tokens and passwords.

`Redactor` replaces what the rules find by `[secret:TYPE]` and counts it; with `mask` also e-mail addresses and home
directories. Deliberately absent: contacting a provider to see whether a key is valid.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any, Literal

from backfill.privacy.keys import MAX_CHARS
from backfill.privacy.rules import ASSIGNED_NAME
from backfill.privacy.spans import KINDS, Found, find, has_keyword
from backfill.privacy.values import is_secret_under

# Beyond a cut so much is searched: longer than every rule but keys and runs without white space, which are extended.
SLACK_CHARS = 2048
_MAX_RUN_CHARS = 20_000
_RUN_ENDS = " \n\t\"'<>"
_RUN = re.compile(rf"[^{_RUN_ENDS}]{{0,{_MAX_RUN_CHARS}}}")
_MAX_SHORT = 4096
_MAX_NAME_CHARS = 64
_MASKED_CHARS = 640  # the longest address that the pattern takes
_MAX_VALUE_CHARS = 4000

_EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_HOME = re.compile(r"(?:/(?:Users|home)/|\b[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))(?!Shared\b)[^\s/\\:\"'`<>|]{1,64}")


class Redactor:
    """Replaces secrets in text and counts them by type. `privacy` is that of `ScanConfig`."""

    def __init__(self, privacy: Literal["secrets", "mask", "off"]) -> None:
        self.counts: Counter[str] = Counter()
        self._secrets = privacy != "off"
        self._mask = privacy == "mask"
        self._short: dict[str, str] = {}

    def suspects(self, text: str | bytes) -> bool:
        """Whether a text, or its UTF-8, holds a keyword of any rule: without one, `text` and `tree` change nothing."""
        if not self._secrets or self._mask:
            return self._secrets
        return has_keyword(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)

    def text(self, text: str) -> str:
        """The text with typed placeholders for what the rules find."""
        if not self._secrets or not text:
            return text
        found = find(text)
        if found:
            text = self._replaced(text, found)
        return self.masked(text) if self._mask else text

    def short(self, text: str) -> str:
        """As `text`, for names that recur with every record: folders, branches, models, tools. Counts each once."""
        if not self._secrets or not text:
            return text
        known = self._short.get(text)
        if known is None:
            if len(self._short) >= _MAX_SHORT:
                self._short.clear()
            known = self._short[text] = self.text(text)
        return known

    def beginning(self, text: str, n_chars: int) -> tuple[str, int]:
        """The first characters without secrets, and how many there were; none of a secret across the cut is left."""
        if not self._secrets:
            return text[:n_chars], min(n_chars, len(text))
        end = min(len(text), n_chars + _slack(text))
        run = _RUN.match(text, end)
        window = text[: run.end() if run else end]
        found = find(window)
        for start, end in self._across(window, found, n_chars):
            if start < n_chars < end:
                n_chars = start
        return self._cleaned(text[:n_chars], [f for f in found if f[1] <= n_chars]), min(n_chars, len(text))

    def ending(self, text: str, n_chars: int) -> tuple[str, int]:
        """The last characters without secrets, and where they begin; none of a secret across the cut is left."""
        cut = max(0, len(text) - n_chars)
        if not self._secrets:
            return text[cut:], cut
        first = max(0, cut - _slack(text))
        before = text[max(0, first - _MAX_RUN_CHARS) : first]
        first -= len(before) - 1 - max(before.rfind(c) for c in _RUN_ENDS)
        found = [(s + first, e + first, k) for s, e, k in find(text[first:])]
        for start, end in self._across(text, found, cut):
            if start < cut < end:
                cut = end
        return self._cleaned(text[cut:], [(s - cut, e - cut, k) for s, e, k in found if s >= cut]), cut

    def masked(self, text: str) -> str:
        """E-mail addresses and home directories replaced, where the configuration wants it."""
        if not self._mask:
            return text
        if "@" in text:
            text, n = _EMAIL.subn("[secret:email]", text)
            if n:
                self.counts["email"] += n
        return _HOME.sub("~", text)

    def tree(self, value: Any) -> Any:
        """A JSON value with every string, key or value, replaced as in `text`.

        A string under a name that says password, token or the like is judged together with that name; so is an
        argument behind an option, and the `value` of an object beside its `name`.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._named(_option(before), item) for before, item in zip((None, *value), value, strict=False)]
        if isinstance(value, dict):
            name = value.get("name") or value.get("key")
            return {
                self._key(key): self._named(name if key == "value" and isinstance(name, str) else key, item)
                for key, item in value.items()
            }
        return value

    def _key(self, key: str) -> str:
        """The name of an argument without secrets; nearly all are words that recur."""
        return key if len(key) <= _MAX_NAME_CHARS and not self._mask and _is_plain_name(key) else self.text(key)

    def _named(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or not self._secrets or not name:
            return self.tree(value)
        if not self.suspects(f"{name}={value}"):
            return value
        judged = ASSIGNED_NAME.search(name)
        if (
            judged
            and 6 <= len(value) <= _MAX_VALUE_CHARS
            and not re.search(r"\s", value)
            and not find(value)
            and is_secret_under(judged["name"], judged["suffix"], value, is_literal=True)
        ):
            self.counts["assignment"] += 1
            return "[secret:assignment]"
        prefix = f"{name}="
        if find(prefix) or not any(start >= len(prefix) for start, _, _ in find(prefix + value)):
            return self.text(value)
        return self.text(prefix + value).removeprefix(prefix)

    def _across(self, text: str, found: list[Found], cut: int) -> list[tuple[int, int]]:
        """Spans that may lie across a cut: secrets, and of what is masked that beside it."""
        spans = [(start, end) for start, end, _ in found]
        if self._mask:
            low, high = max(0, cut - _MASKED_CHARS), cut + _MASKED_CHARS
            spans += (match.span() for pattern in (_EMAIL, _HOME) for match in pattern.finditer(text, low, high))
        return spans

    def _cleaned(self, text: str, found: list[Found]) -> str:
        text = self._replaced(text, found)
        return self.masked(text) if self._mask else text

    def _replaced(self, text: str, found: list[Found]) -> str:
        """The text with a placeholder for each of the sorted spans."""
        pieces: list[str] = []
        done = 0
        for start, end, kind in found:
            pieces += (text[done:start], f"[secret:{KINDS[kind]}]")
            done = end
            self.counts[KINDS[kind]] += 1
        return "".join((*pieces, text[done:])) if found else text


def home_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of every home directory that the text names, such as /home/NAME, in order."""
    return [match.span() for match in _HOME.finditer(text)] if "/" in text or "\\" in text else []


@lru_cache(maxsize=4096)
def _is_plain_name(name: str) -> bool:
    return not has_keyword(name.encode("utf-8", "surrogatepass"))


def _slack(text: str) -> int:
    return MAX_CHARS if "PRIVATE KEY" in text else SLACK_CHARS


def _option(value: Any) -> str:
    """The name of a command line's option, or nothing."""
    return value.lstrip("-") if isinstance(value, str) and value.startswith("-") and "=" not in value else ""
