"""The distill stage: exchange rows in, one palace object a row out, whatever the engine does.

The loop keeps the engine's window full across shard borders: shards are opened one after the other as room appears
and come out as they complete, in any order. Per shard, rows of equal content are asked about once. A row goes down
the ladder llm -> (one retry that names the reason) -> extractive -> raw, and what a row gets depends on that row and
the answers alone, never on window, order or neighbours. Deliberately absent: files and manifests (the caller
publishes shards) and the gate.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from backfill.answers import AnswerLog, Key
from backfill.claim_jobs import ClaimJob, OpenClaims
from backfill.claim_prompt import claims_digest
from backfill.config import DistillConfig, EngineConfig
from backfill.distill_jobs import Job, ObjectJob, Shard
from backfill.distill_shard import DistilledShard, OpenShard, ShardStats
from backfill.engines import engine_identity
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.supervised import ENGINE_DEATH
from backfill.errors import Interrupted
from backfill.extractive import candidates, extractive_fingerprint
from backfill.extractive_claims import EXTRACTIVE_CLAIMS_VERSION, claims_fingerprint_extractive
from backfill.fidelity.answers import Privacy, redact_answer
from backfill.ids import fingerprint as fingerprint_of
from backfill.made_before import MadeBefore
from backfill.privacy import Redactor
from backfill.prompts import prompt_digest
from backfill.rundir import CLAIMS, OBJECT
from backfill.schema import schema_digest
from backfill.toolpaths import files_touched
from backfill.types import Exchange
from backfill.windows import WINDOWS_VERSION, Windows

__all__ = ["DistilledShard", "ShardStats", "claims_fingerprint", "distill", "distill_fingerprint"]

# Raised by hand where what an answer becomes changes: checks, redaction, what is retried.
STAGE_VERSION = 4
CLAIMS_STAGE_VERSION = 2
POLL_S = 0.5
DRAIN_S = 30.0


def distill_fingerprint(config: DistillConfig, engine: EngineConfig) -> str:
    """What decides an object: stage, engine, prompt, schema and min_tokens; not the generation, no host or size."""
    if engine.kind == "extractive":
        return extractive_fingerprint(config.min_tokens)
    return fingerprint_of(distill_parts(config, engine))


def distill_parts(config: DistillConfig, engine: EngineConfig) -> dict[str, Any]:
    """What the fingerprint of an object with an LLM engine is made of, by name."""
    return {
        "stage": "distill",
        "version": STAGE_VERSION,
        "engine": engine_identity(engine),
        "prompt": prompt_digest(config.prompt_tokens, config.prompt, config.context),
        "schema": schema_digest(config.context),
        "attempts": config.max_attempts,
        "min_tokens": config.min_tokens,
    }


def claims_fingerprint(config: DistillConfig, engine: EngineConfig) -> str:
    """What decides a claim: as for objects, with the claims' own prompt and schema, so that either changes alone."""
    if engine.kind == "extractive":
        return claims_fingerprint_extractive(config.min_tokens)
    return fingerprint_of(claims_parts(config, engine))


def claims_parts(config: DistillConfig, engine: EngineConfig) -> dict[str, Any]:
    """What the fingerprint of a claim with an LLM engine is made of, by name."""
    return {
        "stage": "claims",
        "versions": [CLAIMS_STAGE_VERSION, WINDOWS_VERSION, EXTRACTIVE_CLAIMS_VERSION],
        "engine": engine_identity(engine),
        "prompt": claims_digest(config.prompt_tokens),
        "attempts": config.max_attempts,
        "min_tokens": config.min_tokens,
        "max_new_tokens": config.claims_max_new_tokens,
    }


