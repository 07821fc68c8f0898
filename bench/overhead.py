"""What the distill stage costs around an engine: the scripted engine answers at once.

Exchange rows of the sample transcripts with prompts of at most 512 tokens, made distinct by a word in front, go through
everything a worker does: candidates, prompt, tokenising (SmolLM2's tokenizer, as the engine's process does it), parse,
checks against the source with one retry, secrets, the synced answer log, and the shard's Parquet file. One process and
two, each with rows of its own. Value: exchanges a second of two processes by the clock; limit: tokenising alone. Goal:
1,000.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
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
from bench.harness import Result, take_turns, timed

GOAL = 1000.0
PROMPT_TOKENS = 512
SHARD = 512


class TokenisingEngine(ScriptedEngine):
    """The scripted engine, which tokenises first as a real one must."""

    def __init__(self, config: EngineConfig) -> None:
        from transformers import AutoTokenizer

        super().__init__(config)
        self._tokens = PromptTokens(AutoTokenizer.from_pretrained(smollm2_dir()))

    def submit(self, request: Request) -> None:
        self._tokens.ids(request.system, request.user)
        super().submit(request)


def run(quick: bool) -> Result:
    """Measures exchanges/s; see the module."""
    n, runs = (SHARD // 8, 2) if quick else (SHARD, 3)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(once, [(0, 32), (1, 32)], chunksize=1)

        def processes(count: int) -> float:
            turn[0] += 1
            jobs = [(turn[0] * 10 + i, n) for i in range(count)]
            return count * n / timed(lambda: pool.map(once, jobs, chunksize=1))

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
    seed, n = job
    rows = distinct_rows(seed, n)
    config = DistillConfig(prompt_tokens=PROMPT_TOKENS)
    engine: Any = TokenisingEngine(EngineConfig(kind="scripted", window=256))
    shards: Sequence[tuple[str, Sequence[Exchange]]] = [
        (str(at), rows[at : at + SHARD]) for at in range(0, len(rows), SHARD)
    ]
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        began = time.process_time()
        with AnswerLog(Path(folder) / "answers.jsonl", "f" * 32) as log:
            for shard in distill(shards, config, fingerprint="f" * 32, engine=engine, log=log):
                tables.write_table(tables.OBJECTS, shard.objects, Path(folder) / f"{shard.name}.parquet")
        return time.process_time() - began


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
