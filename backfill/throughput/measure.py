"""One cell: a sample asked of an engine with its settings, timed while the window is full, and judged as `gate` judges.

A measured cell is written as `cells/<key>.json` once it is whole; the key covers everything that decides its figures
(settings, prompt, model's files, rules of the gate, sample, host), so the same command finds it again. Deliberately
absent: retries and fallbacks of a run; what a retry costs is counted from the share of answers that would want one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.calibrate import MeteredEngine, steady_rate
from backfill.config import Config, to_tree
from backfill.distill import distill_fingerprint
from backfill.durable import make_dirs, replace_file
from backfill.engines import Engine
from backfill.errors import UsageError
from backfill.gate import FAIL, MARGINAL, PASS, Tally, judge
from backfill.gate_run import ask_claims, ask_objects, judge_engine
from backfill.gate_sample import Sample
from backfill.ids import canonical_json, digest_fields
from backfill.throughput.axes import Changes

ShouldStop = Callable[[], bool]
MEASURE_VERSION = 1
MIN_SAMPLE = 2
MILLION_H = 1e6 / 3600
# An engine that answers at once is timed over too short a span for an interval of its own.
UNKNOWN_ERROR = 0.3
VERDICTS = (PASS, MARGINAL, FAIL)


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell's figures.

    `exchanges_s` is what a run's distill stage would do with one engine, with retries and, where wanted, claims;
    `error` is the relative half width of its 95% interval. `tokens_in_s` and `tokens_out_s` are the model's own
    tokens. `hours_per_million` are hours of one engine (one GPU, or the machine's CPU). Counts are over first answers
    about `n` exchanges and `windows` windows. `failure` says why there are no figures.
    """

    changes: Changes
    n: int = 0
    windows: int = 0
    exchanges_s: float = 0.0
    error: float = 1.0
    tokens_in_s: float = 0.0
    tokens_out_s: float = 0.0
    hours_per_million: float = 0.0
    load_s: float = 0.0
    verdict: str = ""
    reasons: list[str] = field(default_factory=list)
    invented: int = 0
    mangled: int = 0
    dropped: int = 0
    absence: int = 0
    bloat: int = 0
    secrets: int = 0
    schema_failures: int = 0
    density: float = 0.0
    runs: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def name(self) -> str:
        """The changed settings in words."""
        return ", ".join(f"{key}={value}" for key, value in self.changes.items()) or "as configured"

    @property
    def faults(self) -> float:
        """What is wrong with the first answers, of a hundred: invented, mangled, dropped, absent, secret, or none."""
        told = self.invented + self.mangled + self.dropped + self.absence + self.secrets + self.schema_failures
        return 100 * told / max(1, self.n + self.windows)


def sample_of(config: Config, n: int) -> Sample:
    """About `n` exchanges and windows of the config's sources, in the proportion in which a run would ask about them.

    Raises UsageError where there are fewer than two.
    """
    from backfill.workload import of_config

    if not config.sources:
        raise UsageError("no sources", hint="name some in the config, or pass --source PATH")
    work = of_config(config, known=frozenset(), n_rows=n)
    if len(work.rows) < MIN_SAMPLE:
        raise UsageError(
            f"{len(work.rows)} exchanges of {config.distill.min_tokens} tokens or more in {', '.join(config.sources)}",
            hint=f"at least {MIN_SAMPLE} are needed to time anything",
        )
    digest = digest_fields([row.content_id for row in work.rows])
    return Sample(work.rows, tuple(work.sample_windows), digest)


def cell_key(config: Config, sample: Sample) -> str:
    """What names a cell's file. Raises ModelError where the model's files are missing."""
    tree = {
        "version": MEASURE_VERSION,
        "fingerprint": distill_fingerprint(config.distill, config.engine),
        "engine": to_tree(config.engine),
        "distill": to_tree(config.distill),
        "gate": to_tree(config.gate),
        "sample": sample.digest.hex(),
        "host": platform.node(),
    }
    return digest_fields([canonical_json(tree)]).hex()