def distill(
    shards: Iterable[tuple[str, Sequence[Exchange] | Windows]],
    config: DistillConfig,
    *,
    fingerprint: str,
    claims_fingerprint: str = "",
    engine: Engine | None = None,
    max_new_tokens: int = 256,
    log: AnswerLog | None = None,
    claims_log: AnswerLog | None = None,
    privacy: Privacy = "secrets",
    before: MadeBefore | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    drain_s: float = DRAIN_S,
) -> Iterator[DistilledShard]:
    """Yields shards as they complete, perhaps out of order; `engine` None distills by extraction alone.

    A shard is a sequence of exchange rows, which get objects, or `Windows`, which get claims. `privacy` is that of
    `ScanConfig`: answers pass the same redactor as transcripts do. `before` is asked before the engine is. The caller
    closes engine and logs. Once `should_stop` says so nothing more is asked, answers in flight are awaited for at most
    `drain_s` and logged, shards completed by then are yielded, and Interrupted is raised. Raises EngineError where the
    engine dies beyond repair, ModelError where it does not load.
    """
    if engine is None:
        for name, rows in shards:
            if should_stop():
                raise Interrupted("stopped while distilling", hint="the same command resumes")
            yield _extract_shard(name, rows, config, fingerprint, claims_fingerprint)
        return
    logs = {OBJECT: log, CLAIMS: claims_log}
    loop = _Loop(
        shards,
        config,
        fingerprint,
        claims_fingerprint,
        engine,
        max_new_tokens,
        logs,
        privacy,
        before,
        should_stop,
        drain_s,
    )
    try:
        yield from loop.run()
    finally:
        for each in logs.values():
            if each is not None:
                each.sync()


def _extract_shard(
    name: str, rows: Sequence[Exchange] | Windows, config: DistillConfig, fingerprint: str, claims_fingerprint: str
) -> DistilledShard:
    shard: OpenShard | OpenClaims
    if isinstance(rows, Windows):
        shard = OpenClaims(name, rows, config, claims_fingerprint)
    else:
        shard = OpenShard(name, rows, config, fingerprint)
    for i in range(len(rows)):
        shard.fall(i)
    return shard.done()


