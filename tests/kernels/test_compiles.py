"""The Triton kernels compile to machine code for NVIDIA's Ampere and Hopper; no GPU is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")

POOL = {
    **dict.fromkeys(("n_tokens", "dim", "embeddings_row", "embeddings_token", "mask_row", "mask_token"), "i32"),
    "mask": "*i64",
    "scales": "*fp32",
}
MASK = {
    **dict.fromkeys(("n_states", "n_words", "vocabulary", "logits_row", "table_row"), "i32"),
    **dict.fromkeys(("table", "states", "rows"), "*i32"),
}
LEAST = {**dict.fromkeys(("shingles", "factors", "terms", "out"), "*i32"), "offsets": "*i64", "n_perm": "i32"}
CASES = {
    "pool to float16": (
        "pool_normalize_quantize", "_pool_rows", {**POOL, "embeddings": "*bf16", "rows": "*fp16"},
        {"INT8": False, "BLOCK_T": 8, "BLOCK_D": 512},
    ),
    "pool to int8": (
        "pool_normalize_quantize", "_pool_rows", {**POOL, "embeddings": "*fp32", "rows": "*i8"},
        {"INT8": True, "BLOCK_T": 1, "BLOCK_D": 8192},
    ),
    "mask": ("automaton_mask", "_mask_rows", {**MASK, "logits": "*fp32"}, {"BLOCK": 8192}),
    "mask of bfloat16": ("automaton_mask", "_mask_rows", {**MASK, "logits": "*bf16"}, {"BLOCK": 8192}),
    "minhash": ("minhash_near_dup", "_least", LEAST, {"BLOCK_S": 64, "BLOCK_P": 128}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("case", CASES)
def test_a_kernel_compiles(case: str, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    op, name, types, constants = CASES[case]
    function: Any = getattr(importlib.import_module(f"backfill_kernels.{op}.triton"), name)
    signature = {argument: types.get(argument, "constexpr") for argument in function.arg_names}
    source = ASTSource(fn=function, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert made.asm["cubin"].startswith(b"\x7fELF")
    # What a program shares must fit into the 99 KiB that every one of these GPUs gives a block.
    assert made.metadata.shared <= 99 << 10
