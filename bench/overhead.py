"""What the distill stage costs around an engine: the scripted engine answers at once.

Exchange rows of the sample transcripts with prompts of at most 512 tokens, made distinct by a word in front, go through
everything a worker does: candidates, prompt, tokenising (SmolLM2's tokenizer, as the engine's process does it), parse,
checks against the source with one retry, secrets, the synced answer log, and the shard's Parquet file. One process and
two, each with rows of its own. Value: exchanges a second of two processes by the clock, from the begin of the first
stage to the end of the last: both have rows and tokenizer ready and wait for each other first, as a run of hours pays
for neither. Words come again more often than in months of sessions (docs/performance.md has real ones, each once).
Limit: tokenising alone. Goal: 1,000.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from backfill import tables
from backfill.answers import AnswerLog
from backfill.config import DistillConfig, EngineConfig, ScanConfig
from backfill.distill import distill
from backfill.engines.base import Request
from backfill.engines.prompt_tokens import PromptTokens
from backfill.engines.scripted import ScriptedEngine
from backfill.types import Exchange
from backfill.weights import smollm2_dir
from bench.harness import Result, take_turns

GOAL = 1000.0
PROMPT_TOKENS = 512
SHARD = 512
_START_S = 300.0

_start: list[Barrier] = []


@dataclass(frozen=True, slots=True)
class Stage:
    """A worker's stage: when it began and ended (seconds of the machine's monotonic clock), and its CPU seconds."""

    began: float
    ended: float
    cpu_s: float


class TokenisingEngine(ScriptedEngine):
    """The scripted engine, which tokenises first as a real one must."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._tokens = PromptTokens(_tokenizer())

    def submit(self, request: Request) -> None:
        self._tokens.ids(request.system, request.user)
        super().submit(request)


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_dir())


def run(quick: bool) -> Result:
    """Measures exchanges/s; see the module."""
    n, runs = (SHARD // 2, 2) if quick else (SHARD, 3)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, _share, (context.Barrier(2),)) as pool:
        pool.map(_together, [(0, 32), (1, 32)], chunksize=1)

        def processes(count: int) -> float:
            turn[0] += 1
            jobs = [(turn[0] * 10 + i, n) for i in range(count)]
            stages = pool.map(_together if count > 1 else staged, jobs, chunksize=1)
            return count * n / (max(stage.ended for stage in stages) - min(stage.began for stage in stages))

        turn = [0]
        cpu: list[float] = []

        def busy() -> float:
            turn[0] += 1
            cpu.append(n / pool.map(once, [(turn[0] * 10, n)], chunksize=1)[0])
            return cpu[-1]

        subjects = {
            "two processes": lambda: processes(2),
            "one process": lambda: processes(1),
            "one process, a CPU second": busy,
            "tokenising alone, a CPU second": lambda: pool.map(_tokenised, [(turn[0], n)])[0],
        }
        spread = take_turns(subjects, runs)
    value = spread["two processes"].median
    return Result(
        name="overhead",
        value=value,
        unit="exchanges/s",
        peers={name: s.median for name, s in spread.items() if name != "two processes"},
        limit="tokenising alone",
        ratio=value / GOAL,
        goal=f">= {GOAL:g} exchanges/s on two cores",
        met=value >= GOAL,
        spread=spread,
        notes=f"prompts of at most {PROMPT_TOKENS} tokens, {n} exchanges a process, objects",
    )


def distinct_rows(seed: int, n: int) -> list[Exchange]:
    """`n` rows of the sample transcripts; past the end they come again with a word in front, new to any cache."""
    from bench.distill import sample_rows

    rows = [row for row in sample_rows(ScanConfig()) if row.tokens_est >= DistillConfig().min_tokens]
    return [_marked(rows[i % len(rows)], f"{seed}-{i // len(rows)}") for i in range(n)]


def _marked(row: Exchange, mark: str) -> Exchange:
    from backfill.ids import content_id, exchange_id

    text = f"Take {mark}. {row.user_text}"
    content = content_id(text, row.agent_text, row.part, row.tools)
    return replace(row, user_text=text, content_id=content, exchange_id=exchange_id(content, row.prev_content_id))


def once(job: tuple[int, int]) -> float:
    """CPU seconds of one worker over rows of its own."""
    return staged(job).cpu_s


def _share(start: Barrier) -> None:
    """Gives a process what the others wait at too."""
    _start.append(start)


def _together(job: tuple[int, int]) -> Stage:
    """As `staged`, begun when the other process is ready too."""
    return staged(job, _start[0])


def staged(job: tuple[int, int], start: Barrier | None = None) -> Stage:
    """One worker's stage over rows of its own."""
    seed, n = job
    rows = distinct_rows(seed, n)
    config = DistillConfig(prompt_tokens=PROMPT_TOKENS)
    engine: Any = TokenisingEngine(EngineConfig(kind="scripted", window=256))
    shards: Sequence[tuple[str, Sequence[Exchange]]] = [
        (str(at), rows[at : at + SHARD]) for at in range(0, len(rows), SHARD)
    ]
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        if start is not None:
            start.wait(_START_S)
        began, cpu_s = time.monotonic(), time.process_time()
        with AnswerLog(Path(folder) / "answers.jsonl", "f" * 32) as log:
            for shard in distill(shards, config, fingerprint="f" * 32, engine=engine, log=log):
                tables.write_table(tables.OBJECTS, shard.objects, Path(folder) / f"{shard.name}.parquet")
        return Stage(began, time.monotonic(), time.process_time() - cpu_s)


def _tokenised(job: tuple[int, int]) -> float:
    """Prompts a CPU second of the tokenizer alone."""
    from tokenizers import Tokenizer

    from backfill.extractive import candidates
    from backfill.prompts import build_prompt

    tokenizer = Tokenizer.from_file(str(smollm2_dir() / "tokenizer.json"))
    prompts = [build_prompt(row, candidates(row), budget_tokens=PROMPT_TOKENS) for row in distinct_rows(*job)]
    began = time.process_time()
    for prompt in prompts:
        tokenizer.encode(f"{prompt.system}\n{prompt.user}")
    return len(prompts) / (time.process_time() - began)
