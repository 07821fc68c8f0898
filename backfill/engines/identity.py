"""What a model directory is, for fingerprints: digests of its weights, tokenizer, chat template and configuration.

Deliberately absent: paths and names. Two copies of one model are one model.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from backfill.config import EngineConfig

_HEAD_BYTES = 1 << 20
_BLOCK_BYTES = 64 << 10
_BLOCKS = 64
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json")
_TEMPLATE = ("chat_template.jinja", "chat_template.json")
_CONFIGURATION = ("config.json", "generation_config.json")


def vllm_identity(config: EngineConfig, directory: Path) -> dict[str, Any]:
    """What decides the answers of a vLLM engine: digests of the model's files, and the sampling. No host, no path.

    The structured-output backend and the dtype are left out on purpose: they are recorded beside, and a schema
    means the same to every backend.
    """
    return {
        "engine": "vllm",
        **model_identity(directory),
        "temperature": config.temperature,
        "frequency_penalty": config.frequency_penalty,
        "seed": config.seed if config.temperature > 0 else 0,
        "max_new_tokens": config.max_new_tokens,
        "enable_thinking": config.enable_thinking,
    }


def model_identity(directory: Path) -> dict[str, str]:
    """SHA-256 digests, in hex, of the parts of a model directory."""
    weights = sorted(path for pattern in _WEIGHTS for path in directory.glob(pattern))
    return {
        "weights": _digest_of(weights, sample=True),
        "tokenizer": _digest_of([directory / name for name in _TOKENIZER]),
        "chat_template": _digest_of([directory / name for name in _TEMPLATE]),
        "configuration": _digest_of([directory / name for name in _CONFIGURATION]),
    }


def _digest_of(paths: list[Path], *, sample: bool = False) -> str:
    total = hashlib.sha256()
    for path in paths:
        if path.is_file():
            content = sampled_digest(path) if sample else hashlib.sha256(path.read_bytes()).digest()
            total.update(path.name.encode() + b"\0" + content)
    return total.hexdigest()


def sampled_digest(path: Path) -> bytes:
    """SHA-256 of a file's size, its first MiB (all names, types and shapes of a safetensors file stand there) and 64
    blocks of 64 KiB spread evenly over the rest.

    A fingerprint must be had in a moment, and reading 60 GB takes a minute or more. Training moves nearly every
    weight, so another model differs in the blocks; whole files are checked against their SHA-256 when fetched.
    """
    size = path.stat().st_size
    total = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        total.update(file.read(_HEAD_BYTES))
        if size > _HEAD_BYTES:
            last = max(_HEAD_BYTES, size - _BLOCK_BYTES)
            for number in range(_BLOCKS):
                file.seek(_HEAD_BYTES + (last - _HEAD_BYTES) * number // (_BLOCKS - 1))
                total.update(file.read(_BLOCK_BYTES))
    return total.digest()
