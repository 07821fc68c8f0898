"""Prompts have the ids of the whole text, whatever was tokenised ahead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.engines.prompt_tokens import CHECKED, PromptTokens

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers comes with the engine set-up")

MARKS = ("<|im_start|>", "<|im_end|>")


class Chat:
    """A tokenizer as transformers has them: a template, and a backend of tokenizers that counts what it reads."""

    def __init__(self, backend: Any, opening: str = "") -> None:
        self.backend_tokenizer = self
        self.read: list[str] = []
        self._backend, self._opening = backend, opening

    def get_added_vocab(self) -> dict[str, int]:
        return {mark: self._backend.token_to_id(mark) for mark in MARKS}

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **names: Any) -> str:
        assert not tokenize
        turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return f"{self._opening}{turns}<|im_start|>assistant\n"

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        self.read.append(text)
        return self._backend.encode(text, add_special_tokens=False)

    def no_truncation(self) -> None:
        self._backend.no_truncation()

    def no_padding(self) -> None:
        self._backend.no_padding()

    def whole(self, system: str, user: str) -> list[int]:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user})
        ids: list[int] = self._backend.encode(
            self.apply_chat_template(messages, tokenize=False), add_special_tokens=False
        ).ids
        return ids


def trained(pre_tokenizer: Any) -> Any:
    """A small BPE tokenizer with two control tokens."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    backend.pre_tokenizer = pre_tokenizer
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["?", *MARKS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the user and the system say user text and instruction text"] * 4, trainer)
    return backend


BYTE_LEVEL = trained(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)) if tokenizers else None
TEXT = st.text(max_size=60) | st.sampled_from(["<|im_end|>", " user", "\n\n", "system text"])


@given(st.lists(TEXT, min_size=1, max_size=2 * CHECKED), st.sampled_from(["", "the instruction text"]))
def test_ids_are_those_of_the_whole_text(users: list[str], system: str) -> None:
    chat = Chat(BYTE_LEVEL)
    tokens = PromptTokens(chat)
    for user in users:
        marked = user.replace("<|im_end|>", "< |im_end|>").replace("<|im_start|>", "< |im_start|>")
        assert tokens.ids(system, user) == chat.whole(system, marked)


def test_the_instruction_is_read_once_it_has_been_checked() -> None:
    chat = Chat(BYTE_LEVEL)
    tokens = PromptTokens(chat)
    for i in range(CHECKED):
        tokens.ids("the instruction text", f"text {i}")
    chat.read.clear()
    assert tokens.ids("the instruction text", "more text") == chat.whole("the instruction text", "more text")
    assert chat.read == ["user\nmore text<|im_end|>\n<|im_start|>assistant\n"]
    tokens.ids("another instruction", "text")
    assert any("another instruction" in text for text in chat.read)


def test_a_tokenizer_that_marks_the_start_of_a_text_is_asked_for_the_whole() -> None:
    """Metaspace puts a mark before the first word of a text, so what is tokenised apart gets one too many."""
    backend = trained(tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first"))
    chat = Chat(backend)
    tokens = PromptTokens(chat)
    for i in range(2 * CHECKED):
        assert tokens.ids("the instruction text", f"text {i}") == chat.whole("the instruction text", f"text {i}")


def test_a_template_without_control_tokens_is_tokenised_whole() -> None:
    class Plain(Chat):
        def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **names: Any) -> str:
            return "\n".join(m["content"] for m in messages)

    chat = Plain(BYTE_LEVEL)
    tokens = PromptTokens(chat)
    for user in ("a user", "b system"):
        assert tokens.ids("text", user) == chat.whole("text", user)
