"""How much memory a model needs, from its files alone, and whether it fits: said before anything is loaded.

Weights are what the files hold, in the dtype that they are loaded in. A token's keys and values take 2 x layers x
key-value heads x head size x 2 or 4 bytes. Activations are bounded by the larger of a batch of hidden states through
the widest layer and the logits of all sequences in float32. Deliberately absent: torch, and all that starts a driver;
the devices are what `nvidia-smi` lists.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill.config import EngineConfig
from backfill.errors import ModelError

GIB = 1 << 30
# What vLLM, torch and a CUDA context take beside the model: 0.5 to 1.2 GiB; the upper end.
RUNTIME_BYTES = int(1.2 * GIB)
_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "float8_e4m3fn": 1}
_QUERY = "index,name,uuid,driver_version,memory.total,memory.free"
# "  MIG 2g.20gb     Device  0: (UUID: MIG-5c89852c-...)"
_MIG = re.compile(r"\s+MIG (?P<profile>\S*?(?P<gb>\d+)gb\S*)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that the driver lists; sizes in bytes."""

    index: int
    name: str
    uuid: str
    driver: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Bytes of a loaded model: weights, keys and values of one token, and activations of a full batch."""

    weights_bytes: int
    kv_token_bytes: int
    activation_bytes: int

    def with_tokens(self, tokens: int) -> int:
        """Everything with room for the keys and values of `tokens` tokens."""
        return self.weights_bytes + self.activation_bytes + RUNTIME_BYTES + self.kv_token_bytes * tokens


def devices() -> list[Device]:
    """The GPUs that `nvidia-smi` lists; none where it is missing or fails."""
    text = _nvidia_smi(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
    return [device for line in text.splitlines() if (device := _device(line)) is not None]


def _device(line: str) -> Device | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 6 or not (cells[0].isdigit() and cells[4].isdigit() and cells[5].isdigit()):
        return None
    mib = 1 << 20
    return Device(int(cells[0]), cells[1], cells[2], cells[3], int(cells[4]) * mib, int(cells[5]) * mib)


def available_bytes() -> int | None:
    """Main memory that can be taken without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def model_memory(directory: Path, config: EngineConfig, *, on_gpu: bool) -> ModelMemory:
    """What the model in `directory` takes under a configuration. Raises ModelError where config.json lacks its size."""
    tree = _model_config(directory)
    stored = str(tree.get("torch_dtype") or tree.get("dtype") or "float32").removeprefix("torch.")
    files = [*directory.glob("*.safetensors")] or [*directory.glob("*.bin")]
    stored_bytes = _DTYPE_BYTES.get(stored, 2)
    loaded_bytes = _loaded_bytes(config.dtype, stored_bytes, on_gpu=on_gpu)
    quantised = "quantization_config" in tree
    weights = sum(path.stat().st_size for path in files)
    if not quantised:
        weights = weights * loaded_bytes // stored_bytes
    try:
        hidden, heads = int(tree["hidden_size"]), int(tree["num_attention_heads"])
        layers, vocabulary = int(tree["num_hidden_layers"]), int(tree["vocab_size"])
        kv_heads = int(tree.get("num_key_value_heads") or heads)
        head = int(tree.get("head_dim") or hidden // heads)
        wide = int(tree.get("intermediate_size") or 4 * hidden)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"{directory}/config.json does not say how large the model is: {error!r}") from error
    tokens = config.max_num_batched_tokens or (16384 if on_gpu else 4096)
    logits = config.max_num_seqs * vocabulary * 4
    activations = max(tokens * (2 * wide + 2 * hidden) * loaded_bytes, logits)
    return ModelMemory(weights, 2 * layers * kv_heads * head * loaded_bytes, activations)


def needed_bytes(memory: ModelMemory, config: EngineConfig, *, on_gpu: bool) -> int:
    """The least that starts: on a GPU one sequence of `max_model_len`, on a CPU the reserved `kv_cache_gib`."""
    if on_gpu:
        return memory.with_tokens(config.max_model_len)
    return memory.with_tokens(0) + int(config.kv_cache_gib * GIB)


