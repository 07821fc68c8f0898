"""Equal content is paid once: across runs, bundles, and run folders that are gone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill.answer_cache import cache_places, open_log
from backfill.answers import AnswerLog
from backfill.config import Config, EngineConfig
from backfill.engines.base import Answer, Request
from backfill.engines.scripted import ScriptedEngine
from backfill.errors import ConfigError
from backfill.extractive import raw_object
from backfill.growth import add
from backfill.ingest_config import ingest_for
from backfill.made_before import MadeBefore
from backfill.sweep import sweep
from backfill.verify import verify_bundle
from tests import fake_encoder
from tests.exchanges import make_exchange
from tests.test_lifecycle import SECOND
from tests.test_merge import canonical_files
from tests.test_pipeline import SAMPLES, TALK, config, go

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


@pytest.fixture
def small_volume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Request]:
    """`add` and `sweep` with an engine whose answers count as a model's do; what it is asked is noted."""
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setattr(ScriptedEngine, "deterministic", False)
    asked: list[Request] = []
    submit = ScriptedEngine.submit
    monkeypatch.setattr(ScriptedEngine, "submit", lambda self, request: (asked.append(request), submit(self, request)))
    for module in ("growth", "sweep"):
        monkeypatch.setattr(f"backfill.{module}.bundle_encoder", lambda bundle: fake_encoder.HashEmbedder())
    return asked


def added(tmp_path: Path, name: str, **distill: Any) -> dict[str, Any]:
    """The record of an `add` of one session to a new bundle, by the scripted engine."""
    source = tmp_path / name
    source.mkdir()
    (source / "a.jsonl").write_text(TALK)
    go(config(source), source / "run")
    (source / "b.jsonl").write_text(SECOND)
    made = ingest_for(source / "run" / "bundle", None, ())
    changed = replace(made.config, distill=replace(made.config.distill, **distill))
    told = replace(made, config=changed, engine=EngineConfig(kind="scripted"), print_=PRINT, claims_print="c" * 32)
    return add(source / "run" / "bundle", [source / "b.jsonl"], told, lambda: False)


def test_what_add_was_answered_is_not_asked_again_for_another_bundle(
    tmp_path: Path, small_volume: list[Request], cache: Path
) -> None:
    first = added(tmp_path, "one")
    n_asked = len(small_volume)
    assert n_asked >= 2  # an object and claims
    assert added(tmp_path, "two")["tiers"] == first["tiers"] == {"llm": 1}
    assert len(small_volume) == n_asked
    assert added(tmp_path, "three", cache=False)["tiers"] == first["tiers"]
    assert len(small_volume) == 2 * n_asked
    assert [path.name for path in sorted(cache.iterdir())] == [f"added.{PRINT[:8]}.jsonl", "added.cccccccc.jsonl"]


def test_a_sweep_takes_what_add_was_answered(tmp_path: Path, small_volume: list[Request]) -> None:
    added(tmp_path, "one")
    source = tmp_path / "two"
    source.mkdir()
    (source / "b.jsonl").write_text(SECOND)
    go(config(source), source / "run")
    small_volume.clear()
    made = ingest_for(source / "run" / "bundle", None, ())
    told = replace(made, engine=EngineConfig(kind="scripted"), print_=PRINT)
    assert sweep(source / "run" / "bundle", told, lambda: False)["tiers"] == {"llm": 1}
    assert small_volume == []


def test_add_goes_on_without_a_cache_that_cannot_be_written(
    tmp_path: Path, small_volume: list[Request], cache: Path
) -> None:
    cache.parent.write_text("a file where the folder should be")
    assert added(tmp_path, "one")["tiers"] == {"llm": 1}


def taking(settings: Config, *places: Path) -> Config:
    """The settings, with the user's cache off and some places to take from."""
    distill = replace(settings.distill, cache=False, cache_from=tuple(map(str, places)))
    return replace(settings, distill=distill)


def test_a_bundle_or_a_run_named_as_cache_is_not_paid_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    settings = config(SAMPLES / "openai", kind="scripted")
    first = go(taking(settings), tmp_path / "one")["distill"]
    of_run = go(taking(settings, tmp_path / "one"), tmp_path / "two")["distill"]
    of_bundle = go(taking(settings, tmp_path / "one" / "bundle"), tmp_path / "three")["distill"]
    assert of_run["requests"] == of_run["claims"]["requests"] == 0
    assert of_bundle["cached"] == first["llm"] > 0
    assert of_bundle["claims"]["cached"] == first["claims"]["llm"] > 0
    # What the engine's answer was refused for has no object there: that alone is asked about.
    assert of_bundle["requests"] <= first["requests"] - first["llm"]
    first_digest, *others = [verify_bundle(tmp_path / name / "bundle") for name in ("one", "two", "three")]
    assert [other == first_digest for other in others] == [True, True]


def test_a_bundle_counts_under_its_own_fingerprint_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    settings = config(SAMPLES / "openai", kind="scripted")
    first = go(taking(settings), tmp_path / "one")["distill"]
    other = replace(settings, engine=replace(settings.engine, garbage_rate=0.01))
    again = go(taking(other, tmp_path / "one" / "bundle"), tmp_path / "two")["distill"]
    assert again["cached"] == 0
    assert again["requests"] >= first["llm"]


def test_an_object_that_does_not_hold_for_the_row_at_hand_is_not_taken() -> None:
    before = MadeBefore([], "f", "f")
    row = make_exchange("Where is the key of the cellar door?", "It hangs on the hook beside the cellar door, as ever.")
    made = replace(raw_object(row, generation=0, fingerprint="f"), tier="llm")
    before._objects[row.content_id] = replace(made, exchange_core="The key of the cellar door hangs on the hook.")
    (taken,) = before.objects_of([row], 3) or ()
    assert (taken.generation, taken.exchange_id) == (3, row.exchange_id)
    for wrong in (
        replace(made, exchange_core="It is in /etc/keys/cellar.toml at port 8443."),
        replace(made, specific_context="no such words", context_field="user_text", context_start=0, context_end=13),
    ):
        before._objects[row.content_id] = wrong
        assert before.objects_of([row], 0) is None


def test_a_place_that_is_no_run_and_no_bundle_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no run folder and no bundle"):
        cache_places([str(tmp_path)])