def stored(folder: Path, key: str) -> Measured | None:
    """A cell measured before; None where it is missing, damaged, or failed then."""
    try:
        found = msgspec.json.decode((folder / f"{key}.json").read_bytes(), type=Measured)
    except (OSError, msgspec.DecodeError):
        return None
    return None if found.failure else found


def store(folder: Path, key: str, cell: Measured) -> None:
    """Writes a measured cell, atomically."""
    make_dirs(folder)
    tree = msgspec.json.encode(cell, order="sorted")
    replace_file(folder / f"{key}.json", msgspec.json.format(tree, indent=1) + b"\n")


def measure(
    config: Config,
    changes: Changes,
    sample: Sample,
    engine: Engine | None,
    should_stop: ShouldStop,
) -> Measured:
    """Asks and times; `engine` is None for the extractive distiller alone.

    Raises ModelError where the model does not load, EngineError where the engine dies for good, Interrupted.
    """
    if engine is None:
        judged = judge_engine(config, config.engine, sample, should_stop)
        rate = judged.objects.timed / max(judged.objects.seconds, 1e-9)
        return _cell(config, changes, judged.objects, judged.claims, Pace(1 / rate, UNKNOWN_ERROR), None, 0.0, {})
    meters = MeteredEngine(engine), MeteredEngine(engine)
    pairs: list[Any] = []
    findings: list[Any] = []
    objects = ask_objects(config, config.engine, meters[0], sample.rows, pairs, findings, should_stop)
    claims = ask_claims(config, meters[1], sample, findings, should_stop)
    load_s = meters[0].answered_at[0] - meters[0].submitted_at[0]
    of_claims = _pace(meters[1]) if claims.n >= MIN_SAMPLE else None
    return _cell(config, changes, objects, claims, _pace(meters[0]), of_claims, load_s, engine.record())


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds a first answer while the window is full, and the relative half width of their 95% interval."""

    answer_s: float
    error: float


def _pace(meter: MeteredEngine) -> Pace:
    """The first answer loaded the model and compiled the grammar: it does not count."""
    rate, error = steady_rate(meter.submitted_at[1:], meter.answered_at[1:], meter.window)
    return Pace(1 / rate, error)


def _cell(
    config: Config,
    changes: Changes,
    objects: Tally,
    claims: Tally,
    of_objects: Pace,
    of_claims: Pace | None,
    load_s: float,
    runs: dict[str, Any],
) -> Measured:
    per_exchange_s = of_objects.answer_s * _requests(config, objects)
    error = of_objects.error
    tokens_in, tokens_out, answers_s = objects.tokens_in, objects.tokens_out, of_objects.answer_s * objects.n
    if of_claims is not None:
        share = claims.n / objects.n
        per_exchange_s += share * of_claims.answer_s * _requests(config, claims)
        error = max(error, of_claims.error)
        tokens_in, tokens_out = tokens_in + claims.tokens_in, tokens_out + claims.tokens_out
        answers_s += of_claims.answer_s * claims.n
    verdict, reasons = judge(objects, config.gate)
    if claims.n:
        other, why = judge(claims, config.gate)
        verdict, reasons = max(verdict, other, key=VERDICTS.index), [*reasons, *(f"claims: {one}" for one in why)]
    counted = ("invented", "mangled", "dropped", "absence", "bloat", "secrets", "schema_failures")
    return Measured(
        changes=changes,
        n=objects.n,
        windows=claims.n,
        exchanges_s=1 / per_exchange_s,
        error=error,
        tokens_in_s=tokens_in / answers_s,
        tokens_out_s=tokens_out / answers_s,
        hours_per_million=per_exchange_s * MILLION_H,
        load_s=load_s,
        verdict=verdict,
        reasons=reasons,
        density=objects.density,
        runs=runs,
        **{name: getattr(objects, name) + getattr(claims, name) for name in counted},
    )


def _requests(config: Config, tally: Tally) -> float:
    """Requests an item: who fails is asked once more."""
    return 1 + (tally.schema_failures / tally.n if config.distill.max_attempts > 1 else 0.0)
