"""The distill stage on a real engine, against what a user would write on the same prompts.

Both sides run vLLM with the settings of configs/cpu.yaml in processes of their own, loaded once before the clock
starts, with the same schema and sampling, one attempt an exchange. They take turns over the exchanges of files that
neither has seen, so prefix caches help both alike. Ours counts everything from exchange rows to checked objects.
Peers, in one process: `LLM.generate` gets the token ids of all files ready made and returns texts (its rate is also the
limit: the stage cannot beat the engine it drives except by keeping it fuller); a loop of one `LLM.chat` a file;
transformers' `generate` on all of them, padded, without a schema, which it does not know. Goals: at least 0.97 of
`LLM.generate`, 2 times the loop; transformers is reported.

`python -m bench.distill --against-generate` compares with `LLM.generate` alone, over all samples a turn: of
a few exchanges, the first and last answers of a turn are most.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from backfill.config import Config, ScanConfig, load_config
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.engines.model_files import local_model
from backfill.engines.vllm import engine_environment
from backfill.errors import EngineError
from backfill.extractive import candidates
from backfill.prompts import build_prompt
from backfill.schema import WIRE_SCHEMA
from backfill.sources import read_unit
from backfill.types import Exchange
from bench.harness import Result, take_turns, timed

GOAL, LOOP_GOAL = 0.97, 2.0
ROOT = Path(__file__).resolve().parents[1]
MAX_NEW_TOKENS = 48
QUICK_EXCHANGES = 3  # of a file: transformers reads a prompt a second here
OURS = "distill stage"
PEERS = {"LLM.generate": "generate", "LLM.chat a file": "chat", "transformers generate": "transformers"}


def run(quick: bool) -> Result:
    """Measures exchanges/s; see the module."""
    config = load_config(ROOT / "configs" / "cpu.yaml")
    config = replace(
        config,
        engine=replace(config.engine, max_new_tokens=MAX_NEW_TOKENS),
        distill=replace(config.distill, max_attempts=1, prompt_tokens=192 if quick else 384),
    )
    runs, files = (1, 2) if quick else (4, 4)
    found = [file[:QUICK_EXCHANGES] if quick else file for file in sample_files(config)]
    chunks = _chunks(found, files, runs + 1)
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        engine = make_engine(config.engine, log_path=Path(folder) / "ours.log")
        peer = Peer(config, Path(folder) / "peer.log")
        queues = {name: iter(chunks) for name in (OURS, *PEERS)}

        def stage() -> float:
            chunk = [row for file in next(queues[OURS]) for row in file]
            work = distill(
                [("chunk", chunk)], config.distill, fingerprint="", engine=engine, max_new_tokens=MAX_NEW_TOKENS
            )
            return len(chunk) / timed(lambda: list(work))

        def asked(way: str) -> float:
            chunk = next(queues[way])
            asks = [[_messages(row, config) for row in file] for file in chunk]
            return sum(map(len, chunk)) / peer.seconds(PEERS[way], asks)

        subjects: dict[str, Callable[[], float]] = {OURS: stage}
        subjects |= {way: lambda way=way: asked(way) for way in PEERS}  # type: ignore[misc]
        try:
            spread = take_turns(subjects, runs)
        finally:
            engine.close()
            peer.close()
    value = spread[OURS].median
    against, loop, plain = (spread[name].median for name in PEERS)
    size = statistics.mean(sum(map(len, chunk)) for chunk in chunks)
    return Result(
        name="distill",
        value=value,
        unit="exchanges/s",
        peers={name: spread[name].median for name in PEERS},
        limit="the engine itself: LLM.generate on token ids",
        ratio=value / against,
        goal=f">= {GOAL} of LLM.generate, >= {LOOP_GOAL:g} of the LLM.chat loop",
        met=value >= GOAL * against and value >= LOOP_GOAL * loop,
        spread=spread,
        notes=f"{config.engine.model}, {size:.0f} exchanges of {files} files a run, {MAX_NEW_TOKENS} new tokens, "
        f"outlines; {value / loop:.2f} of the LLM.chat loop, {value / plain:.2f} of transformers",
    )


def sample_files(config: Config) -> list[list[Exchange]]:
    """The exchanges of the sample transcripts that an engine is asked about, by file."""
    known: set[bytes] = set()
    files = []
    for rows in _read_samples(config.scan):
        fresh = [r for r in rows if r.tokens_est >= config.distill.min_tokens and r.content_id not in known]
        known.update(row.content_id for row in fresh)
        files.append(fresh)
    return [file for file in files if file]


def sample_rows(config: ScanConfig) -> list[Exchange]:
    """The exchanges of the sample transcripts, in the order of their files."""
    rows: dict[bytes, Exchange] = {}
    for file in _read_samples(config):
        for row in file:
            rows.setdefault(row.content_id, row)
    return list(rows.values())


def _read_samples(config: ScanConfig) -> Iterator[list[Exchange]]:
    for path in sorted((ROOT / "samples" / "transcripts").rglob("*.jsonl")):
        yield list(read_unit(path, path.name, path.stat().st_size, config).exchanges)


def _chunks(files: Sequence[list[Exchange]], size: int, n: int) -> list[list[list[Exchange]]]:
    """`n` chunks of `size` files: past the end they come again with a word in front, new to any cache."""

    def endless() -> Iterator[list[Exchange]]:
        for lap in itertools.count():
            for file in files:
                yield [replace(row, user_text=f"{lap} {row.user_text}") if lap else row for row in file]

    stream = endless()
    return [[next(stream) for _ in range(size)] for _ in range(n)]


def _messages(row: Exchange, config: Config) -> list[dict[str, str]]:
    prompt = build_prompt(row, candidates(row), budget_tokens=config.distill.prompt_tokens)
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


class Peer:
    """A process that answers each line, a way and conversations by file, with the seconds that the way took."""

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

    def seconds(self, way: str, files: list[list[list[dict[str, str]]]]) -> float:
        """Seconds that one of `PEERS` took. Raises EngineError where the process is gone."""
        if self._process.stdin is None or self._process.stdout is None:
            raise EngineError("the peer has no pipes")
        self._process.stdin.write(json.dumps([way, files]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("SECONDS "):
                return float(line.split()[1])
        raise EngineError(f"the peer ended: {self._log.read_text()[-2000:]}")

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
        frequency_penalty=settings["frequency_penalty"],
        max_tokens=settings["max_new_tokens"],
        structured_outputs=StructuredOutputsParams(json=WIRE_SCHEMA),
    )
    plain: list[Any] = []  # loaded when it is first asked for, which is in the round that does not count
    for line in sys.stdin:
        way, files = json.loads(line)
        if way == "generate":
            asks = [c for file in files for c in file]
            ids = [tokenizer.apply_chat_template(c, add_generation_prompt=True, return_dict=False) for c in asks]
            prompts = [{"prompt_token_ids": list(one)} for one in ids]
            took_s = timed(lambda prompts=prompts: llm.generate(prompts, params, use_tqdm=False))  # type: ignore[misc]
        elif way == "chat":
            took_s = timed(lambda files=files: [llm.chat(file, params, use_tqdm=False) for file in files])  # type: ignore[misc]
        else:
            plain = plain or [_transformers(settings["directory"])]
            took_s = plain[0]([c for file in files for c in file], settings["max_new_tokens"])
        print(f"SECONDS {took_s}", flush=True)


def _transformers(directory: str) -> Callable[[list[Any], int], float]:
    """Seconds of transformers' own `generate` over conversations, tokenising included as in `LLM.chat`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def seconds(conversations: list[Any], max_new_tokens: int) -> float:
        def work() -> None:
            batch = tokenizer.apply_chat_template(
                conversations, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
            )
            with torch.inference_mode():
                model.generate(**batch, max_new_tokens=max_new_tokens, do_sample=False)

        return timed(work)

    return seconds


