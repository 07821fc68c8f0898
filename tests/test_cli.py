"""The command line: exit codes, one line of JSON, one clear message for each kind of bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backfill.cli import COMMANDS, main
from tests import fake_encoder
from tests.conftest import ROOT
from tests.test_pipeline import LINE, SAMPLES, TALK

EXTRACTIVE = str(ROOT / "configs" / "extractive.yaml")


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.jsonl").write_text(TALK)
    return folder


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def call_json(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = call(capsys, *args, "--json")
    assert out.count("\n") == 1, out
    return code, json.loads(out)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_a_command_may_have_more_files_open_than_a_shell_begins_with(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert main(["status", str(tmp_path)]) == 2
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed[1] == hard
    assert allowed[0] == (65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard))


def test_an_unknown_command_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["qeury"])
    assert ended.value.code == 2
    assert "qeury" in capsys.readouterr().err


def test_run_query_show_rooms_status_verify_merge(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, bundle = str(tmp_path / "run"), str(tmp_path / "run" / "bundle")
    code, record = call_json(capsys, "run", EXTRACTIVE, "--source", str(source), "--out", run)
    assert (code, record["counts"]["visible_exchanges"]) == (0, 1)

    code, found = call_json(capsys, "query", bundle, "nightly export fail")
    hit = found["hits"][0]
    assert code == 0
    assert hit["agent_text"].startswith("The role `export` lost CONNECT")
    assert hit["source"] == {"path": "a.jsonl", "byte_start": 0, "byte_end": len(TALK) - 1}

    code, shown = call_json(capsys, "show", bundle, hit["exchange_id"])
    assert (code, set(shown)) == (0, {"exchange", "occurrences", "object", "claims", "prev", "next"})
    code, rooms = call_json(capsys, "rooms", bundle)
    assert code == 0
    assert rooms["rooms"]
    code, status = call_json(capsys, "status", run)
    assert (code, status["state"]) == (0, "done")
    for path in (run, bundle):
        code, verdict = call_json(capsys, "verify", path)
        assert (code, verdict["ok"], verdict["errors"], verdict["ledger_balanced"]) == (0, True, [], True)
    code, merged = call_json(capsys, "merge", run, bundle, "--out", str(tmp_path / "merged"))
    assert (code, merged["exchanges"], merged["logical_digest"]) == (0, 1, record["logical_digest"])


def test_scan_work_merge_equals_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, whole = call_json(capsys, "run", EXTRACTIVE, "--source", str(SAMPLES), "--out", str(tmp_path / "whole"))
    run = str(tmp_path / "run")
    code, scanned = call_json(capsys, "scan", str(SAMPLES), "--out", run)
    assert (code, scanned["balanced"], scanned["exchanges"]) == (0, True, 38)
    for share in ("1/2", "0/2"):
        assert call_json(capsys, "work", run, "--shard", share)[0] == 0
    code, merged = call_json(capsys, "merge", run, "--out", str(tmp_path / "bundle"))
    assert (code, merged["logical_digest"]) == (0, whole["logical_digest"])


@pytest.mark.parametrize("share", ["2/2", "x", "1", "-1/2", "0/0"])
def test_a_share_that_is_none_is_bad_usage(share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "work", str(tmp_path), f"--shard={share}")
    assert code == 2
    assert "K/N" in err


def test_an_unknown_key_names_the_nearest(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"sources: [{source}]\nengine: {{kind: extractive, modle: x}}\n")
    code, record = call_json(capsys, "run", str(path), "--out", str(tmp_path / "run"))
    assert code == 2
    assert "unknown key 'modle'" in record["error"]["message"]
    assert record["error"]["hint"] == "did you mean 'model'?"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("engine.kind=vlm", 2, "must be one of vllm"),
        ("distill.min_tokens=lots", 2, "must be a whole number"),
        ("engine", 2, "not of the form"),
        ("launcher.kind=slurm", 2, "not run from here"),
        ("distill.products=[claims]", 2, "objects are always made"),
        ("engine.kind=openai", 2, "engine.model names no model"),
        ("scan.agent=clode", 2, "no reader is called 'clode'"),
    ],
)
def test_bad_settings_exit_2(
    change: str, code: int, message: str, tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("run", EXTRACTIVE, "--source", str(source), "--out", str(tmp_path / "run"), "--set", change)
    got, _, err = call(capsys, *args)
    assert got == code, err
    assert message in err


def test_a_missing_model_is_one_message(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("run", str(ROOT / "configs" / "cpu.yaml"), "--source", str(source), "--out", str(tmp_path / "run"))
    code, _, err = call(capsys, *args, "--set", f"engine.model={tmp_path / 'nowhere'}")
    assert code == 1
    assert "nowhere" in err
    assert "Traceback" not in err


def test_a_model_without_tokenizer_is_one_message(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    args = ("run", str(ROOT / "configs" / "cpu.yaml"), "--source", str(source), "--out", str(tmp_path / "run"))
    code, _, err = call(capsys, *args, "--set", f"engine.model={model}")
    assert code == 1
    assert "tokenizer" in err
    assert "Traceback" not in err


def test_an_empty_folder_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    args = ("run", EXTRACTIVE, "--source", str(tmp_path / "empty"), "--out", str(tmp_path / "run"))
    code, record = call_json(capsys, *args)
    assert code == 1
    assert "no exchange was found in 0 files" in record["error"]["message"]
    assert call_json(capsys, "scan", str(tmp_path / "empty"), "--out", str(tmp_path / "r2"))[0] == 0


def test_what_a_bad_file_holds_is_accounted_for(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "torn.jsonl").write_text(TALK + '{"role": "user", "con\n' + LINE % ("user", "and after it?"))
    (source / "half.jsonl").write_text(TALK + '{"role": "user", "content": "half a li')
    (source / "bytes.jsonl").write_bytes(LINE.encode() % (b"user", b"caf\xff and \xc3\x28") + TALK.encode())
    (source / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    code, record = call_json(capsys, "scan", str(source), "--out", str(tmp_path / "run"))
    assert (code, record["balanced"]) == (0, True)
    assert (record["files"], record["quarantined"], record["pending"], record["decode_errors"]) == (5, 1, 1, 1)


def test_verify_fails_on_a_flipped_byte(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert call_json(capsys, "run", EXTRACTIVE, "--source", str(source), "--out", run)[0] == 0
    victim = next((tmp_path / "run" / "bundle" / "seg").rglob("objects-*.parquet"))
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    code, verdict = call_json(capsys, "verify", str(tmp_path / "run" / "bundle"))
    assert (code, verdict["ok"]) == (1, False)
    assert [e["kind"] for e in verdict["errors"]] == ["checksum"]


def test_neither_run_nor_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (("verify",), ("status",), ("query", "x"), ("merge", "--out", str(tmp_path / "m"))):
        code, _, err = call(capsys, args[0], str(tmp_path), *args[1:])
        assert code == 2, args
        assert "Traceback" not in err


def test_the_module_runs_as_a_program() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "backfill.cli", "--version"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout.split()[0]) == (0, "backfill")
