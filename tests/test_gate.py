"""The gate: what a tally earns, the sample, the command over engines that lie, and who asks for the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from exchanges import exchanges, make_exchange

from backfill import gate_run, ingest_config
from backfill.auditors import doubted_by_most
from backfill.cli import main
from backfill.config import Config, DistillConfig, EngineConfig, GateConfig
from backfill.distill import distill_fingerprint
from backfill.engines.base import Answer, Request
from backfill.errors import ConfigError
from backfill.gate import FAIL, MARGINAL, PASS, Tally, judge, record, verdict_of
from backfill.gate_sample import Sample, choose
from backfill.ingest_config import ingest_for

RULES = GateConfig()
WELL = Tally(n=100, made=100, distilled_tokens=3500, reference_tokens=3500)
SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "transcripts" / "claude"
FIELDS = {
    *("name", "fingerprint", "n", "tier_counts", "invented", "mangled", "dropped", "absence", "bloat", "secrets"),
    *("schema_failures", "tokens_in", "tokens_out", "ex_s", "verdict", "reasons"),
}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, PASS),
        ({"dropped": 9, "absence": 9, "bloat": 9}, PASS),
        ({"invented": 1}, MARGINAL),
        ({"invented": 2}, MARGINAL),
        ({"invented": 3}, FAIL),
        ({"mangled": 1}, MARGINAL),
        ({"mangled": 2}, FAIL),
        ({"secrets": 1}, FAIL),
        ({"distilled_tokens": 4375}, PASS),
        ({"distilled_tokens": 4376}, MARGINAL),
        ({"schema_failures": 10, "made": 90}, PASS),
        ({"schema_failures": 11, "made": 89}, MARGINAL),
        ({"schema_failures": 50, "made": 50}, FAIL),
        ({"made": 0}, FAIL),
        ({"n": 20, "made": 20, "invented": 1}, FAIL),
    ],
)
def test_a_tally_earns_its_verdict(changes: dict[str, int], verdict: str) -> None:
    found, reasons = judge(replace(WELL, **changes), RULES)  # type: ignore[arg-type]
    assert found == verdict
    assert bool(reasons) == (verdict != PASS)


def test_auditors_alone_neither_pass_nor_fail() -> None:
    assert judge(WELL, RULES, doubts=100.0)[0] == MARGINAL
    assert judge(WELL, RULES, doubts=RULES.max_doubts)[0] == PASS
    assert judge(replace(WELL, mangled=2), RULES, doubts=0.0)[0] == FAIL


def test_the_sample_is_a_function_of_content() -> None:
    rows = exchanges(30)
    one = choose(rows, [], 10, 12)
    assert one == choose(rows[::-1], [], 10, 12)
    assert one.digest != choose(rows, [], 11, 12).digest
    assert set(one.rows) < set(choose(rows, [], 20, 12).rows)
    assert set(choose([*rows, make_exchange("ok")], [], 99, 12).rows) == set(rows)


class Told:
    """Answers every prompt with what it is told to."""

    window = 4
    deterministic = True

    def __init__(self, tell: Callable[[Request], str]) -> None:
        self._tell = tell
        self._held: list[Answer] = []

    def identity(self) -> dict[str, Any]:
        return {}

    def submit(self, request: Request) -> None:
        self._held.append(Answer(request.key, self._tell(request), "stop", tokens_in=10, tokens_out=5))

    def poll(self, timeout_s: float) -> list[Answer]:
        held, self._held = self._held, []
        return held

    def close(self) -> None:
        pass


CONFIG = Config(
    engine=EngineConfig(kind="scripted"),
    distill=DistillConfig(products=("objects",)),
    gate=GateConfig(auditors=(EngineConfig(kind="scripted", model="one"), EngineConfig(kind="scripted", model="two"))),
)
ROWS = tuple(exchanges(12))
SAMPLE = Sample(ROWS, (), b"d" * 16)


def objects(core: str) -> str:
    return msgspec.json.encode({"c": core, "x": 1, "r": ["concept:test_run"]}).decode()


def judged(core: str, monkeypatch: pytest.MonkeyPatch, doubt: str = "") -> gate_run.Judged:
    def tell(request: Request) -> str:
        if request.system.startswith("backfill-audit/"):
            return msgspec.json.encode({"u": [doubt] if doubt else []}).decode()
        return objects(core)

    monkeypatch.setattr(gate_run, "make_engine", lambda config: Told(tell))
    return gate_run.judge_engine(CONFIG, CONFIG.engine, SAMPLE, lambda: False)


def test_a_faithful_engine_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged("Please find out why in the folder and mend it.", monkeypatch)
    assert (found.verdict, found.objects.made, found.objects.tokens_in) == (PASS, 12, 120)
    assert [opinion.n for _, opinion in found.opinions] == [12, 12]


def test_what_most_auditors_doubt_makes_it_marginal(monkeypatch: pytest.MonkeyPatch) -> None:
    core = "Please find out why in the folder and mend it."
    assert judged(core, monkeypatch, doubt="mend it").verdict == MARGINAL
    assert judged(core, monkeypatch, doubt="words that the object does not have").verdict == PASS


def test_first_answers_are_judged_without_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged("Please find out why flux_capacitor in the folder broke and mend it.", monkeypatch)
    assert (found.verdict, found.objects.invented, found.objects.n) == (FAIL, 12, 12)
    monkeypatch.setattr(gate_run, "make_engine", lambda config: Told(lambda request: "{"))
    broken = gate_run.judge_engine(CONFIG, CONFIG.engine, SAMPLE, lambda: False)
    assert (broken.verdict, broken.objects.schema_failures) == (FAIL, 12)


def test_two_auditors_must_agree() -> None:
    from backfill.auditors import Opinion

    assert doubted_by_most([Opinion(3, {0: ["a"], 1: ["b"]}), Opinion(3, {1: ["b"]})]) == {1}
    assert doubted_by_most([]) == set()


def test_the_command_judges_engines_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, engine in (
        ("good", "extractive"),
        ("invents", "scripted, invent_rate: 1.0"),
        ("mangles", "scripted, mangle_rate: 1.0"),
        ("leaks", "scripted, leak_rate: 1.0"),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"sources: [{SAMPLES}]\nengine: {{kind: {engine}}}\n")
        paths.append(str(path))
    assert main(["gate", *paths, "--sample", "6", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    good, invents, mangles, leaks = found["engines"]
    assert len(found["sample_digest"]) == 32
    assert all(set(one) >= FIELDS for one in found["engines"])
    assert good["verdict"] == PASS
    assert (invents["verdict"], mangles["verdict"], leaks["verdict"]) == (FAIL, FAIL, FAIL)
    assert invents["invented"]
    assert mangles["mangled"]
    assert leaks["secrets"]
    kept = json.loads((tmp_path / "gates" / f"{leaks['fingerprint']}.json").read_text())
    assert (kept["verdict"], kept["sample_digest"]) == (FAIL, found["sample_digest"])
    assert main(["gate", paths[0], "--sample", "6"]) == 0
    assert "PASS" in capsys.readouterr().out


def test_prompts_are_compared_under_fingerprints_of_their_own() -> None:
    engine = EngineConfig(kind="scripted")
    prints = {distill_fingerprint(DistillConfig(prompt=p), engine) for p in ("hardened", "loose")}  # type: ignore[arg-type]
    assert len(prints) == 2


@pytest.mark.parametrize("verdict", [FAIL, MARGINAL])
def test_only_a_recorded_pass_opens_the_gate(tmp_path: Path, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(engine=EngineConfig(kind="vllm", model="m"))
    with pytest.raises(ConfigError, match="no verdict"):
        verdict_of(config, tmp_path, "f" * 32, ungated=False)
    record(tmp_path, "f" * 32, {"verdict": verdict})
    with pytest.raises(ConfigError, match=verdict):
        verdict_of(config, tmp_path, "f" * 32, ungated=False)
    assert verdict_of(config, tmp_path, "f" * 32, ungated=True) == "UNGATED"

    # `add` and `sweep` ask in the same way, with the engine that they would use.
    path = tmp_path / "c.yaml"
    path.write_text("engine: {kind: vllm, model: m}\ningest: {engine: {kind: openai, model: small}}\n")
    prints = {"vllm": "f" * 32, "openai": "a" * 32}
    monkeypatch.setattr(ingest_config, "distill_fingerprint", lambda distill, engine: prints[engine.kind])
    monkeypatch.setattr(ingest_config, "claims_fingerprint", lambda distill, engine: prints[engine.kind])
    record(tmp_path, "a" * 32, {"verdict": PASS})
    assert ingest_for(tmp_path, path, ()).verdict == PASS
    with pytest.raises(ConfigError, match=verdict):
        ingest_for(tmp_path, path, (), bulk=True)


@pytest.mark.slow
def test_a_real_model_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vllm")
    path = tmp_path / "cpu.yaml"
    text = (Path(__file__).resolve().parents[1] / "configs" / "cpu.yaml").read_text()
    path.write_text(text.replace("sources: [samples/transcripts]", f"sources: [{SAMPLES}]"))
    main(["gate", str(path), "--sample", "4", "--set", "distill.products=[objects]", "--json"])
    (one,) = json.loads(capsys.readouterr().out)["engines"]
    assert one["n"] == 4
    assert one["tokens_out"] > 0
    assert one["made"] + one["schema_failures"] == 4
    assert one["verdict"] in (PASS, MARGINAL, FAIL)
