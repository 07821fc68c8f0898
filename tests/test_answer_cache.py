"""Equal content is paid once: across runs, bundles, and run folders that are gone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill.answer_cache import open_log
from backfill.answers import AnswerLog
from backfill.engines.base import Answer
from backfill.engines.scripted import ScriptedEngine
from tests import fake_encoder
from tests.test_merge import canonical_files
from tests.test_pipeline import SAMPLES, config, go

PRINT = "0123456789abcdef" * 2
KEY = (b"c" * 16, 1, b"p" * 8)
SAID = Answer(0, "text", "stop", "", 1, 2, 3)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> Path:
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "answers"


def log_in(folder: Path, *, cached: bool = True) -> Any:
    folder.mkdir(exist_ok=True)
    return open_log(folder, "inline", PRINT, cached=cached)


def test_another_run_finds_the_answer_even_when_the_first_folder_is_gone(tmp_path: Path, cache: Path) -> None:
    with log_in(tmp_path / "a") as log:
        log.add(KEY, SAID)
    shutil.rmtree(tmp_path / "a")
    with log_in(tmp_path / "b") as log:
        assert log.get(KEY) == SAID
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_new_run_in_an_old_folder_does_not_lose_the_old_answers(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with log_in(tmp_path / "a") as log:
            log.add((text.encode().ljust(16), 1, b"p" * 8), SAID)
        shutil.rmtree(tmp_path / "a")
    with log_in(tmp_path / "b") as log:
        assert log.get((b"one".ljust(16), 1, b"p" * 8)) == log.get((b"two".ljust(16), 1, b"p" * 8)) == SAID


def test_where_links_are_refused_the_log_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("cross-device link")

    monkeypatch.setattr("os.link", refuse)
    with log_in(tmp_path / "a") as log:
        log.add(KEY, SAID)
    with log_in(tmp_path / "b") as log:
        assert log.get(KEY) == SAID


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, cache: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    with log_in(tmp_path / "a") as log:
        log.add(KEY, SAID)
    with AnswerLog(tmp_path / "a" / f"answers-inline.{PRINT[:8]}.jsonl", PRINT) as log:
        assert log.get(KEY) == SAID


def test_without_the_cache_nothing_is_kept(tmp_path: Path, cache: Path) -> None:
    with log_in(tmp_path / "a", cached=False) as log:
        log.add(KEY, SAID)
    assert not cache.exists()


def test_a_second_run_over_equal_content_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a real model: objects and claims of a copied history, in another folder, come from the cache."""
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ScriptedEngine, "deterministic", False)
    settings = config(SAMPLES / "openai", kind="scripted")
    first = go(settings, tmp_path / "one")["distill"]
    second = go(settings, tmp_path / "two")["distill"]
    assert first["requests"] > 0 < first["claims"]["requests"]
    assert second["requests"] == second["claims"]["requests"] == 0
    assert canonical_files(tmp_path / "one" / "bundle") == canonical_files(tmp_path / "two" / "bundle")
    off = replace(settings, distill=replace(settings.distill, cache=False))
    assert go(off, tmp_path / "three")["distill"]["requests"] == first["requests"]
