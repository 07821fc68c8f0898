"""The distill stage: exchange rows in, one palace object a row out, whatever the engine does.

The loop keeps the engine's window full across shard borders: shards are opened one after the other as room appears
and come out as they complete, in any order. Per shard, rows of equal content are asked about once. A row goes down
the ladder llm -> (one retry that names the reason) -> extractive -> raw, and what a row gets depends on that row and
the answers alone, never on window, order or neighbours. Deliberately absent: files and manifests (the caller
publishes shards) and the gate.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from backfill.answers import AnswerLog, Key
from backfill.config import DistillConfig, EngineConfig
from backfill.distill_shard import DistilledShard, OpenShard, ShardStats
from backfill.engines import engine_identity
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.supervised import ENGINE_DEATH
from backfill.errors import Interrupted
from backfill.extractive import Candidate, candidates, extractive_fingerprint
from backfill.fidelity.checks import check_object
from backfill.ids import fingerprint as fingerprint_of
from backfill.prompts import Prompt, build_prompt, prompt_digest
from backfill.schema import WIRE_SCHEMA, Rejection, expand, schema_digest
from backfill.toolpaths import files_touched
from backfill.types import Exchange, FileTouched, PalaceObject

__all__ = ["DistilledShard", "ShardStats", "distill", "distill_fingerprint"]

STAGE_VERSION = 1
POLL_S = 0.5
DRAIN_S = 30.0
# Findings of these kinds refuse an object; others stay on it for its reader.
REFUSING = frozenset({"invented", "mangled", "context_mismatch"})


def distill_fingerprint(config: DistillConfig, engine: EngineConfig) -> str:
    """What decides an object: stage, engine, prompt, schema and min_tokens; not the generation, no host or size."""
    if engine.kind == "extractive":
        return extractive_fingerprint(config.min_tokens)
    return fingerprint_of(
        {
            "stage": "distill",
            "version": STAGE_VERSION,
            "engine": engine_identity(engine),
            "prompt": prompt_digest(config.prompt_tokens),
            "schema": schema_digest(),
            "attempts": config.max_attempts,
            "min_tokens": config.min_tokens,
        }
    )


def distill(
    shards: Iterable[tuple[str, Sequence[Exchange]]],
    config: DistillConfig,
    *,
    fingerprint: str,
    engine: Engine | None = None,
    max_new_tokens: int = 256,
    log: AnswerLog | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    drain_s: float = DRAIN_S,
) -> Iterator[DistilledShard]:
    """Yields shards as they complete, perhaps out of order; `engine` None distills by extraction alone.

    The caller closes engine and log. Once `should_stop` says so nothing more is asked, answers in flight are awaited
    for at most `drain_s` and logged, shards completed by then are yielded, and Interrupted is raised. Raises
    EngineError where the engine dies beyond repair, ModelError where it does not load.
    """
    if engine is None:
        for name, rows in shards:
            if should_stop():
                raise Interrupted("stopped while distilling", hint="the same command resumes")
            yield _extract_shard(name, rows, config, fingerprint)
        return
    loop = _Loop(shards, config, fingerprint, engine, max_new_tokens, log, should_stop, drain_s)
    try:
        yield from loop.run()
    finally:
        if log is not None:
            log.sync()


def _extract_shard(name: str, rows: Sequence[Exchange], config: DistillConfig, fingerprint: str) -> DistilledShard:
    shard = OpenShard(name, rows, config, fingerprint)
    for i in range(len(rows)):
        shard.fall(i)
    return shard.done()


@dataclass(slots=True)
class _Job:
    """One content of one shard: the rows that share it, what was asked, and how often."""

    shard: OpenShard
    rows: list[int]
    spans: list[Candidate]
    files: tuple[FileTouched, ...]
    attempt: int = 0
    budget_tokens: int = 0
    prompt: Prompt | None = None
    key: Key | None = None


class _Loop:
    """Feeds an engine and takes its answers, until all shards are complete."""

    def __init__(
        self,
        shards: Iterable[tuple[str, Sequence[Exchange]]],
        config: DistillConfig,
        fingerprint: str,
        engine: Engine,
        max_new_tokens: int,
        log: AnswerLog | None,
        should_stop: Callable[[], bool],
        drain_s: float,
    ) -> None:
        self._config = config
        self._fingerprint = fingerprint
        self._engine = engine
        self._max_new_tokens = max_new_tokens
        self._log = log
        self._should_stop = should_stop
        self._drain_s = drain_s
        self._jobs = self._open_jobs(shards)
        self._again: deque[tuple[_Job, str]] = deque()
        self._asked: dict[int, _Job] = {}
        self._finished: deque[OpenShard] = deque()
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

    def _open_jobs(self, shards: Iterable[tuple[str, Sequence[Exchange]]]) -> Iterator[_Job]:
        for name, rows in shards:
            shard = OpenShard(name, rows, self._config, self._fingerprint)
            groups = shard.groups()
            if not groups:
                self._finished.append(shard)
            for group in groups:
                lead = rows[group[0]]
                yield _Job(
                    shard, group, candidates(lead), files_touched(lead), budget_tokens=self._config.prompt_tokens
                )

    def _ask(self, job: _Job, refusal: str) -> None:
        """Sends a job's next attempt, or takes the answer that the log has for it."""
        lead = job.shard.rows[job.rows[0]]
        job.attempt += 1
        job.prompt = build_prompt(lead, job.spans, budget_tokens=job.budget_tokens, refusal=refusal)
        text = job.prompt.system + "\0" + job.prompt.user
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        job.key = (lead.content_id, job.attempt, digest)
        known = self._log.get(job.key) if self._log else None
        if known is not None:
            job.shard.counts["replayed"] += 1
            self._judge(job, known)
            return
        self._number += 1
        self._asked[self._number] = job
        job.shard.counts["requests"] += 1
        job.shard.first_asked = job.shard.first_asked or time.monotonic()
        request = Request(self._number, job.prompt.system, job.prompt.user, WIRE_SCHEMA, self._max_new_tokens)
        self._engine.submit(request)

    def _take(self, answer: Answer) -> None:
        job = self._asked.pop(answer.key, None)
        if job is None or job.key is None:
            return  # an answer that nobody waits for: the engine's defect, and harmless
        shard = job.shard
        shard.last_answered = time.monotonic()
        shard.counts["tokens_in"] += answer.tokens_in
        shard.counts["tokens_out"] += answer.tokens_out
        shard.counts["tokens_cached"] += answer.tokens_cached
        if self._log is not None and not answer.error:
            self._log.add(job.key, answer)
        self._judge(job, answer)

    def _judge(self, job: _Job, answer: Answer) -> None:
        """Turns an answer into objects, or sends the job back or down."""
        shard, lead = job.shard, job.rows[0]
        made = self._object(job, lead, answer)
        if isinstance(made, Rejection):
            shard.failures[made.reason] += 1
            if job.attempt < self._config.max_attempts and made.reason != ENGINE_DEATH:
                shard.counts["retries"] += 1
                if made.reason == "engine_error":
                    job.budget_tokens //= 2  # a prompt that was too long for the model fits at half the size
                self._again.append((job, f"{made.reason}: {made.detail}"[:200]))
                return
            for i in job.rows:
                shard.fall(i)
        else:
            shard.settle(lead, made)
            for i in job.rows[1:]:
                twin = self._object(job, i, answer)
                if isinstance(twin, Rejection):
                    shard.fall(i)
                else:
                    shard.settle(i, twin)
        if shard.complete:
            self._finished.append(shard)

    def _object(self, job: _Job, i: int, answer: Answer) -> PalaceObject | Rejection:
        """The object that an answer gives for row `i`, checked against that row."""
        if answer.error:
            return Rejection(ENGINE_DEATH if answer.error == ENGINE_DEATH else "engine_error", answer.error)
        if answer.finish_reason == "length":
            return Rejection("truncated", "the answer is too long")
        row = job.shard.rows[i]
        listed = job.spans[: job.prompt.n_candidates if job.prompt else 0]
        files = job.files if i == job.rows[0] else files_touched(row)
        made = expand(
            answer.text, row, listed, files, generation=self._config.generation, fingerprint=self._fingerprint
        )
        if isinstance(made, Rejection):
            return made
        findings = check_object(made, row)
        worst = next((f for f in findings if f.kind in REFUSING), None)
        if worst is not None:
            return Rejection(worst.kind, f"{worst.handle} does not stand in the exchange")
        return replace(made, findings=(*made.findings, *findings))