def check_fits(directory: Path, config: EngineConfig, *, gpu: Device | None, free_bytes: int | None) -> None:
    """Raises ModelError, with what would fit, where the model does not fit the GPU, or `free_bytes` of main memory.

    Nothing is said where the room is not known.
    """
    room = int(gpu.total_bytes * config.gpu_memory_utilization) if gpu else free_bytes
    if room is None:
        return
    on_gpu = gpu is not None
    memory = model_memory(directory, config, on_gpu=on_gpu)
    need = needed_bytes(memory, config, on_gpu=on_gpu)
    if gpu is not None and need <= room and need > gpu.free_bytes:
        raise ModelError(
            f"{gpu.name} (GPU {gpu.index}) has {_gib(gpu.free_bytes)} of {_gib(gpu.total_bytes)} free, and "
            f"{config.model} needs {_gib(need)}: another process holds the rest",
            hint="`nvidia-smi` lists the processes; one that died without freeing its memory goes with its parent",
        )
    if need > room:
        where = f"{gpu.name}, of which engine.gpu_memory_utilization allows" if gpu else "main memory, where there are"
        raise ModelError(
            f"{config.model} does not fit: it needs {_gib(need)} (weights {_gib(memory.weights_bytes)}, activations "
            f"{_gib(memory.activation_bytes)}) on {where} {_gib(room)}",
            hint=what_fits(memory, config, room, on_gpu=on_gpu),
        )


def what_fits(memory: ModelMemory, config: EngineConfig, room: int, *, on_gpu: bool) -> str:
    """Which setting or size would fit into `room` bytes."""
    spare = room - memory.with_tokens(0)
    least = config.max_new_tokens + 512
    if on_gpu and spare // memory.kv_token_bytes >= least:
        return f"set engine.max_model_len to {spare // memory.kv_token_bytes // 256 * 256 or least}"
    if not on_gpu and spare >= memory.kv_token_bytes * least:
        return f"set engine.kv_cache_gib to {max(0.1, spare / GIB - 0.05):.1f}"
    if memory.weights_bytes + RUNTIME_BYTES + memory.kv_token_bytes * least <= room and on_gpu:
        return "set engine.max_num_batched_tokens to 2048 and engine.max_num_seqs to 64"
    left = room - RUNTIME_BYTES - GIB
    if left <= 0:
        return "no model fits there beside what a run needs itself; engine.kind: extractive needs none"
    return (
        f"what fits is a model of at most {left / 2e9:.1f} billion parameters in bfloat16, {left / 4e9:.1f} in "
        f"float32, or {left / 0.6e9:.1f} quantised to 4 bits"
    )


def check_engine_fits(config: EngineConfig) -> None:
    """`check_fits` of a vLLM engine on this machine, on the first GPU that this process may see."""
    if config.kind != "vllm":
        return
    from backfill.engines.model_files import local_model

    listed = devices()
    visible = visible_devices(listed)
    if listed and not visible and names_a_gpu():
        return  # one whose memory nobody tells us
    free = None if visible else available_bytes()
    check_fits(local_model(config.model), config, gpu=visible[0] if visible else None, free_bytes=free)


def visible_devices(found: list[Device]) -> list[Device]:
    """Those of CUDA_VISIBLE_DEVICES, by index, UUID or the beginning of one; MIG slices by the UUID of theirs."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return found
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if any(name.startswith("MIG") for name in names):
        found = mig_slices(_nvidia_smi("-L"), found)
    return [d for name in names for d in found if name == str(d.index) or (len(name) > 3 and d.uuid.startswith(name))]


def names_a_gpu() -> bool:
    """Whether CUDA_VISIBLE_DEVICES names a GPU; Slurm writes NoDevFiles where a job has none."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return bool(chosen) and chosen not in ("-1", "NoDevFiles")


def mig_slices(listing: str, found: list[Device]) -> list[Device]:
    """The MIG slices in what `nvidia-smi -L` prints. Their memory is the nominal one of the profile (`2g.20gb`)."""
    slices: list[Device] = []
    driver = found[0].driver if found else ""
    for line in listing.splitlines():
        if match := _MIG.match(line):
            size = int(match["gb"]) * 10**9
            slices.append(Device(-1, f"MIG {match['profile']}", match["uuid"], driver, size, size))
    return slices


def _nvidia_smi(*arguments: str) -> str:
    """What it prints; nothing where it is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _loaded_bytes(dtype: str, stored_bytes: int, *, on_gpu: bool) -> int:
    if dtype == "auto":
        return min(stored_bytes, 2) if on_gpu else stored_bytes
    return _DTYPE_BYTES.get(dtype, 2)


def _model_config(directory: Path) -> dict[str, Any]:
    try:
        tree = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{directory}/config.json cannot be read: {error}") from error
    if not isinstance(tree, dict):
        raise ModelError(f"{directory}/config.json is no mapping")
    inner = tree.get("text_config")
    return {**tree, **inner} if isinstance(inner, dict) else tree


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
