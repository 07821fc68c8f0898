"""What bench/gpu_check.py measures, a function a part: each checks its result first, then times it.

Every part runs on the CPU too, at sizes that only show that it works: that is how the tests run it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

Device = Literal["cpu", "cuda"]
_FLUSH_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What the device reaches by itself: bytes read and written a second by a copy, bfloat16 FLOP/s of a product."""

    copy_bytes_s: float
    matrix_flop_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table. `share` is the part of a limit that was reached, `against` how many times a peer's speed."""

    part: str
    value: float
    unit: str
    share: float | None = None
    limit: str = ""
    against: dict[str, float] | None = None


def median_s(work: Callable[[], Any], device: Device, runs: int = 15) -> float:
    """Median seconds of a call; on CUDA by events, with the cache of the GPU overwritten before each."""
    import torch

    for _ in range(3):
        work()
    found = []
    if device == "cpu":
        for _ in range(3):
            began = time.perf_counter()
            work()
            found.append(time.perf_counter() - began)
        return statistics.median(found)
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=device)
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found)


def limits(device: Device) -> Limits:
    """Measures both."""
    import torch

    n_bytes, size = (1 << 30, 8192) if device == "cuda" else (1 << 20, 64)
    source = torch.zeros(n_bytes, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    left = torch.randn(size, size, device=device).bfloat16()
    copy_s = median_s(lambda: target.copy_(source), device)
    product_s = median_s(lambda: left @ left, device)
    return Limits(2 * n_bytes / copy_s, 2 * size**3 / product_s)


def pool(device: Device, top: Limits) -> list[Line]:
    """pool_normalize_quantize to float16 and int8, against plain torch."""
    import torch
    from backfill_kernels.pool_normalize_quantize import pool_normalize_quantize, reference

    shape = (1024, 256, 384) if device == "cuda" else (8, 16, 24)
    embeddings = torch.randn(shape, device=device).bfloat16()
    mask = torch.ones(shape[:2], dtype=torch.int64, device=device)
    unit = reference.pool_normalize(embeddings, mask)
    rows = pool_normalize_quantize(embeddings, mask)
    codes, scale = pool_normalize_quantize(embeddings, mask, "int8")
    torch.testing.assert_close(rows.float(), unit, atol=1e-4, rtol=2**-9)
    torch.testing.assert_close(codes.float() * scale[:, None], unit, atol=float(scale.max()) * 0.51, rtol=0)
    n_bytes = embeddings.numel() * 2 + mask.numel() * 8

    def plainly() -> Any:
        return reference.pool_normalize(embeddings, mask)

    lines = []
    for name, out_bytes, run, plain in (
        ("float16", 2, lambda: pool_normalize_quantize(embeddings, mask), lambda: reference.to_float16(plainly())),
        ("int8", 1, lambda: pool_normalize_quantize(embeddings, mask, "int8"), lambda: reference.to_int8(plainly())),
    ):
        took_s, plain_s = median_s(run, device), median_s(plain, device)
        rate = (n_bytes + out_bytes * unit.numel()) / took_s
        share = rate / top.copy_bytes_s
        lines.append(Line(f"pool to {name}", rate / 1e9, "GB/s", share, "copy", {"plain torch": plain_s / took_s}))
    return lines


def mask(device: Device, top: Limits) -> list[Line]:
    """automaton_mask from rows on the device, against masks that come from the host as vLLM sends them."""
    import torch
    from backfill_kernels.automaton_mask import automaton_mask, reference

    n_rows, vocabulary, n_states = (1024, 151_936, 351) if device == "cuda" else (4, 300, 5)
    dice = np.random.default_rng(2)
    words = (vocabulary + 31) // 32
    allowed = dice.random((n_states, 32 * words)) < 0.02
    packed = np.packbits(allowed, axis=1, bitorder="little").view("<i4")
    table = torch.from_numpy(packed).to(device)
    names = dice.integers(0, n_states, n_rows)
    states = torch.from_numpy(names.astype(np.int32)).to(device)
    rows = torch.arange(n_rows, dtype=torch.int32, device=device)
    logits = torch.randn((n_rows, vocabulary), device=device)
    ours, wanted = logits[:8].clone(), logits[:8].clone()
    automaton_mask(ours, table, states[:8].contiguous(), rows[:8].contiguous())
    reference.apply(wanted, table, states[:8], rows[:8])
    if not torch.equal(ours, wanted):
        raise AssertionError("automaton_mask differs from its reference")
    host = torch.from_numpy(packed[names])
    host = host.pin_memory() if device == "cuda" else host

    def from_host() -> None:
        automaton_mask(logits, host.to(device, non_blocking=True), rows, rows)

    took_s = median_s(lambda: automaton_mask(logits, table, states, rows), device)
    host_s = median_s(from_host, device)
    written = 4 * int((~allowed[names, :vocabulary]).sum())
    share = written / took_s / top.copy_bytes_s
    return [Line("automaton mask", took_s * 1e6, "us a batch", share, "copy", {"masks uploaded": host_s / took_s})]


def minhash(device: Device, top: Limits) -> list[Line]:
    """minhash_near_dup with its transfers, against datasketch on the host."""
    from backfill_kernels.minhash_near_dup import signatures

    n_sets, size = (50_000, 280) if device == "cuda" else (20, 30)
    dice = np.random.default_rng(3)
    shingles = dice.integers(0, 1 << 32, n_sets * size, dtype=np.uint32)
    offsets = np.arange(n_sets + 1, dtype=np.int64) * size
    few = min(n_sets, 200)
    wanted = signatures(shingles[: few * size], offsets[: few + 1])
    np.testing.assert_array_equal(signatures(shingles[: few * size], offsets[: few + 1], device=device), wanted)
    took_s = median_s(lambda: signatures(shingles, offsets, device=device), device, runs=5)
    few_s = median_s(lambda: signatures(shingles[: few * size], offsets[: few + 1]), "cpu")
    rate = n_sets / took_s
    share = 4 * len(shingles) / took_s / top.copy_bytes_s
    return [Line("MinHash", rate, "sets/s", share, "copy", {"datasketch": rate * few_s / few})]


def embedding(device: Device, top: Limits) -> list[Line]:
    """The embed stage's encoder, against SentenceTransformer.encode on the same device."""
    from sentence_transformers import SentenceTransformer

    from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder
    from backfill.weights import resolve_model
    from bench.embed import MODEL, texts_of

    directory = Path(resolve_model(MODEL))
    texts = texts_of(20_000 if device == "cuda" else 12)
    ours = SentenceTransformerEmbedder(directory, device, batch_size=256 if device == "cuda" else 4)
    peer = SentenceTransformer(str(directory), device=device)
    agree = ours.encode(texts[:64], kind="passage").astype(np.float32)
    others = peer.encode(texts[:64], show_progress_bar=False, normalize_embeddings=True)
    if float((agree * others).sum(axis=1).min()) < 0.99:
        raise AssertionError("our vectors are not those of SentenceTransformer.encode")
    runs = 3 if device == "cuda" else 1
    took_s = statistics.median(_wall_s(lambda: ours.encode(texts, kind="passage"), device) for _ in range(runs))
    peer_s = _wall_s(lambda: peer.encode(texts, batch_size=256, show_progress_bar=False), device)
    # Looking words up costs no products: of the parameters those of matrices count, 2 FLOP a token each.
    looked_up = ours.model[0].auto_model.get_input_embeddings().weight.numel()
    parameters = sum(p.numel() for p in ours.model.parameters()) - looked_up
    ids = ours.model.tokenizer(texts, truncation=True, max_length=ours.max_tokens)["input_ids"]
    share = 2 * parameters * sum(map(len, ids)) / took_s / top.matrix_flop_s
    peers = {"SentenceTransformer.encode": peer_s / took_s}
    return [Line("embedding", len(texts) / took_s, "texts/s", share, "matrix", peers)]


def index(device: Device, top: Limits) -> list[Line]:
    """Training an IVF index with its centres from the GPU, against FAISS on the host; recall is gated as in a build."""
    import faiss

    from backfill.indexes import ann, gpu_kmeans

    n_rows, dim = (500_000, 384) if device == "cuda" else (3_000, 16)
    dice = np.random.default_rng(4)
    centres = dice.normal(size=(2_000, dim)).astype(np.float32)
    rows = centres[dice.integers(0, 2_000, n_rows)] + 0.7 * dice.normal(size=(n_rows, dim)).astype(np.float32)
    files = [(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)]
    choice = ann.choose(n_rows, dim, memory_bytes=1 << 40, wanted="ivf")
    by_faiss = getattr(faiss, "get_num_gpus", lambda: 0)() > 0
    sample = ann.sample(files, 64 << 10) if device == "cpu" else None

    def train() -> Any:
        return ann.train(choice, files, "gpu") if sample is None else gpu_kmeans.centres(sample, 64, "cpu")

    train()
    took_s = _wall_s(train, device)
    host_s = _wall_s(lambda: ann.train(choice, files), device)
    lists = int(choice.factory.partition(",")[0].removeprefix("IVF"))
    flop = 2 * min(n_rows, 64 * lists) * lists * dim * gpu_kmeans.ROUNDS
    whole = ann.build(choice, files, "gpu" if device == "cuda" else "cpu")
    recall = ann.gate(whole, choice, files, 0.95)[1]
    name = f"IVF training by {'faiss-gpu' if by_faiss else 'torch'}, recall@10 {recall:.3f}"
    return [
        Line(name, took_s, "s", flop / took_s / top.matrix_flop_s, "matrix", {"FAISS on the host": host_s / took_s})
    ]


def _wall_s(work: Callable[[], Any], device: Device) -> float:
    import torch

    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


PARTS: dict[str, Callable[[Device, Limits], list[Line]]] = {
    "pool": pool,
    "mask": mask,
    "minhash": minhash,
    "embedding": embedding,
    "index": index,
}
