"""Prompts have the ids of the whole text, whatever was tokenised ahead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.engines.prompt_tokens import CHECKED, PromptTokens
from backfill.engines.word_ids import WordIds

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers comes with the engine set-up")

MARKS = ("<|im_start|>", "<|im_end|>")


class Chat:
    """A tokenizer as transformers has them: a template, and a backend of tokenizers that counts what it reads."""

    def __init__(self, backend: Any, opening: str = "") -> None:
        self.backend_tokenizer = self
        self.read: list[str] = []
        self.rendered = 0
        self._backend, self._opening = backend, opening

    def get_added_vocab(self) -> dict[str, int]:
        return {mark: self._backend.token_to_id(mark) for mark in MARKS}

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **names: Any) -> str:
        assert not tokenize
        self.rendered += 1
        turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return f"{self._opening}{turns}<|im_start|>assistant\n"

    def encode(self, text: str | list[str], **names: Any) -> Any:
        assert not names["add_special_tokens"]
        self.read += [text] if isinstance(text, str) else text
        return self._backend.encode(text, **names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

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


def split(pattern: str) -> Any:
    """A pre-tokenizer that cuts by a pattern of its own and then only spells bytes, as many models have it."""
    pre = tokenizers.pre_tokenizers
    cut = pre.Split(tokenizers.Regex(pattern), "isolated")
    return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


BYTE_LEVEL = trained(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)) if tokenizers else None
# As Qwen2 and o200k: a mark opens a word, line ends close a run of marks, "don't" is one word, digits go by three.
ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
TAILS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = trained(split(rf"{TAILS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{ENDS}"))
QWEN.normalizer = tokenizers.normalizers.NFC()
O200K = trained(split(rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+{TAILS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{ENDS}"))
LOWERED = trained(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False))
LOWERED.normalizer = tokenizers.normalizers.Lowercase()
TEXT = st.text(max_size=60) | st.sampled_from(["<|im_end|>", " user", "\n\n", "system text"])
# Text as prompts are: words, numbers, marks and white space of every kind side by side.
CODE = st.lists(
    st.text("aZ7", min_size=1, max_size=4)
    | st.sampled_from([*" \t\n\r\x1c\x85\u00a0.,;'_-/(){}<|>~e\u0301\u4e2d\U0001f600\u00b2", "  ", "\n\n"])
).map("".join)


@given(st.lists(CODE | TEXT, min_size=1, max_size=6), st.sampled_from(["GPT-2", "Qwen2", "o200k"]))
def test_words_have_the_ids_of_the_text_they_stand_in(texts: list[str], name: str) -> None:
    backend = {"GPT-2": BYTE_LEVEL, "Qwen2": QWEN, "o200k": O200K}[name]
    assert (backend.normalizer is None) == (name != "Qwen2")
    words = WordIds.of(backend)
    assert words is not None
    for text in texts:
        plain = text.replace("<|", "< |")
        assert words.ids(plain) == backend.encode(plain, add_special_tokens=False).ids


def test_a_word_is_asked_for_once_and_long_ones_are_not_kept() -> None:
    chat = Chat(BYTE_LEVEL)
    words = WordIds.of(chat)
    assert words is not None
    chat.read.clear()
    long = "x" * 40
    words.ids(f"the user said {long} and the user said more")
    assert chat.read == ["the", " user", " said", f" {long}", " and", " the", " more"]
    chat.read.clear()
    words.ids(f"the user said {long}")
    assert chat.read == [f" {long}"]


@pytest.mark.parametrize(
    "backend",
    [
        trained(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)),
        trained(tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")),
        trained(tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
        trained(split(r"\p{L}+ ?|[^\p{L}]+")),
        LOWERED,
    ],
    ids=["a space before the text", "a mark before the text", "never cut", "spaces close words", "other letters"],
)
def test_a_tokenizer_that_cuts_elsewhere_is_not_asked_for_words(backend: Any) -> None:
    assert WordIds.of(backend) is None


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
    assert chat.read == ["\nmore", " text"]
    assert chat.rendered == CHECKED + 2, "the frame, each checked prompt, and the whole that the test compares with"
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


def test_a_template_that_depends_on_the_message_is_rendered_for_each() -> None:
    class Careful(Chat):
        def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **names: Any) -> str:
            text = super().apply_chat_template(messages, tokenize=tokenize)
            return f"{len(messages[-1]['content'])}{text}"

    chat = Careful(BYTE_LEVEL)
    tokens = PromptTokens(chat)
    for i in range(2 * CHECKED):
        assert tokens.ids("text", "user " * i + "a") == chat.whole("text", "user " * i + "a")


def test_white_space_at_the_ends_of_a_message_is_left_to_the_template() -> None:
    class Stripping(Chat):
        def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **names: Any) -> str:
            kept = [{**m, "content": m["content"].strip()} for m in messages]
            return super().apply_chat_template(kept, tokenize=tokenize)

    chat = Stripping(BYTE_LEVEL)
    tokens = PromptTokens(chat)
    for user in [*(f"text {i}" for i in range(CHECKED)), " user ", "user\n", "user"]:
        assert tokens.ids("text", user) == chat.whole("text", user)
