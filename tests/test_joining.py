"""Who may work at a run folder: other versions, tokenizers and settings are refused, and told in what they differ."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill import distill, presence, scan
from backfill.cli import main
from backfill.errors import JoinRefused
from backfill.joining import check_may_join, differences, settings_here
from backfill.pipeline import check_unchanged, fix_fingerprints
from backfill.presence import Present, alive, present
from backfill.stages import work
from backfill.turns import started_at
from tests import fake_encoder
from tests.conftest import ROOT
from tests.launchers.runs import config, prepared
from tests.test_pipeline import go


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def join(run: Any, plan: Any, stage: str = "distill") -> None:
    work(run.path, stage, [0], worker="late", should_stop=lambda: False, on_done=lambda shard, stats: None)


def test_another_stage_version_may_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plan = prepared(tmp_path / "run", config())
    monkeypatch.setattr(distill, "STAGE_VERSION", 99)
    with pytest.raises(JoinRefused, match=r"its distill differs .* version \(planned \d+, here 99\)"):
        join(run, plan)
    assert len(run.missing(plan, "distill")) == plan.n_distill_shards
    assert main(["work", str(run.path), "--shard", "0/1"]) == 1


def test_another_scan_version_may_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plan = prepared(tmp_path / "run", config())
    monkeypatch.setattr(scan, "STAGE_VERSION", 99)
    with pytest.raises(JoinRefused, match=r"its scan differs .* stage \(planned 1, here 99\)"):
        join(run, plan, "scan")


def test_another_encoder_may_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plan = prepared(tmp_path / "run", config())
    monkeypatch.setattr("backfill.encoders.fingerprint_of_encoder", lambda config: "f" * 32)
    monkeypatch.setattr("backfill.encoders.encoder_parts", lambda config: {"embedder": "another"})
    with pytest.raises(JoinRefused, match=r"embedder \(planned hash, here another\)"):
        join(run, plan, "embed")


def test_another_tokenizer_of_the_same_model_may_not_join(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    settings = config(engine={"kind": "vllm", "model": str(model)})
    run, plan = prepared(tmp_path / "run", settings)
    check_may_join(plan, "distill")
    (model / "tokenizer.json").write_text('{"version": "2"}')
    with pytest.raises(JoinRefused, match=r"engine\.tokenizer \(planned \w{12}\.\.\., here \w{12}\.\.\.\)") as refused:
        join(run, plan)
    assert "engine.weights" not in str(refused.value)


def test_differences_are_named_by_their_place() -> None:
    told = differences({"a": {"b": 1, "c": [1]}, "gone": 2}, {"a": {"b": 2, "c": (1,)}, "new": True})
    assert told == ["a.b (planned 1, here 2)", "gone (planned 2, here nothing)", "new (planned nothing, here True)"]


def test_settings_that_change_under_a_run_end_it(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config())
    check_unchanged(run, plan)
    fix_fingerprints(run, config(engine={"garbage_rate": 0.5}))
    with pytest.raises(JoinRefused, match="other settings while this one was at work"):
        check_unchanged(run, plan)


def test_a_scan_leaves_the_engine_of_a_run_alone(tmp_path: Path) -> None:
    run, plan = prepared(tmp_path / "run", config())
    source = tmp_path / "more"
    shutil.copytree(plan.roots[0], source)
    assert main(["scan", str(source), "--out", str(run.path)]) == 0
    after = run.plan()
    assert len(after.scan_shards) > len(plan.scan_shards)
    assert after.bound_config().engine.kind == "scripted"
    check_may_join(after, "distill")


AT_WORK = """
import json, sys
from pathlib import Path
from backfill.presence import present
with present(Path(sys.argv[1]), "run", json.loads(sys.argv[2])):
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[Callable[[Path, dict[str, Any]], subprocess.Popen[bytes]]]:
    """Starts another process that is at work with the given settings."""
    with contextlib.ExitStack() as stack:

        def start(logs: Path, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", AT_WORK, str(logs), json.dumps(settings)]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            return process

        yield start


def test_a_second_run_with_other_settings_is_refused_and_changes_nothing(tmp_path: Path, other: Any) -> None:
    settings = config()
    run, plan = prepared(tmp_path / "run", settings)
    process = other(run.logs, settings_here(settings))
    with pytest.raises(JoinRefused, match=rf"process {process.pid}.*engine\.garbage_rate \(planned 0\.0, here 0\.5\)"):
        go(config(engine={"garbage_rate": 0.5}), run.path)
    assert run.plan() == plan
    with pytest.raises(JoinRefused, match=r"index\.k1"):
        go(replace(settings, index=replace(settings.index, k1=1.2)), run.path)
    record = go(settings, run.path)
    assert record["counts"]["visible_exchanges"] == 38


def test_two_of_one_name_get_different_tags(tmp_path: Path, other: Any) -> None:
    process = other(tmp_path, {"a": 1})
    with present(tmp_path, "run", {"a": 1}) as tag:
        assert tag.endswith(f"-{os.getpid()}")
    with present(tmp_path, "w0of2", {"a": 1}) as tag:
        assert tag == ""
    process.kill()
    process.wait()
    with present(tmp_path, "run", {"a": 2}) as tag:
        assert tag == "", "the other one is dead, whatever its settings were"
    assert list(tmp_path.glob("present-*")) == []


def announce(logs: Path, other: Present, age_s: float) -> None:
    path = logs / f"present-run-0-{other.host}-{other.pid}.json"
    path.write_text(json.dumps({"name": "run", "host": other.host, "pid": other.pid, "started": other.started}))
    stamp = time.time() - age_s
    os.utime(path, (stamp, stamp))


@pytest.mark.parametrize(("age_s", "lives"), [(10, True), (presence.GONE_AFTER_S + 10, False)])
def test_a_process_of_another_host_lives_while_it_touches_its_file(tmp_path: Path, age_s: float, lives: bool) -> None:
    announce(tmp_path, Present("run", "elsewhere", 1, "5"), age_s)
    assert bool(alive(tmp_path.glob("present-*"), now=time.time())) is lives


def test_an_id_that_came_again_is_another_process(tmp_path: Path) -> None:
    import socket

    announce(tmp_path, Present("run", socket.gethostname(), os.getpid(), started_at(os.getpid()) + "1"), 0)
    assert alive(tmp_path.glob("present-*"), now=time.time()) == []


def test_a_damaged_file_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "present-run-0-a-1.json").write_text('{"name": ')
    assert alive(tmp_path.glob("present-*"), now=time.time()) == []
