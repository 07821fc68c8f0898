"""What a run will take, before anything is spent: exchanges, tokens, hours with an interval, memory, disk, price.

    seconds = scan + (load + items x requests per item / rate + last window) / workers + embed / workers + merge

Counts come from `workload`, rates from `calibrate` or a measured profile. The interval joins the errors of the rate, of
the sample and of what nothing measured (ten percent) as independent ones. Deliberately absent: rates that were never
measured; hours are null then, and a setting says what to do.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from backfill.calibrate import Speeds
from backfill.config import Config
from backfill.model_memory import ModelMemory
from backfill.profiles import Profile
from backfill.rundir import CLAIMS
from backfill.workload import Workload

UNMEASURED_ERROR = 0.1
# Beside its text a row of an object has ids, rooms and files: 0.3 to 0.6 KB in zstd Parquet, over the samples.
OBJECT_BYTES = 600
CLAIM_BYTES = 200
# A BM25 index over verbatim text is about half as large as the compressed tables are, over the samples.
INDEX_SHARE = 0.5
# The exported MiniLM with its tokenizer.
ENCODER_BYTES = 91_000_000
_EXACT_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Amounts:
    """Totals of the corpus: what `Workload` counted, scaled up."""

    exchanges: int
    cached: int
    to_distill: int
    windows: int
    requests: float
    texts: int

    @classmethod
    def of(cls, work: Workload, config: Config, speeds: Speeds) -> Amounts:
        """Scales the counts; texts to embed are the parts of every object and the claims."""
        scale = work.scale
        to_distill, windows = round(work.to_distill * scale), round(work.windows * scale)
        asked = config.engine.kind != "extractive"
        parts = len(config.embedder.parts)
        objects = (work.exchanges - work.cached) * scale * parts
        return cls(
            round(work.exchanges * scale),
            round(work.cached * scale),
            to_distill,
            windows,
            (to_distill + windows) * (speeds.requests_per_item if asked else 1.0),
            round(objects + windows * speeds.claims_per_window),
        )


def estimate(
    work: Workload,
    config: Config,
    speeds: Speeds,
    profile: Profile | None,
    memory: ModelMemory | None,
    *,
    price_per_hour: float | None = None,
    dim: int = 384,
) -> dict[str, Any]:
    """The `plan --json` record. `dim` is the encoder's; `profile` gives merge and memory."""
    amounts = Amounts.of(work, config, speeds)
    workers = max(1, config.launcher.workers)
    stages = _stage_seconds(work, config, speeds, profile, amounts, workers)
    gpu_s = (stages["distill"] + stages["embed"]) * workers
    error = math.sqrt(speeds.error**2 + (2 * work.scale_error) ** 2 + UNMEASURED_ERROR**2)
    known = speeds.requests_s > 0
    hours = _interval(sum(stages.values()), error, known=known)
    gpu_hours = _interval(gpu_s, error, known=known)
    price = None
    if price_per_hour is not None and gpu_hours["mid"] is not None:
        price = round(gpu_hours["mid"] * price_per_hour, 2)
    asked = config.engine.kind != "extractive"
    tokens = [round(amounts.requests * t) if asked else 0 for t in (speeds.tokens_in, speeds.tokens_out)]
    return {
        "exchanges": amounts.exchanges,
        "cached": amounts.cached,
        "to_distill": amounts.to_distill,
        "short": round(work.short * work.scale),
        "repeats": round(work.repeats * work.scale),
        "windows": amounts.windows,
        "requests": round(amounts.requests) if asked else 0,
        "tokens_in": tokens[0],
        "tokens_out": tokens[1],
        "hours": hours,
        "gpu_hours": gpu_hours,
        "stage_seconds": {name: round(seconds, 1) for name, seconds in stages.items()},
        "gpu_bytes": gpu_bytes(memory, config),
        "memory_bytes": profile.rss_bytes or None if profile else None,
        "disk_bytes": disk_bytes(work, config, amounts, dim),
        "inodes": inodes(work, config, amounts),
        "price": price,
        "sample": {
            "bytes": work.read_bytes,
            "of_bytes": work.source_bytes,
            "requests": speeds.n,
            "interval": round(error, 3),
            "failures": speeds.failures,
        },
        "speeds": asdict(speeds),
        "settings": settings(config, speeds, amounts, workers),
    }


