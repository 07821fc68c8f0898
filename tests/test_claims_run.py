"""Whole runs with claims: every engine, growth, copies, a changed product, and secrets in answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from backfill import tables
from backfill.config import Config
from backfill.engines import scripted
from backfill.merge import merge
from backfill.rundir import CLAIMS, OBJECT, RunDir
from backfill.types import Claim
from backfill.verify import verify_bundle
from backfill.verify_run import verify_run
from tests import fake_encoder
from tests.canaries import canaries
from tests.test_merge import canonical_files
from tests.test_pipeline import SAMPLES, config, go


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def objects_only(settings: Config) -> Config:
    return replace(settings, distill=replace(settings.distill, products=("objects",)))


def claims_of(bundle: Path) -> Iterator[Claim]:
    for path in bundle.glob("seg/*/claims-*.parquet"):
        yield from tables.read_table(tables.CLAIMS, path)


@pytest.mark.parametrize(
    "engine", [{}, {"kind": "scripted"}, {"kind": "scripted", "fail_rate": 0.3, "garbage_rate": 0.3}]
)
def test_a_run_has_claims_of_its_exchanges(tmp_path: Path, engine: dict[str, Any]) -> None:
    settings = config(**engine)
    settings = replace(settings, distill=replace(settings.distill, min_llm_share=0.0))
    record = go(settings, tmp_path / "run")
    assert record["distill"]["claims"]["n"] == 11
    claims = list(claims_of(tmp_path / "run" / "bundle"))
    assert record["counts"]["visible_claims"] == record["counts"]["claims"] == len(claims) > 20
    assert record["counts"]["exchanges"] == 38
    assert all(claim.date is not None and claim.source.endswith(".jsonl") for claim in claims)
    assert verify_run(tmp_path / "run").errors == []


def test_a_session_gives_about_a_claim_for_each_kilobyte(tmp_path: Path) -> None:
    """About a dozen for 15 KB of what was said; extraction, which cannot join facts, keeps below thirty."""
    record = go(config(), tmp_path / "run")
    said = sum(
        len(row.user_text.encode()) + len(row.agent_text.encode())
        for path in (tmp_path / "run" / "bundle").glob("seg/*/exchanges-*.parquet")
        for row in tables.read_table(tables.EXCHANGES, path)
    )
    assert 6 <= record["counts"]["claims"] / (said / 15_000) <= 30


def test_shards_and_rounds_change_no_byte(tmp_path: Path) -> None:
    """Sources that came in three rounds give the claims of sources read at once."""
    source = tmp_path / "src"
    files = sorted(p.relative_to(SAMPLES) for p in SAMPLES.rglob("*.jsonl"))
    for part in (files[::3], files[1::3], files[2::3]):
        for name in part:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SAMPLES / name, source / name)
        go(config(source), tmp_path / "rounds")
    go(config(source), tmp_path / "once")
    assert canonical_files(tmp_path / "rounds" / "bundle") == canonical_files(tmp_path / "once" / "bundle")
    plan = RunDir(tmp_path / "rounds").plan()
    assert {r.product for r in plan.rounds} == {OBJECT, CLAIMS}
    assert sum(r.n_rows for r in plan.rounds if r.product == CLAIMS) == 11


@pytest.mark.parametrize("kind", ["extractive", "scripted"])
def test_a_session_that_grew_shows_the_claims_of_one_read_at_once(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "src"
    shutil.copytree(SAMPLES, source)
    files = [p for p in source.rglob("*.jsonl") if p.stat().st_size > 5000]
    whole = {p: p.read_bytes() for p in files}
    for part in (0.3, 0.6, 1.0):
        for path, data in whole.items():
            path.write_bytes(data[: int(len(data) * part)])
        grown = go(config(source, kind=kind), tmp_path / "grown")
    once = go(config(source, kind=kind), tmp_path / "once")
    assert grown["logical_digest"] == once["logical_digest"]
    assert grown["counts"]["visible_claims"] == once["counts"]["visible_claims"] < grown["counts"]["claims"]
    assert verify_bundle(tmp_path / "grown" / "bundle").errors == []


def test_a_copy_of_a_history_shows_each_claim_once(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(SAMPLES / "claude", source / "a")
    alone = go(config(source), tmp_path / "alone")
    shutil.copytree(SAMPLES / "claude", source / "b")
    both = go(config(source), tmp_path / "both")
    assert both["counts"]["claims"] == 2 * alone["counts"]["claims"]
    assert both["counts"]["visible_claims"] == alone["counts"]["visible_claims"]


def test_bundles_merge_to_what_one_run_gives(tmp_path: Path) -> None:
    for name in ("claude", "openai"):
        shutil.copytree(SAMPLES / name, tmp_path / "src" / name)
        shutil.copytree(SAMPLES / name, tmp_path / name / name)
        go(config(tmp_path / name), tmp_path / f"run-{name}")
    go(config(tmp_path / "src"), tmp_path / "once")
    parts = [tmp_path / f"run-{name}" / "bundle" for name in ("openai", "claude")]
    merge(parts, tmp_path / "merged", read_run=lambda path: pytest.fail(str(path)))
    once, merged = (canonical_files(path) for path in (tmp_path / "once" / "bundle", tmp_path / "merged"))
    assert {k: v for k, v in merged.items() if k != "manifest.json"} == {
        k: v for k, v in once.items() if k != "manifest.json"
    }


def test_claims_can_be_asked_for_later_and_left_out_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = go(objects_only(config(SAMPLES / "openai")), run)
    assert (first["counts"]["claims"], isinstance(first["distill"].get("claims"), dict)) == (0, False)
    objects = {p: p.stat().st_ino for p in (run / "02-objects").glob("shard-*.json")}
    second = go(config(SAMPLES / "openai"), run)
    assert second["counts"]["claims"] > 0
    assert {p: p.stat().st_ino for p in objects} == objects, "objects were made again"
    assert go(objects_only(config(SAMPLES / "openai")), run)["logical_digest"] == first["logical_digest"]


def test_a_new_claims_prompt_redoes_claims_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, run = config(SAMPLES / "openai", kind="scripted"), tmp_path / "run"
    go(settings, run)
    done = {p.name for p in (run / "02-objects").glob("shard-*.json")}
    monkeypatch.setattr("backfill.claim_prompt.ASK", "Write one to four claims for each exchange.")
    go(settings, run)
    plan = RunDir(run).plan()
    fresh = {p.name for p in (run / "02-objects").glob("shard-*.json")} - done
    assert fresh
    assert {plan.product_of(int(name[6:11])) for name in fresh} == {CLAIMS}
    assert verify_run(run).errors == []


def test_secrets_in_answers_reach_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that answers with a secret of every type, in objects and claims: no file of the run holds any."""
    planted = canaries()
    real = scripted.script
    count = iter(range(10**9))

    def script(user: str, dice: Any) -> str:
        text = real(user, dice)
        for key in ('"c":"', '"t":"'):
            some = " ".join(planted[next(count) % len(planted)].text for _ in range(4))
            escaped = msgspec.json.encode(some).decode()[1:-1]
            text = text.replace(key, f"{key}{escaped} ")
        return text

    monkeypatch.setattr(scripted, "script", script)
    settings = config(kind="scripted")
    settings = replace(settings, distill=replace(settings.distill, min_llm_share=0.0))
    go(settings, tmp_path / "run")
    assert next(count) > len(planted), "every canary was an answer"
    logs = b"".join(p.read_bytes() for p in (tmp_path / "run" / "logs").glob("answers-*.jsonl"))
    assert b"[secret:" in logs
    for path in (p for p in (tmp_path / "run").rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data = str(pq.read_table(path, partitioning=None).to_pylist()).encode()
        leaked = [c.kind for c in planted for piece in c.pieces() if piece.encode() in data]
        assert leaked == [], path