def against_generate(turns: int = 5) -> list[float]:
    """Rates of the distill stage as shares of `LLM.generate`'s, a turn each; who goes first alternates."""
    config = load_config(ROOT / "configs" / "cpu.yaml")
    config = replace(
        config,
        engine=replace(config.engine, max_new_tokens=MAX_NEW_TOKENS),
        distill=replace(config.distill, max_attempts=1, prompt_tokens=384),
    )
    found = sample_files(config)
    shares = []
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        engine = make_engine(config.engine, log_path=Path(folder) / "ours.log")
        peer = Peer(config, Path(folder) / "peer.log")

        def stage(rows: list[Exchange]) -> float:
            work = distill(
                [("chunk", rows)], config.distill, fingerprint="", engine=engine, max_new_tokens=MAX_NEW_TOKENS
            )
            return timed(lambda: list(work))

        def generate(rows: list[Exchange]) -> float:
            return peer.seconds("generate", [[_messages(row, config) for row in rows]])

        try:
            for turn, chunk in enumerate([found[:1], *_chunks(found, len(found), turns)]):
                rows = [row for file in chunk for row in file]
                first, second = (stage, generate) if turn % 2 else (generate, stage)
                took = {first: first(rows), second: second(rows)}
                if turn:  # the first loads both
                    shares.append(took[generate] / took[stage])
                    print(f"  {len(rows)} exchanges: {took[stage]:.1f} s, LLM.generate {took[generate]:.1f} s "
                          f"({shares[-1]:.3f})", flush=True)  # fmt: skip
        finally:
            engine.close()
            peer.close()
    print(f"  median {statistics.median(shares):.3f} of LLM.generate (goal {GOAL})")
    return shares


if __name__ == "__main__":
    if sys.argv[1:] == ["--against-generate"]:
        against_generate()
    else:
        serve_peer(json.loads(sys.argv[1]))
