"""Kills, power cuts and full disks at operations of every stage: a second attempt makes what an undisturbed one makes.

At one operation in some tens here; `python -m tests.crash.interrupt SCENARIO kill|cut|full` goes through every one, in
minutes to an hour a scenario.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.crash.scenarios import SCENARIOS

FEW = [("forget", "kill", 29), ("add", "cut", 23), ("add", "full", 47)]
EVERY = 37


def interrupted(scenario: str, mode: str, every: int) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.crash.interrupt", scenario, mode, "--every", str(every)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)
    assert done.stdout, done.stderr
    record: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return record


@pytest.mark.parametrize(("scenario", "mode", "every"), FEW)
def test_some_interruptions_change_no_byte(scenario: str, mode: str, every: int) -> None:
    record = interrupted(scenario, mode, every)
    assert record["failures"] == []
    assert record["tried"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "cut", "full"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_interruption_changes_a_byte(scenario: str, mode: str) -> None:
    record = interrupted(scenario, mode, EVERY)
    assert record["failures"] == []
    assert record["tried"]
