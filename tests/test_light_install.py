"""A light host: `pip install .[query]` in an empty venv, its size, and an answer from a bundle without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_pipeline import SAMPLES

LIMIT_MB = 300


def size_mb(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink()) / 1e6


@pytest.mark.slow
def test_a_light_host_answers(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "backfill.cli", "run", str(ROOT / "configs" / "extractive.yaml")]
    subprocess.run([*run, "--source", str(SAMPLES), "--out", str(tmp_path / "run")], check=True, cwd=ROOT)

    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "build", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    before = size_mb(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    got = subprocess.run([python, "-m", "pip", "install", "-q", f"{source}[query]"], capture_output=True, text=True)
    if got.returncode and "No matching distribution" in got.stderr:
        pytest.skip(f"no package registry is reachable: {got.stderr.strip().splitlines()[-1]}")
    assert got.returncode == 0, got.stderr
    assert size_mb(tmp_path / "venv") - before < LIMIT_MB

    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
    names = {entry["name"].lower() for entry in json.loads(listed.stdout)}
    assert not names & {"torch", "vllm", "ray", "transformers", "triton", "pyarrow", "tokenizers"}

    command = tmp_path / "venv" / "bin" / "backfill"
    query = [command, "query", str(tmp_path / "run" / "bundle"), "why did the nightly backup fail", "--json"]
    answer = json.loads(subprocess.run(query, capture_output=True, check=True, cwd=tmp_path).stdout)
    assert any("max_locks_per_transaction" in hit["agent_text"] for hit in answer["hits"][:3])
    assert answer["mode"] == "default"
    assert not answer.get("warnings")
    verify = [command, "verify", str(tmp_path / "run" / "bundle"), "--json"]
    verdict = json.loads(subprocess.run(verify, capture_output=True, check=True, cwd=tmp_path).stdout)
    assert verdict["ok"]
    assert verdict["probe_cosine"] > 0.999
