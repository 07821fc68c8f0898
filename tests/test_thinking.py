"""Thinking models are kept from thinking: what reaches the chat template, by both names that templates use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backfill.config import EngineConfig
from backfill.engines.prompt_tokens import PromptTokens
from backfill.engines.vllm import start_message
from backfill.engines.vllm_child import lookup_options

jinja2 = pytest.importorskip("jinja2")

# Both families' switches, as their templates write them: a closed empty thought, or a thought that is left open.
HYBRID = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
SWITCH = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    "{% if not thinking %}</think>{% else %}<think>{% endif %}"
)


class Tokenizer:
    """Renders a chat template as transformers does, and gives its characters for tokens."""

    def __init__(self, template: str) -> None:
        self._template = jinja2.Template(template)

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def apply_chat_template(self, messages: list[dict[str, str]], *, return_dict: bool, **names: Any) -> list[int]:
        assert not return_dict
        return [ord(char) for char in self._template.render(messages=messages, **names)]


def prompt_of(template: str, config: EngineConfig) -> str:
    start = start_message(config, Path("m"))
    tokens = PromptTokens(Tokenizer(template), enable_thinking=start.enable_thinking)
    return "".join(map(chr, tokens.ids("Instruction.", "Text.")))


@pytest.mark.parametrize(("template", "end"), [(HYBRID, "<think>\n\n</think>\n\n"), (SWITCH, "</think>")])
def test_by_default_the_thought_is_closed_before_the_answer(template: str, end: str) -> None:
    text = prompt_of(template, EngineConfig(kind="vllm", model="m"))
    assert text == f"<system>Instruction.<user>Text.<assistant>{end}"


@pytest.mark.parametrize(("template", "end"), [(HYBRID, ""), (SWITCH, "<think>")])
def test_it_thinks_where_the_configuration_says_so(template: str, end: str) -> None:
    text = prompt_of(template, EngineConfig(kind="vllm", model="m", enable_thinking=True))
    assert text.endswith(f"<assistant>{end}")


def test_guessing_from_the_prompt_is_off_unless_asked_for() -> None:
    assert start_message(EngineConfig(kind="vllm", model="m"), Path("m")).prompt_lookup_tokens == 0
    asked = start_message(EngineConfig(kind="vllm", model="m", prompt_lookup_tokens=4), Path("m"))
    assert asked.prompt_lookup_tokens == 4
    assert lookup_options(4)["num_speculative_tokens"] == 4
    assert lookup_options(4)["method"] == "ngram"
