"""Which settings are measured: axes of a configuration, and the cells that they span.

A cell is the configuration with some settings changed. By default one setting is changed at a time, for a grid of five
axes would take days; `grid` takes all combinations. Deliberately absent: measuring (`measure`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from backfill.config import Config, load_config
from backfill.engines.sizing import sized
from backfill.errors import ConfigError, UsageError

Value = str | int | float | bool
Changes = dict[str, Value]

SEQUENCES, TOKENS, SPECULATION = "engine.max_num_seqs", "engine.max_num_batched_tokens", "engine.prompt_lookup_tokens"
BACKEND, BUDGET, MODEL = "engine.structured_backend", "distill.prompt_tokens", "engine.model"
BACKENDS = ("outlines", "xgrammar", "guidance")
# Tokens guessed at a time from the prompt: distilled texts copy names and phrases, seldom more than a few words.
GUESSED = 4


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting and the values that are tried, the configuration's own among them or not."""

    key: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where configurations come from: a file and what the command line changes in it."""

    path: Path
    overrides: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def load(self, changes: Changes) -> Config:
        """The configuration with the changes. Raises ConfigError, which names an unknown setting."""
        words = tuple(f"{key}={yaml.safe_dump(value).split(chr(10))[0]}" for key, value in changes.items())
        return load_config(self.path, overrides=(*self.overrides, *words), sources=self.sources)


def parse_axis(text: str) -> Axis:
    """`KEY.SUB=V1,V2,...` as an axis. Raises UsageError."""
    key, sep, listed = text.partition("=")
    values = [value.strip() for value in listed.split(",")]
    if not sep or "." not in key or not all(values):
        raise UsageError(f"--sweep {text!r} is not of the form key.sub=value,value")
    try:
        return Axis(key, tuple(yaml.safe_load(value) for value in values))
    except yaml.YAMLError as error:
        raise UsageError(f"--sweep {text!r}: a value is not valid YAML") from error


def default_axes(config: Config) -> list[Axis]:
    """Axes that fit the kind of engine: halves and doubles of what it has, other backends, guessing ahead."""
    engine = sized(config.engine)[0]
    budget = Axis(BUDGET, (config.distill.prompt_tokens // 2, config.distill.prompt_tokens * 2))
    if engine.kind == "vllm":
        axes = [budget, Axis(SEQUENCES, (max(1, engine.max_num_seqs // 2), engine.max_num_seqs * 2))]
        if engine.max_num_batched_tokens:
            axes.append(Axis(TOKENS, (engine.max_num_batched_tokens // 2, engine.max_num_batched_tokens * 2)))
        axes.append(Axis(SPECULATION, (0 if engine.prompt_lookup_tokens else GUESSED,)))
        return [*axes, Axis(BACKEND, BACKENDS)]
    if engine.kind == "openai":
        return [budget, Axis("engine.concurrency", tuple(engine.concurrency * n for n in (2, 4, 8)))]
    if engine.kind == "scripted":
        return [Axis("engine.window", (8, 16, 32, 64))]
    return []


def cells(source: Source, axes: Sequence[Axis], *, grid: bool) -> list[Changes]:
    """The changes of every cell, the configuration itself first; values that it has already are no change.

    Raises ConfigError for a setting or value that the configuration cannot have.
    """
    own = source.load({})
    steps = [[None, *(value for value in axis.values if value != setting(own, axis.key))] for axis in axes]
    found: list[Changes] = []
    for choice in itertools.product(*steps) if grid else _one_at_a_time(steps):
        changes = {axis.key: value for axis, value in zip(axes, choice, strict=True) if value is not None}
        if changes not in found:
            source.load(changes)
            found.append(changes)
    return found


def _one_at_a_time(steps: Sequence[Sequence[Value | None]]) -> Iterator[tuple[Value | None, ...]]:
    yield (None,) * len(steps)
    for at, values in enumerate(steps):
        for value in values[1:]:
            yield tuple(value if i == at else None for i in range(len(steps)))


def setting(config: Config, key: str) -> Value:
    """A setting's value, with what the engine would choose in the place of 0. Raises ConfigError for an unknown one."""
    section, _, name = key.partition(".")
    node: Any = sized(config.engine)[0] if section == "engine" else getattr(config, section, None)
    if not hasattr(node, name):
        raise ConfigError(f"unknown key {key!r} in --sweep", hint="keys are those of the config, as in --set")
    value: Value = getattr(node, name)
    return value
