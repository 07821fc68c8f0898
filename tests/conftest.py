"""Shared fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real transcripts and retrieval sets; skips where it is not there."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not there: this test reads real transcripts")
    return folder


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of content alone, which write thousands of files; crash tests keep the real one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
