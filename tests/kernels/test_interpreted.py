"""Runs the checks of the Triton kernels in Triton's interpreter, in a process of their own.

The interpreter is chosen when a kernel is decorated, and it must never meet vLLM; so the variable is set for that
process alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("triton")), reason="torch or Triton is not installed"
)
HERE = Path(__file__).resolve().parent


def run_checks(environment: dict[str, str]) -> str:
    files = sorted(map(str, HERE.glob("device_*.py")))
    assert len(files) == 3
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent, timeout=600)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


def test_kernels_agree_with_their_references_in_the_interpreter() -> None:
    assert " passed" in run_checks({**os.environ, "TRITON_INTERPRET": "1"})


@pytest.mark.gpu
def test_kernels_agree_with_their_references_on_cuda() -> None:
    assert " passed" in run_checks({k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"})
