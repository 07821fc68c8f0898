"""`backfill report`: figures that agree with the tables, a flow that balances, a page that nothing can break out of."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from backfill.cli import main
from backfill.errors import UsageError
from backfill.report import report_of
from backfill.report_page import page
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, TALK, config, go

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over some samples, a file with a broken line and a file whose name is markup."""
    folder = tmp_path_factory.mktemp("report")
    source = folder / "src"
    shutil.copytree(SAMPLES / "openai", source)
    (source / "notes <b>.jsonl").write_text(TALK + '{"role": "user", "con\n' + TALK.replace("16.2", "16.3"))
    with pytest.MonkeyPatch.context() as patch:
        fake_encoder.install(patch, folder)
        go(config(source, kind="scripted", garbage_rate=0.05), folder / "run")
    return folder / "run"


def test_the_flow_of_a_run_balances(finished: Path) -> None:
    flow = report_of(finished)["flow"]
    on_disk = sum(p.stat().st_size for p in (finished.parent / "src").rglob("*") if p.is_file())
    assert flow["total"] == on_disk
    assert sum(flow["sources"].values()) == sum(n for r in flow["states"].values() for n in r.values()) == on_disk
    assert flow["balanced"]
    assert flow["states"]["quarantined"]


def test_a_ledger_with_a_hole_does_not_balance(finished: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    shutil.copytree(finished, tmp_path / "run")
    victim = next((tmp_path / "run" / "01-exchanges").glob("ledger-*.parquet"))
    pq.write_table(pq.read_table(victim).slice(1), victim)
    record = report_of(tmp_path / "run")
    assert not record["flow"]["balanced"]
    assert any("does not balance" in text for text in record["warnings"])
    assert "NOT balanced" in page(record)


def test_figures_are_those_of_the_tables(finished: Path) -> None:
    from backfill import tables

    record = report_of(finished, price_per_hour=3.6)
    objects = [
        o for p in (finished / "02-objects").glob("objects-*.parquet") for o in tables.read_table(tables.OBJECTS, p)
    ]
    assert sum(record["tiers"].values()) == len(objects)
    distilled = [o for o in objects if o.tier != "raw"]
    assert record["tokens"]["after"] == pytest.approx(sum(o.tokens for o in distilled) / len(distilled), abs=0.06)
    assert record["counts"]["visible_exchanges"] == len(objects)
    cost = record["cost"]
    assert cost["price_per_1000"] == pytest.approx(cost["engine_s_per_1000"] / 1000, abs=1e-3)
    assert record["failures"]


def test_throughput_adds_up_to_what_was_done(finished: Path) -> None:
    record = report_of(finished)
    done = record["totals"]["n"] + record["totals"]["claims"]["n"]
    assert sum(map(sum, record["throughput"]["workers"].values())) == pytest.approx(done)
    assert list(record["throughput"]["workers"]) == ["inline"]


def test_what_needs_a_person_is_said(finished: Path) -> None:
    warnings = " ".join(report_of(finished)["warnings"])
    assert re.search(r"Quarantined: \d+ bytes", warnings)


def test_the_page_stands_alone(finished: Path) -> None:
    text = page(report_of(finished))
    assert "default-src 'none'" in text
    for loaded in ("<script", "<link", "<img", "<iframe", "url(", "@import", " style=", " onload="):
        assert loaded not in text, loaded


def test_hostile_names_are_text(finished: Path) -> None:
    record = report_of(finished)
    record["flow"]["sources"] = {EVIL: record["flow"]["total"]}
    record["flow"]["states"] = {"skipped": {EVIL: record["flow"]["total"]}}
    record["rooms"] = [{"room_type": EVIL, "room_key": EVIL, "room_label": EVIL, "n_exchanges": 1}]
    record["throughput"]["workers"] = {EVIL: [1.0] * len(record["throughput"]["bins"])}
    record["slowest"] = [dict.fromkeys(("shard", "product", "n", "engine_s", "retries"), EVIL)]
    for name in ("findings", "failures", "tiers"):
        record[name] = {EVIL: 1}
    for name in ("gate", "config", "fingerprints", "cost"):
        record[name] = {EVIL: EVIL}
    record["warnings"], record["path"], record["kind"] = [EVIL], EVIL, EVIL
    assert "<script" not in page(record)


def test_a_bundle_has_a_report_too(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(finished / "bundle")
    assert main(["report", bundle]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["report", bundle, "--out", str(tmp_path / "r"), "--json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert record["flow"]["unit"] == "records"
    assert record["flow"]["balanced"]
    of_run = report_of(finished)
    assert record["tiers"] == of_run["tiers"]
    assert record["tokens"] == of_run["tokens"]
    assert (tmp_path / "r" / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "r" / "report.json").read_bytes())["kind"] == "bundle"


def test_a_run_that_has_only_been_read_has_a_report(tmp_path: Path) -> None:
    assert main(["scan", str(SAMPLES / "openai"), "--out", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "report.json").read_bytes())
    assert record["flow"]["balanced"]
    assert any("merge is not complete" in text for text in record["warnings"])


def test_neither_run_nor_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a run folder nor a bundle"):
        report_of(tmp_path)
