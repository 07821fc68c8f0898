"""Token ids of a request's chat prompt, with what every prompt of an instruction shares rendered and tokenised once.

A chat template puts fixed text before and after the user's message: the instruction alone is a third of a short prompt.
A tokenizer splits a text at its control tokens before it does anything else, so what stands before the last of them in
front of the message, and from the first behind it, has ids of its own; what is left between is looked up word by word
(`word_ids`). That is checked against the whole, not believed, for the first prompts of an instruction; where they
differ, prompts are rendered and tokenised whole. Deliberately absent: any import of a tokenizer library; the tokenizer
is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from backfill.engines.control_marks import defuse, special_texts
from backfill.engines.word_ids import WordIds

# So many prompts of an instruction are tokenised both ways.
CHECKED = 8
_MAX_KEPT = 16
_MESSAGE = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True)
class _Frame:
    """What stands around the user's message in prompts of an instruction, and how many prompts have agreed.

    `opening` and `closing` are the ids of its ends, up to and from a control mark; `lead` and `trail` the text between
    them and the message. `whole` says that prompts are not made so.
    """

    opening: list[int] = field(default_factory=list)
    lead: str = ""
    trail: str = ""
    closing: list[int] = field(default_factory=list)
    agreed: int = 0
    whole: bool = False


class PromptTokens:
    """Tokenises prompts for a model. `tokenizer` is one of transformers'; `enable_thinking` reaches its template."""

    def __init__(self, tokenizer: Any, *, enable_thinking: bool = False) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_vocab()
        self._special: re.Pattern[str] | None = special_texts(added)
        # Templates know the switch by one of two names, and pass over the other.
        self._thinking = {"enable_thinking": enable_thinking, "thinking": enable_thinking}
        self._frames: dict[str, _Frame] = {}
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        # Of added tokens only those of control marks are kept out of a message.
        foreign = any(len(token) <= 2 and not token.isspace() for token in added)
        self._words = None if foreign else WordIds.of(self._backend)
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
        frame = self._frames.get(system) or self._framed(system)
        # A template may strip a message, and a control token the white space beside it.
        if frame.whole or user != user.strip():
            return self._encode(self._rendered(system, user, tokenize=False))
        between = f"{frame.lead}{user}{frame.trail}"
        ids = [*frame.opening, *(self._words.ids(between) if self._words else self._encode(between)), *frame.closing]
        if frame.agreed < CHECKED:
            frame.agreed += 1
            whole = self._encode(self._rendered(system, user, tokenize=False))
            frame.whole = whole != ids
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

    def _framed(self, system: str) -> _Frame:
        """What a template puts around a message that is a single character, cut at its control marks."""
        if len(self._frames) >= _MAX_KEPT:
            self._frames.clear()
        text: str = self._rendered(system, _MESSAGE, tokenize=False)
        before, _, after = text.partition(_MESSAGE)
        frame = self._frames[system] = _Frame(whole=text.count(_MESSAGE) != 1)
        marks = list(self._special.finditer(before)) if self._special else []
        at = marks[-1].end() if marks else 0
        frame.opening, frame.lead = self._encode(before[:at]), before[at:]
        mark = self._special.search(after) if self._special else None
        at = mark.start() if mark else len(after)
        frame.trail, frame.closing = after[:at], self._encode(after[at:])
        return frame
