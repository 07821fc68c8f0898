"""The distill stage on a real engine, against `LLM.generate` on the same prompts.

Both sides run vLLM with the settings of configs/cpu.yaml in processes of their own, loaded once before the clock
starts, with the same schema and sampling, one attempt an exchange. They take turns over chunks of exchanges that
neither has seen, so prefix caches help both alike. Ours counts everything from exchange rows to checked objects; the
peer gets token ids ready made and returns texts. Its rate is also the limit: the stage cannot beat the engine it
drives except by keeping it fuller. Goal: at least 0.97 of the peer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from backfill.config import Config, ScanConfig, load_config
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.engines.model_files import local_model
from backfill.engines.vllm import engine_environment
from backfill.extractive import candidates
from backfill.prompts import build_prompt
from backfill.schema import WIRE_SCHEMA
from backfill.sources import read_unit
from backfill.types import Exchange
from bench.harness import Result, take_turns, timed

GOAL = 0.97
ROOT = Path(__file__).resolve().parents[1]
MAX_NEW_TOKENS = 48


def run(quick: bool) -> Result:
    """Measures exchanges/s; see the module."""
    config = load_config(ROOT / "configs" / "cpu.yaml")
    config = replace(
        config,
        engine=replace(config.engine, max_new_tokens=MAX_NEW_TOKENS),
        distill=replace(config.distill, max_attempts=1, prompt_tokens=384),
    )
    runs, size = (2, 8) if quick else (4, 12)
    rows = [row for row in sample_rows(config.scan) if row.tokens_est >= config.distill.min_tokens]
    chunks = _chunks(rows, size, runs + 1)
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        engine = make_engine(config.engine, log_path=Path(folder) / "ours.log")
        peer = Peer(config, Path(folder) / "peer.log")
        ours, theirs = iter(chunks), iter(chunks)

        def stage() -> float:
            chunk = next(ours)
            work = distill(
                [("chunk", chunk)], config.distill, fingerprint="", engine=engine, max_new_tokens=MAX_NEW_TOKENS
            )
            return len(chunk) / timed(lambda: list(work))

        def generate() -> float:
            chunk = next(theirs)
            return len(chunk) / peer.seconds([_messages(row, config) for row in chunk])

        try:
            spread = take_turns({"distill stage": stage, "LLM.generate": generate}, runs)
        finally:
            engine.close()
            peer.close()
    value, against = spread["distill stage"].median, spread["LLM.generate"].median
    return Result(
        name="distill",
        value=value,
        unit="exchanges/s",
        peers={"LLM.generate": against},
        limit="the engine itself: LLM.generate on token ids",
        ratio=value / against,
        goal=f">= {GOAL} of LLM.generate",
        met=value >= GOAL * against,
        spread=spread,
        notes=f"{config.engine.model}, {size} exchanges a run, {MAX_NEW_TOKENS} new tokens, outlines",
    )


def sample_rows(config: ScanConfig) -> list[Exchange]:
    """The exchanges of the sample transcripts, in the order of their files."""
    rows: dict[bytes, Exchange] = {}
    for path in sorted((ROOT / "samples" / "transcripts").rglob("*.jsonl")):
        for row in read_unit(path, path.name, path.stat().st_size, config).exchanges:
            rows.setdefault(row.content_id, row)
    return list(rows.values())


def _chunks(rows: Sequence[Exchange], size: int, n: int) -> list[list[Exchange]]:
    """`n` chunks of different texts: past the end the rows come again with a word in front, new to any cache."""

    def endless() -> Iterator[Exchange]:
        lap = 0
        while True:
            for row in rows:
                yield replace(row, user_text=f"{lap} {row.user_text}") if lap else row
            lap += 1

    stream = endless()
    return [[next(stream) for _ in range(size)] for _ in range(n)]


def _messages(row: Exchange, config: Config) -> list[dict[str, str]]:
    prompt = build_prompt(row, candidates(row), budget_tokens=config.distill.prompt_tokens)
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


class Peer:
    """A process that answers each line of conversations with the seconds that `LLM.generate` took."""

    def __init__(self, config: Config, log: Path) -> None:
        settings = msgspec.to_builtins(config.engine) | {"directory": str(local_model(config.engine.model))}
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.distill", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=engine_environment(config.engine),
                cwd=ROOT,
                text=True,
            )
        self._log = log

    def seconds(self, conversations: list[list[dict[str, str]]]) -> float:
        """Seconds of one `LLM.generate`, tokenising not counted. Raises RuntimeError where the process is gone."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        self._process.stdin.write(json.dumps(conversations) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("SECONDS "):
                return float(line.split()[1])
        raise RuntimeError(f"the peer ended: {self._log.read_text()[-2000:]}")

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def serve_peer(settings: dict[str, Any]) -> None:
    """What the peer process runs: plain vLLM, nothing of ours."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(
        model=settings["directory"],
        dtype="float32",
        enforce_eager=True,
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        structured_outputs_config={"backend": settings["structured_backend"]},
    )
    tokenizer = llm.get_tokenizer()
    params = SamplingParams(
        temperature=0,
        max_tokens=settings["max_new_tokens"],
        structured_outputs=StructuredOutputsParams(json=WIRE_SCHEMA),
    )
    for line in sys.stdin:
        prompts = [
            {"prompt_token_ids": list(tokenizer.apply_chat_template(c, add_generation_prompt=True, return_dict=False))}
            for c in json.loads(line)
        ]
        took_s = timed(lambda prompts=prompts: llm.generate(prompts, params, use_tqdm=False))  # type: ignore[misc]
        print(f"SECONDS {took_s}", flush=True)


if __name__ == "__main__":
    serve_peer(json.loads(sys.argv[1]))
