"""`backfill serve` as a person starts it: where it says that it is, how it ends, what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backfill.cli import main
from tests.bundle_fixture import write_bundle
from tests.conftest import ROOT
from tests.test_light_imports import python


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("serve") / "bundle").path


@contextmanager
def serving(bundle: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server in a process of its own, and the line that it printed."""
    command = [sys.executable, "-m", "backfill.cli", "serve", str(bundle), "--port", "0", "--json", "--trust-encoder"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_in_order(bundle: Path, number: int):
    with serving(bundle) as (process, line):
        assert line["ok"] is True
        assert line["url"] == f"http://127.0.0.1:{line['port']}/"
        assert "<title>backfill</title>" in httpx.get(line["url"], timeout=30).text
        hit = httpx.get(f"{line['url']}api/search", params={"q": "deadlock"}, timeout=30).json()["hits"][0]
        assert "migration 0042" in hit["exchange_core"]
        refused = httpx.get(line["url"], headers={"host": "evil.example"}, timeout=30)
        assert refused.status_code == 403
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_only_the_loopback_interface_listens(bundle: Path):
    with serving(bundle) as (_, line):
        with socket.create_connection(("127.0.0.1", line["port"]), timeout=5):
            pass
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", line["port"]), timeout=5).close()


def test_a_port_in_use_is_named(bundle: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(bundle), "--port", str(port), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert str(port) in error["message"]
    assert "--port 0" in error["hint"]


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none(bundle: Path, port: str):
    assert main(["serve", str(bundle), "--port", port]) == 2


def test_what_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["serve", str(tmp_path)]) == 2
    assert "not a bundle" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(bundle)]) == 2
    assert "pip install '.[query,web]'" in capsys.readouterr().err


def test_the_server_needs_none_of_the_heavy_packages(tmp_path: Path):
    code = "import backfill.web.app, backfill.commands.serve, backfill.web.markup\nprint('all')"
    assert python(code, cwd=tmp_path) == "all\n"