class _Loop:
    """Feeds an engine and takes its answers, until all shards are complete."""

    def __init__(
        self,
        shards: Iterable[tuple[str, Sequence[Exchange] | Windows]],
        config: DistillConfig,
        fingerprint: str,
        claims_fingerprint: str,
        engine: Engine,
        max_new_tokens: int,
        logs: dict[str, AnswerLog | None],
        privacy: Privacy,
        before: MadeBefore | None,
        should_stop: Callable[[], bool],
        drain_s: float,
    ) -> None:
        self._config = config
        self._fingerprint = fingerprint
        self._claims_fingerprint = claims_fingerprint
        self._engine = engine
        self._max_new_tokens = max_new_tokens
        self._logs = logs
        self._redactor = Redactor(privacy)
        self._before = before
        self._should_stop = should_stop
        self._drain_s = drain_s
        self._jobs = self._open_jobs(shards)
        self._again: deque[tuple[Job, str]] = deque()
        self._asked: dict[int, tuple[tuple[str, Key], list[Job]]] = {}
        self._in_flight: dict[tuple[str, Key], int] = {}
        self._finished: deque[Shard] = deque()
        self._number = 0

    def run(self) -> Iterator[DistilledShard]:
        while True:
            if self._should_stop():
                yield from self._drain()
                raise Interrupted("stopped while distilling", hint="the same command resumes")
            fed_all = self._feed()
            while self._finished:
                yield self._finished.popleft().done()
            if self._asked:
                for answer in self._engine.poll(POLL_S):
                    self._take(answer)
            elif fed_all and not self._again and not self._finished:
                return

    def _feed(self) -> bool:
        """Asks until the window is full, a shard is done, or nothing is left (True)."""
        while len(self._asked) < self._engine.window and not self._finished and not self._should_stop():
            if self._again:
                job, refusal = self._again.popleft()
            else:
                fresh = next(self._jobs, None)
                if fresh is None:
                    return True
                job, refusal = fresh, ""
            self._ask(job, refusal)
        return False

    def _drain(self) -> Iterator[DistilledShard]:
        deadline = time.monotonic() + self._drain_s
        while self._asked and (left_s := deadline - time.monotonic()) > 0:
            for answer in self._engine.poll(min(POLL_S, left_s)):
                self._take(answer)
        while self._finished:
            yield self._finished.popleft().done()

    def _open_jobs(self, shards: Iterable[tuple[str, Sequence[Exchange] | Windows]]) -> Iterator[Job]:
        for name, rows in shards:
            if isinstance(rows, Windows):
                yield from self._open_claims(name, rows)
            else:
                yield from self._open_objects(name, rows)

    def _open_objects(self, name: str, rows: Sequence[Exchange]) -> Iterator[Job]:
        config, print_ = self._config, self._fingerprint
        shard = OpenShard(name, rows, config, print_)
        groups = [group for group in shard.groups() if not self._had_objects(shard, group)]
        if not groups:
            self._finished.append(shard)
        for group in groups:
            lead = rows[group[0]]
            spans, files = candidates(lead), files_touched(lead)
            yield ObjectJob(shard, group, spans, files, config, print_, self._max_new_tokens, config.prompt_tokens)

    def _open_claims(self, name: str, windows: Windows) -> Iterator[Job]:
        config, print_ = self._config, self._claims_fingerprint
        shard = OpenClaims(name, windows, config, print_)
        asked = [place for place in shard.eligible() if not self._had_claims(shard, place)]
        if not asked:
            self._finished.append(shard)
        for place in asked:
            yield ClaimJob(shard, place, config, print_, config.prompt_tokens)

    def _had_objects(self, shard: OpenShard, group: list[int]) -> bool:
        """Settles rows of one content with what a bundle has of them."""
        rows = [shard.rows[i] for i in group]
        had = self._before.objects_of(rows, self._config.generation) if self._before else None
        for i, made in zip(group, had or (), strict=False):
            shard.settle(i, made)
            shard.counts["cached"] += 1
        return had is not None

    def _had_claims(self, shard: OpenClaims, place: int) -> bool:
        """Settles a window with the claims that a bundle has of it."""
        had = self._before.claims_of(shard.rows[place], self._config.generation) if self._before else None
        if had is not None:
            shard.settle(place, had, "llm")
            shard.counts["cached"] += 1
        return had is not None

    def _ask(self, job: Job, refusal: str) -> None:
        """Sends a job's next attempt, or takes the answer that the log has for it."""
        ask = job.ask(refusal)
        log, same = self._logs[job.product], (job.product, ask.key)
        known = log.get(ask.key) if log else None
        if known is not None:
            job.shard.counts["replayed"] += 1
            self._judge(job, known)
            return
        if same in self._in_flight:
            self._asked[self._in_flight[same]][1].append(job)
            job.shard.counts["shared"] += 1
            return
        self._number += 1
        self._asked[self._number] = (same, [job])
        self._in_flight[same] = self._number
        job.shard.counts["requests"] += 1
        job.shard.first_asked = job.shard.first_asked or time.monotonic()
        self._engine.submit(Request(self._number, ask.system, ask.user, ask.schema, ask.max_tokens))

    def _take(self, answer: Answer) -> None:
        waiting = self._asked.pop(answer.key, None)
        if waiting is None:
            return  # an answer that nobody waits for: the engine's defect, and harmless
        (product, key), jobs = waiting
        del self._in_flight[product, key]
        answer = self._redacted(answer)
        shard = jobs[0].shard
        shard.counts["tokens_in"] += answer.tokens_in
        shard.counts["tokens_out"] += answer.tokens_out
        shard.counts["tokens_cached"] += answer.tokens_cached
        log = self._logs[product]
        if log is not None and not answer.error:
            log.add(key, answer)
        for job in jobs:
            job.shard.last_answered = time.monotonic()
            job.shard.first_asked = job.shard.first_asked or job.shard.last_answered
            self._judge(job, answer)

    def _redacted(self, answer: Answer) -> Answer:
        """The answer without secrets, before anything is logged or stored: a model may make up what looks like one."""
        text = redact_answer(answer.text, self._redactor)
        return answer if text == answer.text else replace(answer, text=text)

    def _judge(self, job: Job, answer: Answer) -> None:
        """Turns an answer into rows, or sends the job back or down."""
        shard = job.shard
        refusal = job.judge(answer)
        if refusal is not None:
            shard.failures[refusal.reason] += 1
            if job.attempt < self._config.max_attempts and refusal.reason != ENGINE_DEATH:
                shard.counts["retries"] += 1
                if refusal.reason == "engine_error":
                    job.shrink()  # a prompt that was too long for the model fits at half the size
                self._again.append((job, f"{refusal.reason}: {refusal.detail}"[:200]))
                return
            job.fall()
        if shard.complete:
            self._finished.append(shard)
