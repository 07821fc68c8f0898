"""Engines by name: which class a config asks for. Light to import; an engine's libraries load with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backfill.config import EngineConfig
from backfill.engines.base import Answer, Engine, Request
from backfill.errors import ConfigError

__all__ = ["Answer", "Engine", "Request", "engine_identity", "make_engine"]

PROMPT_ENGINES = ("vllm", "openai", "scripted")


def make_engine(config: EngineConfig, *, log_path: Path | None = None) -> Engine:
    """The engine that a config names. It loads nothing before its first request.

    `log_path` takes what an engine process prints. Raises ConfigError for `extractive`, which needs no engine.
    """
    if config.kind == "scripted":
        from backfill.engines.scripted import ScriptedEngine

        return ScriptedEngine(config)
    if config.kind == "vllm":
        from backfill.engines.supervised import SupervisedEngine
        from backfill.engines.vllm import VllmEngine

        return SupervisedEngine(lambda: VllmEngine(config, log_path))
    if config.kind == "openai":
        from backfill.engines.openai import OpenAIEngine

        return OpenAIEngine(config)
    raise ConfigError(f"engine.kind {config.kind} answers no prompts", hint=f"known: {', '.join(PROMPT_ENGINES)}")


def engine_identity(config: EngineConfig) -> dict[str, Any]:
    """What goes into fingerprints for this engine, without starting it. Raises ModelError where files are missing."""
    return make_engine(config).identity()
