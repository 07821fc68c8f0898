"""Token ids of a request's chat prompt, with what every prompt begins with tokenised once.

The instruction is the same text in each request and a third of a short prompt. A tokenizer splits a text at its control
tokens before it does anything else, so what stands before the last of them in front of the user's message has ids of
its own. That is checked against the whole, not believed, for the first prompts of an instruction; where they differ,
prompts are tokenised whole. Deliberately absent: any import of a tokenizer library; the tokenizer is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from backfill.engines.control_marks import defuse, special_texts

# So many prompts of an instruction are tokenised both ways.
CHECKED = 8
_MAX_KEPT = 16


@dataclass(slots=True)
class _Opening:
    """The text that prompts of an instruction begin with, its ids, and how many prompts have agreed."""

    text: str
    ids: list[int] = field(default_factory=list)
    agreed: int = 0


class PromptTokens:
    """Tokenises prompts for a model. `tokenizer` is one of transformers'; `enable_thinking` reaches its template."""

    def __init__(self, tokenizer: Any, *, enable_thinking: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special: re.Pattern[str] | None = special_texts(tokenizer.get_added_vocab())
        # Templates know the switch by one of two names, and pass over the other.
        self._thinking = {"enable_thinking": enable_thinking, "thinking": enable_thinking}
        self._openings: dict[str, _Opening] = {}
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.no_truncation()
            self._backend.no_padding()

    def ids(self, system: str, user: str) -> list[int]:
        """The ids of a prompt of one or two messages, with the answer's opening; control marks of `user` are defused.

        Raises what a template raises that refuses a text.
        """
        user = defuse(user, self._special)
        if self._backend is None:
            return list(self._rendered(system, user, return_dict=False))
        text: str = self._rendered(system, user, tokenize=False)
        opening = self._openings.get(system) or self._opening(system, text)
        if not opening.text or not text.startswith(opening.text):
            return self._encode(text)
        ids = opening.ids + self._encode(text[len(opening.text) :])
        if opening.agreed < CHECKED:
            opening.agreed += 1
            whole = self._encode(text)
            if whole != ids:
                opening.text = ""
            return whole
        return ids

    def _rendered(self, system: str, user: str, **names: Any) -> Any:
        messages = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        return self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, **names, **self._thinking)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids  # type: ignore[union-attr]
        return ids

    def _opening(self, system: str, text: str) -> _Opening:
        """What two prompts of an instruction share, up to the last control mark in it."""
        if len(self._openings) >= _MAX_KEPT:
            self._openings.clear()
        other: str = self._rendered(system, "\N{REPLACEMENT CHARACTER}", tokenize=False)
        pairs = enumerate(zip(text, other, strict=False))
        shared = text[: next((i for i, (one, two) in pairs if one != two), min(len(text), len(other)))]
        marks = list(self._special.finditer(shared)) if self._special else []
        opening = self._openings[system] = _Opening(shared[: marks[-1].end()] if marks else "")
        opening.ids = self._encode(opening.text)
        return opening
