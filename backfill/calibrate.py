"""Speeds of an engine and an encoder, measured on a sample of the very exchanges that a run will ask about.

The engine answers one exchange first, which loads it, and then the sample with its window full, exchanges and windows
of claims by turns, for they cost differently. The rate counts answers up to the moment when the window can no longer be
full, for a run spends nearly all its time before that. Nothing that is made here is kept. Deliberately absent: guesses;
what is not measured comes from a profile (`profiles`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from backfill.config import Config
from backfill.distill import DistilledShard, claims_fingerprint, distill, distill_fingerprint
from backfill.embed import embed_texts, object_texts
from backfill.engines import make_engine
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.delegating import DelegatingEngine
from backfill.errors import EngineError
from backfill.profiles import Profile
from backfill.rundir import OBJECT
from backfill.types import Exchange
from backfill.windows import Windows

if TYPE_CHECKING:
    from backfill.interrupts import StopFlag

T = TypeVar("T")

BLOCKS = 5
_TURNS = 8
# Two-sided 95% point of Student's t with BLOCKS - 1 = 4 degrees of freedom.
_T = 2.776
_LEAST_ERROR = 0.1


@dataclass(frozen=True, slots=True)
class Speeds:
    """Rates of one worker and means of its requests. `error` is the relative half width of a 95% interval of the rate.

    `requests_per_item` counts retries; `tokens_in` and `tokens_out` are means a request in the model's own tokens;
    `latency_s` is how long a full window takes to come back, so the least that a run takes. `n` requests were measured.
    """

    origin: str
    n: int
    load_s: float
    requests_s: float
    latency_s: float
    requests_per_item: float
    tokens_in: float
    tokens_out: float
    claims_per_window: float
    embed_texts_s: float
    embed_load_s: float
    error: float
    failures: dict[str, int] = field(default_factory=dict)


class MeteredEngine(DelegatingEngine):
    """An engine that remembers when requests were handed over and answers came."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.submitted_at: list[float] = []
        self.answered_at: list[float] = []

    def submit(self, request: Request) -> None:
        """Hands over, and notes when."""
        self.submitted_at.append(time.monotonic())
        super().submit(request)

    def poll(self, timeout_s: float) -> list[Answer]:
        """Takes answers, and notes when."""
        answers = super().poll(timeout_s)
        self.answered_at += [time.monotonic()] * len(answers)
        return answers


def calibrate(
    config: Config, rows: Sequence[Exchange], windows: Windows, should_stop: StopFlag | None = None
) -> Speeds:
    """Distills and embeds a sample. Raises ModelError or EngineError as a run would, Interrupted where stopped."""
    if config.engine.kind == "extractive":
        shards, load_s, meter, seconds = _extract(config, rows, windows)
    else:
        shards, load_s, meter, seconds = _ask(config, rows, windows, should_stop)
    n = sum(shard.stats.requests for shard in shards)
    items = max(1, sum(shard.stats.eligible for shard in shards))
    n_windows = sum(shard.stats.n for shard in shards if shard.name != OBJECT)
    if meter is None:
        rate, error, latency_s = items / max(seconds, 1e-9), 0.3, 0.0
    else:
        rate, error = steady_rate(meter.submitted_at, meter.answered_at, meter.window)
        latency_s = min(meter.window, n) / rate
    embed_load_s, embed_texts_s = _embed_speed(config, shards)
    failures: dict[str, int] = {}
    for shard in shards:
        for reason, count in shard.stats.failures.items():
            failures[reason] = failures.get(reason, 0) + count
    return Speeds(
        origin="calibration on this machine",
        n=n or items,
        load_s=load_s,
        requests_s=rate,
        latency_s=latency_s,
        requests_per_item=n / items if n else 1.0,
        tokens_in=sum(shard.stats.tokens_in for shard in shards) / max(1, n),
        tokens_out=sum(shard.stats.tokens_out for shard in shards) / max(1, n),
        claims_per_window=sum(shard.stats.n_claims for shard in shards) / max(1, n_windows),
        embed_texts_s=embed_texts_s,
        embed_load_s=embed_load_s,
        error=error,
        failures=failures,
    )


