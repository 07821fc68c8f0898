"""Batch and lengths of a vLLM engine, chosen from the model and the memory where the configuration says 0.

Reads the model's config.json and asks for memory as `model_memory` does; starts nothing. Deliberately absent: tuning by
trial; vLLM preempts sequences where more run than fit, so a guess that is too high costs time, not answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backfill.config import EngineConfig
from backfill.errors import ModelError
from backfill.model_memory import GIB, Device, devices, model_memory, visible_devices

MIN_SEQS = 8
# The scheduler and the mask of each sequence are Python: beyond these a step grows no more efficient.
MAX_SEQS_GPU = 1024
MAX_SEQS_CPU = 32
# Tokens of a step: prefill saturates a large GPU at 16,384; a small one lacks the memory for their activations.
LARGE_GPU_BYTES = 40 * GIB
BATCHED_TOKENS_LARGE, BATCHED_TOKENS_SMALL = 16384, 8192


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting with its value, and why it has it."""

    name: str
    value: int
    reason: str


def sized(config: EngineConfig) -> tuple[EngineConfig, tuple[Choice, ...]]:
    """The configuration with every 0 replaced, and what was chosen; other engines and missing models pass unchanged."""
    from backfill.engines.model_files import local_model

    if config.kind != "vllm":
        return config, ()
    try:
        directory = local_model(config.model)
        visible = visible_devices(devices())
        return chosen(config, directory, visible[0] if visible else None)
    except ModelError:
        return replace(config, max_num_seqs=config.max_num_seqs or MAX_SEQS_CPU), ()


def chosen(config: EngineConfig, directory: Path, gpu: Device | None) -> tuple[EngineConfig, tuple[Choice, ...]]:
    """`sized` for the model in a directory and a GPU, or the CPU where it is None. Raises ModelError."""
    choices: list[Choice] = []
    limit = _positions(directory)
    if 0 < limit < config.max_model_len:
        choices.append(Choice("engine.max_model_len", limit, "the model reads no more"))
        config = replace(config, max_model_len=limit)
    if not config.max_num_batched_tokens and gpu is not None:
        large = gpu.total_bytes >= LARGE_GPU_BYTES
        tokens = BATCHED_TOKENS_LARGE if large else BATCHED_TOKENS_SMALL
        choices.append(Choice("engine.max_num_batched_tokens", tokens, f"a GPU of {gpu.total_bytes / GIB:.0f} GiB"))
        config = replace(config, max_num_batched_tokens=tokens)
    if not config.max_num_seqs:
        seqs, why = _sequences(config, directory, gpu)
        choices.append(Choice("engine.max_num_seqs", seqs, why))
        config = replace(config, max_num_seqs=seqs)
    return config, tuple(choices)


def _sequences(config: EngineConfig, directory: Path, gpu: Device | None) -> tuple[int, str]:
    most = MAX_SEQS_GPU if gpu else MAX_SEQS_CPU
    memory = model_memory(directory, replace(config, max_num_seqs=most), on_gpu=gpu is not None)
    if gpu is not None:
        room = int(gpu.total_bytes * config.gpu_memory_utilization) - memory.with_tokens(0)
    else:
        room = int(config.kv_cache_gib * GIB)
    # Most exchanges are far shorter than the longest that the model takes: half of it each is a safe mean.
    each = memory.kv_token_bytes * max(1, config.max_model_len // 2)
    fits = max(0, room) // each
    seqs = min(most, max(MIN_SEQS, fits // 8 * 8))
    held = f"keys and values of {fits:,} sequences of {config.max_model_len // 2:,} tokens fit"
    return seqs, f"{held}; at most {most} are run" if fits > most else held


def _positions(directory: Path) -> int:
    """The longest input that a model's config.json allows; 0 where it does not say."""
    try:
        tree: Any = json.loads((directory / "config.json").read_bytes())
        return int(tree.get("max_position_embeddings") or (tree.get("text_config") or {})["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
