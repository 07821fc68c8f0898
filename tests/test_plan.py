"""`backfill plan`: what it counts is what a run then finds; rates, intervals and prices follow from measurements."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill import workload
from backfill.calibrate import speeds_of, steady_rate
from backfill.cli import main
from backfill.config import Config, EngineConfig, LauncherConfig
from backfill.errors import ConfigError, EngineError
from backfill.estimate import estimate
from backfill.profiles import Profile, around, load_profiles, profile_for
from tests import fake_encoder
from tests.conftest import ROOT
from tests.test_pipeline import SAMPLES, config, go


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "cache"))


def yaml_of(folder: Path, engine: str = "{kind: scripted}", source: Path = SAMPLES) -> Path:
    path = folder / "config.yaml"
    path.write_text(f"sources: ['{source}']\nengine: {engine}\ndistill: {{shard_exchanges: 8}}\n")
    return path


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["plan", *args, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    record: dict[str, Any] = json.loads(out)
    return record


def test_a_plan_of_a_config_says_what_the_run_then_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = plan(capsys, str(yaml_of(tmp_path)), "--calibrate")
    ran = go(config(kind="scripted"), tmp_path / "run")
    objects, claims = ran["distill"], ran["distill"]["claims"]
    assert record["exchanges"] == ran["scan"]["exchanges"] == 38
    assert record["to_distill"] + record["repeats"] == objects["eligible"]
    assert record["windows"] == claims["eligible"]
    for name in ("requests", "tokens_in", "tokens_out"):
        assert record[name] == pytest.approx(objects[name] + claims[name], abs=1), name
    assert record["exchanges"] == sum(record[name] for name in ("short", "cached", "repeats", "to_distill"))
    assert 0 < record["hours"]["low"] < record["hours"]["mid"] < record["hours"]["high"]
    assert record["gpu_bytes"] == 0


def test_what_a_run_has_done_is_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["scan", str(SAMPLES), "--out", str(run)]) == 0
    capsys.readouterr()
    before = plan(capsys, str(run))
    assert (before["cached"], before["exchanges"]) == (0, 38)
    go(config(kind="scripted"), run)
    after = plan(capsys, str(run))
    assert after["to_distill"] == after["windows"] == after["requests"] == 0
    assert after["cached"] == before["to_distill"] + before["repeats"]
    assert after["stage_seconds"]["scan"] == after["stage_seconds"]["distill"] == 0


def test_logged_answers_are_cached_before_their_shard_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(config(kind="scripted"), tmp_path / "run")
    for manifest in (tmp_path / "run" / "02-objects").glob("shard-*.json"):
        manifest.unlink()
    assert plan(capsys, str(tmp_path / "run"))["to_distill"] == 0


def test_a_sample_is_scaled_by_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for i in range(40):
        shutil.copy(next((SAMPLES / "openai").glob("*.jsonl")), source / f"{i:02d}.jsonl")
    whole = plan(capsys, str(yaml_of(tmp_path, source=source)))
    assert whole["sample"]["bytes"] == whole["sample"]["of_bytes"]
    monkeypatch.setattr(workload, "SAMPLE_BYTES", whole["sample"]["of_bytes"] // 4)
    part = plan(capsys, str(yaml_of(tmp_path, source=source)))
    assert part["sample"]["bytes"] == part["sample"]["of_bytes"] // 4
    assert part["sample"]["interval"] >= whole["sample"]["interval"]
    # Equal files: a quarter of them, times four, has as many distinct exchanges a copy as it is scaled to.
    assert part["exchanges"] == 4 * whole["exchanges"]


def test_the_engines_own_delay_is_a_rate() -> None:
    settings = Config(engine=EngineConfig(kind="scripted", delay_ms=2000, window=40))
    assert speeds_of(settings, None).requests_s == 20


def test_without_a_profile_hours_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = yaml_of(tmp_path, "{kind: vllm, model: /no/such/model}")
    record = plan(capsys, str(path), "--price", "2")
    assert record["hours"] == {"low": None, "mid": None, "high": None}
    assert record["price"] is None
    assert main(["plan", str(path)]) == 0
    assert "--calibrate measures it" in capsys.readouterr().out


def test_a_profile_gives_hours_and_a_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = yaml_of(tmp_path, "{kind: vllm, model: /no/such/model}")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "one.yaml").write_text(
        "name: one\nmachine: a box\nmeasured: by hand\nkind: vllm\nmodel: /no/such/model\nrequests_s: 0.01\n"
        "load_s: 100\ntokens_in: 500\ntokens_out: 50\nerror: 0.5\n"
    )
    record = plan(capsys, str(path), "--price", "2")
    items = record["to_distill"] + record["windows"]
    assert record["gpu_hours"]["mid"] == pytest.approx((100 + items / 0.01) / 3600, rel=1e-3)
    assert record["price"] == pytest.approx(2 * record["gpu_hours"]["mid"], abs=0.01)
    assert (record["tokens_in"], record["tokens_out"]) == (500 * items, 50 * items)
    assert record["hours"]["high"] / record["hours"]["mid"] == pytest.approx(1 + (0.5**2 + 0.1**2) ** 0.5, rel=1e-2)


def test_workers_share_the_hours_and_not_the_price(tmp_path: Path) -> None:
    work = workload.of_config(config(kind="scripted"), known=frozenset(), n_rows=5)
    one = config(kind="scripted", delay_ms=1000, window=1)
    speeds = replace(speeds_of(one, None), latency_s=0)
    four = replace(one, launcher=LauncherConfig(workers=4))
    alone, shared = (estimate(work, c, speeds, None, None, price_per_hour=3600) for c in (one, four))
    assert shared["stage_seconds"]["distill"] == pytest.approx(alone["stage_seconds"]["distill"] / 4, rel=0.01)
    assert shared["price"] == pytest.approx(alone["price"], rel=0.01)


def test_a_profile_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("name: a\nmachine: b\nmeasured: c\nkind: vllm\nrequest_s: 1\n")
    with pytest.raises(ConfigError, match="request_s") as refused:
        load_profiles(tmp_path)
    assert "requests_s" in refused.value.hint


def test_a_profile_is_of_one_model() -> None:
    profile = Profile("p", "m", "d", "vllm", "a/b")
    assert profile_for([profile], EngineConfig(kind="vllm", model="a/b")) is profile
    assert profile_for([profile], EngineConfig(kind="vllm", model="a/c")) is None


@given(st.integers(1, 20), st.integers(2, 30), st.floats(0.01, 5))
def test_a_steady_engine_has_its_rate(window: int, windows: int, latency_s: float) -> None:
    """An engine that answers each request after one latency gives window / latency answers a second."""
    n = window * windows
    answered = [latency_s * (1 + i // window) for i in range(n)]
    rate, error = steady_rate([0.0], answered, window)
    assert rate == pytest.approx(window / latency_s, rel=1e-6)
    assert error >= 0.1


def test_less_than_two_windows_is_half_known() -> None:
    assert steady_rate([0.0], [1.0, 2.0, 4.0], 3) == (0.75, 0.5)
    with pytest.raises(EngineError, match="answered nothing"):
        steady_rate([0.0], [], 3)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--price", "-1"], "cannot be negative"),
        (["--price", "nan"], "cannot be negative"),
        (["--source", "/no/such/folder"], "does not exist"),
    ],
)
def test_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], says: str) -> None:
    assert main(["plan", str(yaml_of(tmp_path)), *args]) == 2
    assert says in capsys.readouterr().err


def test_a_run_that_is_not_read_completely_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["scan", str(SAMPLES), "--out", str(run)]) == 0
    next((run / "01-exchanges").glob("shard-*.json")).unlink()
    assert main(["plan", str(run)]) == 2
    assert "not read completely" in capsys.readouterr().err


def test_shipped_profiles_are_whole() -> None:
    found = load_profiles(ROOT / "configs" / "profiles")
    assert found
    assert all(profile.machine and profile.measured and 0 < profile.error < 1 for profile in found)


def test_merging_is_planned_from_any_profile_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nmachine: b\nmeasured: c\nkind: vllm\nrss_bytes: 5\n")
    assert around(load_profiles(tmp_path)) is None
    (tmp_path / "b.yaml").write_text(
        "name: b\nmachine: b\nmeasured: c\nkind: openai\nmerge_exchanges_s: 60\nrss_bytes: 5\n"
    )
    found = around(load_profiles(tmp_path))
    assert found is not None
    assert (found.name, found.merge_exchanges_s, found.rss_bytes) == ("b", 60, 0)
