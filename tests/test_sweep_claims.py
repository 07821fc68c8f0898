"""A sweep makes the claims of extractive windows again, as a run with its engine would have made them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill.bundle import Bundle
from backfill.config import EngineConfig
from backfill.distill import claims_fingerprint, distill_fingerprint
from backfill.growth import add
from backfill.ingest_config import ingest_for
from backfill.inputs import read_bundle
from backfill.sweep import sweep
from backfill.sweep_claims import due_windows
from backfill.types import Claim
from backfill.union import view_of
from backfill.verify import verify_bundle
from tests import fake_encoder
from tests.test_lifecycle import never
from tests.test_pipeline import SAMPLES, config, go


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    for module in ("growth", "sweep"):
        monkeypatch.setattr(f"backfill.{module}.bundle_encoder", lambda bundle: fake_encoder.HashEmbedder())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "claude", tmp_path / "src"))


def by(bundle: Path, **engine: Any) -> Any:
    made = ingest_for(bundle, None, ())
    config_ = replace(made.config, engine=EngineConfig(**engine))
    prints = (f(config_.distill, config_.engine) for f in (distill_fingerprint, claims_fingerprint))
    print_, claims_print = prints
    return replace(made, config=config_, engine=config_.engine, print_=print_, claims_print=claims_print)


def shown(bundle: Path) -> set[Claim]:
    return set(view_of(read_bundle(bundle).union).claims)


def test_swept_claims_are_those_of_a_run_with_that_engine(tmp_path: Path, source: Path) -> None:
    go(config(source), tmp_path / "swept")
    go(config(source, kind="scripted"), tmp_path / "run")
    bundle = tmp_path / "swept" / "bundle"
    before = shown(bundle)
    engine = by(bundle, kind="scripted")
    told = sweep(bundle, engine, never, dry_run=True)
    assert told["due_windows"] == len({(c.session_id, c.source, c.window) for c in before}) > 1
    record = sweep(bundle, engine, never)
    assert record["claims"] > 0
    assert shown(bundle) == shown(tmp_path / "run" / "bundle") != before
    assert verify_bundle(bundle).errors == []
    again = sweep(bundle, engine, never)
    assert (again["due"], again["due_windows"], again["left_windows"]) == (0, 0, 0)


def test_a_window_that_grew_is_due_in_its_latest_reading(tmp_path: Path, source: Path) -> None:
    file = max(source.rglob("*.jsonl"), key=lambda p: p.stat().st_size)
    whole = file.read_bytes()
    half = whole[: whole.index(b"\n", len(whole) // 2) + 1]
    file.write_bytes(half)
    go(config(source), tmp_path / "run")
    bundle = tmp_path / "run" / "bundle"
    engine = by(bundle, kind="scripted")
    sweep(bundle, engine, never)
    file.write_bytes(whole)
    add(bundle, [source], ingest_for(bundle, None, ()), never)
    due = due_windows(Bundle.open(bundle), engine.claims_print)
    assert {window.source for window in due.windows} == {file.relative_to(source).as_posix()}
    sweep(bundle, engine, never)
    go(config(source, kind="scripted"), tmp_path / "once")
    assert shown(bundle) == shown(tmp_path / "once" / "bundle")


def test_what_the_engine_could_not_say_is_not_asked_every_day(tmp_path: Path, source: Path) -> None:
    go(config(source), tmp_path / "run")
    bundle = tmp_path / "run" / "bundle"
    dead = by(bundle, kind="scripted", garbage_rate=1.0)
    assert sweep(bundle, dead, never)["due_windows"] > 0
    assert sweep(bundle, dead, never)["due_windows"] == 0


def test_a_session_over_several_files_is_left_as_it_is(tmp_path: Path, source: Path) -> None:
    """Only the run knows which files made one unit: claims that name a unit that no occurrence has are counted."""
    go(config(source), tmp_path / "run")
    bundle = tmp_path / "run" / "bundle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill.sweep_claims._sessions", lambda bundle, wanted: ({}, {}))
        record = sweep(bundle, by(bundle, kind="scripted"), never, dry_run=True)
    assert (record["due_windows"], record["left_windows"] > 0) == (0, True)
