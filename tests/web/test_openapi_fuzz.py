"""Requests made up from the OpenAPI document, good and bad: the answers keep to it, and none is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundle_fixture import write_bundle
from tests.web.test_serve import serving

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
def test_made_up_requests_are_answered_as_documented(tmp_path: Path):
    command = Path(sys.executable).with_name("schemathesis")
    with serving(write_bundle(tmp_path / "bundle").path) as (_, line):
        done = subprocess.run(
            [command, "run", f"{line['url']}openapi.json", "--max-examples", "15", "--seed", "7", "--checks", CHECKS,
             "--request-timeout", "30", "--phases", "examples,coverage,fuzzing"],
            capture_output=True, text=True, timeout=900, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
