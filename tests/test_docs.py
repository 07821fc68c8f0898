"""Every command in the docs is right: parsed always, and run on the samples.

A fenced block's info string says how it is tested:

    sh            run, in order, in a folder with the samples: each `backfill` line in this process (an encoder made of
                  hashes), and under `-m slow` the whole page by bash with real models
    sh slow       parsed; run under `-m slow`
    sh gpu, sh cluster, sh setup, sh example
                  parsed alone: needs a GPU or a cluster, is the set-up itself (what `.ci/run` does), or names places of
                  the reader's own
    python        run, after the page's commands, where it begins with an import; else it is an excerpt

Commands that serve until they are stopped (serve, mcp, watch) are parsed, and under `-m slow` started and interrupted.
`~/.claude/projects` is the samples' folder. Lines of other programs that install or fetch are not run here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from backfill.cli import COMMANDS, main
from tests import fake_encoder
from tests.conftest import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"", "slow", "gpu", "cluster", "setup", "example"}
SERVERS = ("serve", "mcp", "watch")
# Programs whose lines are left to bash, or to whoever sets a machine up.
ELSEWHERE = ("pip", "make", "scripts/", "./scripts/", ".", "source", "sudo", "systemctl", "git", "claude", "rsync")
SHELL = re.compile(r"[|;&<>`]|\$\(")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, how it is tested, its text."""

    language: str
    kind: str
    text: str

    def lines(self) -> list[str]:
        """Commands, continued lines joined, comments left out."""
        joined = self.text.replace("\\\n", " ")
        return [line.strip() for line in joined.split("\n") if line.strip() and not line.strip().startswith("#")]


def blocks(page: Path) -> list[Block]:
    found = []
    for info, text in FENCE.findall(page.read_text()):
        language, _, kind = info.strip().partition(" ")
        found.append(Block(language, kind.strip(), text))
    return found


def words(line: str) -> list[str]:
    return [os.path.expanduser(word) if word.startswith("~") else word for word in shlex.split(line, comments=True)]  # noqa: PTH111


def known(page: Path) -> list[str]:
    """The `backfill` commands of a page's shell blocks."""
    shells = [block for block in blocks(page) if block.language == "sh"]
    return [line for block in shells for line in block.lines() if line.startswith("backfill ")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with what a clone has, and a home with transcripts."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    for name in ("configs", "samples", "scripts"):
        (work / name).symlink_to(ROOT / name)
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "projects").symlink_to(ROOT / "samples" / "transcripts" / "claude")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_spelt_right(page: Path) -> None:
    for block in blocks(page):
        if block.language == "sh":
            assert block.kind in KINDS, f"{page.name}: ```sh {block.kind}"
            done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
            assert done.returncode == 0, done.stderr
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
    for line in known(page):
        name, *arguments = words(SHELL.split(line)[0])[1:]
        if name.startswith("-"):
            continue
        assert name in COMMANDS, f"{page.name}: {line}"
        parser = argparse.ArgumentParser(prog=f"backfill {name}", exit_on_error=False)
        module = importlib.import_module(f"backfill.commands.{'import_' if name == 'import' else name}")
        module.add_arguments(parser)
        if not any("--json" in action.option_strings for action in parser._actions):
            parser.add_argument("--json", action="store_true")
        try:
            parser.parse_args(arguments)
        except (argparse.ArgumentError, SystemExit) as error:
            pytest.fail(f"{page.name}: {line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_work_on_the_samples(
    page: Path, place: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for block in blocks(page) if block.language == "sh" and not block.kind for line in block.lines()]
    simple = [line for line in lines if line.startswith("backfill ") and not SHELL.search(shlex_quoted(line))]
    if not simple:
        pytest.skip("the page has no commands that run here")
    fake_encoder.install(monkeypatch, place.parent)
    for line in simple:
        arguments = words(line)[1:]
        if arguments[0] in SERVERS or "--help" in arguments:
            continue
        assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err[-2000:]}"
        capsys.readouterr()
    for number, block in enumerate(block for block in blocks(page) if is_program(block)):
        script = place / f"block{number}.py"
        script.write_text(block.text)
        runpy.run_path(str(script))


def is_program(block: Block) -> bool:
    return block.language == "python" and block.text.startswith(("from ", "import "))


def shlex_quoted(line: str) -> str:
    """The line without what stands in quotes, where a shell's signs are letters."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "", line)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_run_in_a_shell(page: Path, place: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = 0
    for block in blocks(page):
        if block.language != "sh" or block.kind not in ("", "slow"):
            continue
        script = []
        for line in block.lines():
            program = line.split()[0]
            if program in ELSEWHERE or any(program.startswith(p) for p in ELSEWHERE if p.endswith("/")):
                continue
            if line.startswith("backfill ") and words(SHELL.split(line)[0])[1] in SERVERS and "--once" not in line:
                run_shell(script, environment)
                script = []
                serve_and_interrupt(words(line), environment)
            else:
                script.append(line)
            ran += 1
        run_shell(script, environment)
    if not ran:
        pytest.skip("the page has no commands that run here")


def run_shell(lines: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail"], input="\n".join(lines), text=True, capture_output=True, env=environment,
        timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, f"{lines}\n{done.stderr[-3000:]}"


def serve_and_interrupt(command: list[str], environment: dict[str, str]) -> None:
    """A server stays up until it is interrupted, and then ends without a traceback."""
    server = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            assert server.poll() is None, server.communicate()[1]
            time.sleep(0.2)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    finally:
        server.kill()
    assert "Traceback" not in errors
    assert server.returncode in (0, 75, 130, -signal.SIGINT)
