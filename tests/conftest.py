"""Shared fixtures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bench.gold import GoldPair

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real transcripts and retrieval sets; skips where it is not there."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not there: this test reads real transcripts")
    return folder


@pytest.fixture(scope="session")
def gold(shared_data: Path) -> list[GoldPair]:
    """The gold objects with their exchanges, which are read once."""
    from bench.gold import gold_pairs

    return gold_pairs(shared_data / "transcripts")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write down what they vouch for in a state folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("BACKFILL_VECTOR_CACHE", str(tmp_path_factory.mktemp("vectors")))
        yield


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of content alone, which write thousands of files; crash tests keep the real one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