def _stage_seconds(
    work: Workload, config: Config, speeds: Speeds, profile: Profile | None, amounts: Amounts, workers: int
) -> dict[str, float]:
    scan_rate = work.read_bytes / work.scan_s if work.scan_s else (profile.scan_mb_s * 1e6 if profile else 0.0)
    merge_rate = profile.merge_exchanges_s if profile else 0.0
    distill = 0.0
    if amounts.requests:
        asked_s = amounts.requests / speeds.requests_s / workers if speeds.requests_s else 0.0
        # The last request is handed over one window before the end and takes one window's time (Little, 1961).
        distill = speeds.load_s + max(asked_s, speeds.latency_s)
    embed = speeds.embed_load_s + (amounts.texts / speeds.embed_texts_s / workers if speeds.embed_texts_s else 0.0)
    return {
        "scan": work.scan_bytes_left / scan_rate / max(1, config.scan.workers) if scan_rate else 0.0,
        "distill": distill,
        "embed": embed if amounts.texts else 0.0,
        "merge": (profile.merge_load_s if profile else 0.0) + (amounts.exchanges / merge_rate if merge_rate else 0.0),
    }


def _interval(seconds: float, error: float, *, known: bool) -> dict[str, float | None]:
    """Low, mid and high in hours; time is a ratio of counts to a rate, so the interval is one of factors."""
    if not known:
        return {"low": None, "mid": None, "high": None}
    hours = seconds / 3600
    return {"low": round(hours / (1 + error), 6), "mid": round(hours, 6), "high": round(hours * (1 + error), 6)}


def gpu_bytes(memory: ModelMemory | None, config: Config) -> int:
    """Device memory with keys and values for all sequences at their expected length; 0 without a local model."""
    if memory is None:
        return 0
    engine, distill = config.engine, config.distill
    length = min(engine.max_model_len, distill.prompt_tokens + engine.max_new_tokens)
    return memory.with_tokens(engine.max_num_seqs * length)


def disk_bytes(work: Workload, config: Config, amounts: Amounts, dim: int) -> int:
    """Run folder and bundle together: tables, objects, claims and vectors (float16) twice, BM25, the encoder."""
    tables = work.table_bytes * work.scale
    objects = amounts.exchanges * OBJECT_BYTES + amounts.windows * 3 * CLAIM_BYTES
    vectors = amounts.texts * dim * 2
    return round(2 * (tables + objects + vectors) + tables * INDEX_SHARE + ENCODER_BYTES)


def inodes(work: Workload, config: Config, amounts: Amounts) -> int:
    """Files of the run: 4 a scan shard, 2 a distillation shard, a manifest and the parts of an embedding shard, about
    24 a month of the bundle (a year is assumed), and 40 others."""
    from backfill.claim_rounds import SHARD_WINDOWS

    shards = math.ceil(amounts.exchanges / config.distill.shard_exchanges)
    claims = math.ceil(amounts.windows / SHARD_WINDOWS) if CLAIMS in config.distill.products else 0
    per_object = 2 + 1 + len(config.embedder.parts)
    return 4 * max(1, work.scan_shards) + per_object * shards + 4 * claims + 24 * 12 + 40


def settings(config: Config, speeds: Speeds, amounts: Amounts, workers: int) -> list[dict[str, Any]]:
    """What the run would use, and why: name, value, reason."""
    engine = config.engine
    vectors = amounts.texts
    exact = vectors <= _EXACT_ROWS
    rows: list[tuple[str, Any, str]] = [
        ("engine", f"{engine.kind} {engine.model}".strip(), "as configured"),
        ("rates", speeds.origin, f"{speeds.n} requests were measured" if speeds.n else "nothing was measured"),
        (
            "launcher.workers",
            workers,
            "as configured" if config.launcher.workers else "0 means one per GPU; one is assumed",
        ),
        ("distill.prompt_tokens", config.distill.prompt_tokens, "the longest prompt; tool output is cut first"),
    ]
    if engine.kind in ("vllm", "scripted"):
        window = engine.window or (math.ceil(1.25 * engine.max_num_seqs) if engine.kind == "vllm" else 32)
        why = "as configured" if engine.window else "1.25 x max_num_seqs: a finished sequence is replaced at once"
        rows.append(("engine.window", window, why))
    if engine.kind == "vllm":
        rows.append(("engine.max_num_seqs", engine.max_num_seqs, "sequences decoded together"))
        rows.append(
            ("engine.max_model_len", engine.max_model_len, "prompt and answer together; longer ones are cut first")
        )
        rows.append(("engine.structured_backend", engine.structured_backend, "pinned: `auto` changes between releases"))
    reason = (
        f"{vectors:,} vectors: an exact scan is best up to 100,000" if exact else f"{vectors:,} vectors, above 100,000"
    )
    rows.append(("index", "exact" if exact else "ann", reason))
    return [{"name": name, "value": value, "reason": reason} for name, value, reason in rows]