def steady_rate(submitted_at: Sequence[float], answered_at: Sequence[float], window: int) -> tuple[float, float]:
    """(answers a second, relative half width of its 95% interval) while the window was full.

    Of n answers, the first n - window came while every answer made room for a request. An engine that begins with a
    full window gives its first answers late, and where the sample has few windows that weighs more than the emptying at
    the end: the higher of this rate and that of the whole span counts. With fewer than two windows there is the span
    alone, and the half width is at least a half. Raises EngineError where nothing was answered.
    """
    n = len(answered_at)
    if not n or not submitted_at:
        raise EngineError("the engine answered nothing of the sample", hint="`backfill run` would fail too")
    start = submitted_at[0]
    full = n - window
    whole = n / max(answered_at[-1] - start, 1e-9)
    if full < window:
        return whole, 0.5
    rate = max(whole, full / max(answered_at[full - 1] - start, 1e-9))
    marks = [start, *(answered_at[full * (i + 1) // BLOCKS - 1] for i in range(BLOCKS))]
    rates = [full / BLOCKS / max(b - a, 1e-9) for a, b in itertools.pairwise(marks)]
    mean = sum(rates) / BLOCKS
    spread = math.sqrt(sum((r - mean) ** 2 for r in rates) / (BLOCKS - 1) / BLOCKS)
    return rate, min(0.5, max(_LEAST_ERROR, _T * spread / mean))


def _extract(
    config: Config, rows: Sequence[Exchange], windows: Windows
) -> tuple[list[DistilledShard], float, MeteredEngine | None, float]:
    started = time.monotonic()
    shards = list(_distilled(config, rows, windows, None, None))
    return shards, 0.0, None, time.monotonic() - started


def _ask(
    config: Config, rows: Sequence[Exchange], windows: Windows, should_stop: StopFlag | None
) -> tuple[list[DistilledShard], float, MeteredEngine | None, float]:
    engine = make_engine(config.engine)
    try:
        started = time.monotonic()
        list(_distilled(config, rows[:1], Windows(windows[: 0 if rows else 1]), engine, should_stop))
        load_s = time.monotonic() - started
        meter = MeteredEngine(engine)
        started = time.monotonic()
        shards = list(_distilled(config, rows, windows, meter, should_stop))
        return shards, load_s, meter, time.monotonic() - started
    finally:
        engine.close()


def _distilled(
    config: Config, rows: Sequence[Exchange], windows: Windows, engine: Engine | None, should_stop: StopFlag | None
) -> list[DistilledShard]:
    parts: list[tuple[str, Sequence[Exchange] | Windows]] = []
    for turn in range(_TURNS):
        some, others = _turn(rows, turn), _turn(windows, turn)
        parts += [(OBJECT, some)] if some else []
        parts += [("claims", Windows(others))] if others else []
    made = distill(
        parts,
        config.distill,
        fingerprint=distill_fingerprint(config.distill, config.engine),
        claims_fingerprint=claims_fingerprint(config.distill, config.engine),
        engine=engine,
        max_new_tokens=config.engine.max_new_tokens,
        privacy=config.scan.privacy,
        should_stop=should_stop or (lambda: False),
    )
    return list(made)


def _turn(items: Sequence[T], turn: int) -> Sequence[T]:
    return items[len(items) * turn // _TURNS : len(items) * (turn + 1) // _TURNS]


def _embed_speed(config: Config, shards: Sequence[DistilledShard]) -> tuple[float, float]:
    """(seconds to load the encoder, texts a second) over the texts of the sample."""
    from backfill.encoders import make_embedder

    texts = [t for s in shards for o in s.objects for t in object_texts(o, config.embedder.parts).values()]
    texts += [claim.text for shard in shards for claim in shard.claims]
    started = time.monotonic()
    embedder = make_embedder(config.embedder)
    embed_texts(embedder, texts[:1])
    load_s = time.monotonic() - started
    started = time.monotonic()
    embed_texts(embedder, texts)
    return load_s, len(texts) / max(time.monotonic() - started, 1e-9)


def speeds_of(config: Config, profile: Profile | None) -> Speeds:
    """The speeds of a measured profile; of the scripted engine with a delay, those that the delay and window give."""
    if config.engine.kind == "scripted" and config.engine.delay_ms > 0:
        window = config.engine.window or 32
        rate = window / (config.engine.delay_ms / 1000)
        latency_s = config.engine.delay_ms / 1000
        origin, error = "engine.delay_ms and engine.window", 0.3
    elif profile is not None:
        rate, latency_s, origin, error = profile.requests_s, 0.0, f"profile {profile.name}", profile.error
    else:
        rate, latency_s, origin, error = 0.0, 0.0, "none: --calibrate measures them", 1.0
    known = profile or Profile("", "", "", "")
    return Speeds(
        origin=origin,
        n=0,
        load_s=known.load_s,
        requests_s=rate,
        latency_s=latency_s,
        requests_per_item=known.requests_per_item,
        tokens_in=known.tokens_in or config.distill.prompt_tokens / 2,
        tokens_out=known.tokens_out or config.engine.max_new_tokens / 2,
        claims_per_window=known.claims_per_window,
        embed_texts_s=known.embed_texts_s,
        embed_load_s=known.embed_load_s,
        error=error,
    )
