"""`backfill bench`: which cells a sweep has, what is kept of them, which one is recommended, and the page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.cli import main
from backfill.config import Config, EngineConfig
from backfill.engines import make_engine
from backfill.errors import ConfigError, UsageError
from backfill.gate import FAIL, MARGINAL, PASS
from backfill.throughput import sweep as sweep_module
from backfill.throughput.axes import Axis, Source, cells, default_axes, parse_axis
from backfill.throughput.choice import MARGIN, best, combination, told_apart
from backfill.throughput.measure import Measured
from backfill.throughput.page import page, points_of

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "transcripts" / "claude"
SEQS, BUDGET = "engine.max_num_seqs", "distill.prompt_tokens"
OWN = Measured({}, n=100, exchanges_s=10.0, error=0.05, verdict=PASS)


def changed(rate: float, verdict: str = PASS, **changes: Any) -> Measured:
    names = {"seqs": SEQS, "budget": BUDGET}
    return replace(
        OWN, changes={names[k]: v for k, v in changes.items()}, exchanges_s=rate, verdict=verdict
    )  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A scripted engine that takes 15 ms an answer, over the samples; objects alone."""
    path = tmp_path / "scripted.yaml"
    path.write_text(
        f"sources: [{SAMPLES}]\nrun: {tmp_path / 'run'}\nengine: {{kind: scripted, window: 1, delay_ms: 15}}\n"
        "distill: {products: [objects]}\n"
    )
    return path


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The configurations of the engines that a sweep starts, as it starts them."""
    started: list[EngineConfig] = []

    def noted(config: EngineConfig, **names: Any) -> Any:
        started.append(config)
        return make_engine(config, **names)

    monkeypatch.setattr(sweep_module, "make_engine", noted)
    return started


def bench(capsys: pytest.CaptureFixture[str], config: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["bench", str(config), "--json", *arguments]) == code
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_settings_are_told_apart(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = ("--set", "engine.delay_ms=60")
    record = bench(
        capsys, config, "--sample", "15", *slow, "--sweep", "engine.window=8", "--out", str(tmp_path / "out")
    )
    own, wide = record["cells"]
    assert (own["name"], wide["name"]) == ("as configured", "engine.window=8")
    # One answer in 60 ms at least, against eight in flight.
    assert own["exchanges_s"] <= 1 / 0.06
    assert wide["exchanges_s"] > 1.5 * own["exchanges_s"]
    assert own["hours_per_million"] == pytest.approx(1e6 / 3600 / own["exchanges_s"], rel=1e-3)
    assert own["tokens_in_s"] > own["tokens_out_s"] > 0
    assert {own["verdict"], wide["verdict"]} <= {PASS, MARGINAL, FAIL}
    assert own["n"] == wide["n"] == record["exchanges"]
    # Answers are functions of the prompt, so what is wrong with them is too.
    faults = ("invented", "mangled", "dropped", "absence", "bloat", "secrets", "schema_failures")
    assert [own[name] for name in faults] == [wide[name] for name in faults]
    assert record["recommended"]["name"] in (own["name"], wide["name"])
    html = (tmp_path / "out" / "bench.html").read_text()
    assert "engine.window" in html
    assert "<script" not in html
    assert json.loads((tmp_path / "out" / "bench.json").read_bytes()) == record


def test_an_interrupted_sweep_goes_on(
    config: Path,
    tmp_path: Path,
    no_fsync: None,
    loads: list[EngineConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--sample", "10", "--sweep", "engine.window=4,8", "--out", str(tmp_path / "out"))
    measure = sweep_module.measure

    def stopped_at_8(config: Config, changes: Any, sample: Any, engine: Any, should_stop: Callable[[], bool]) -> Any:
        return measure(config, changes, sample, engine, lambda: config.engine.window == 8 or should_stop())

    monkeypatch.setattr(sweep_module, "measure", stopped_at_8)
    assert main(["bench", str(config), *arguments]) == 75
    assert "bench.html" in capsys.readouterr().err
    before = json.loads((tmp_path / "out" / "bench.json").read_bytes())
    assert [cell["name"] for cell in before["cells"]] == ["as configured", "engine.window=4"]
    assert not before["finished"]
    monkeypatch.setattr(sweep_module, "measure", measure)
    loads.clear()
    after = bench(capsys, config, *arguments)
    assert [config.window for config in loads] == [8]
    assert after["cells"][:2] == before["cells"]
    assert after["finished"]
    loads.clear()
    assert bench(capsys, config, *arguments) == after
    assert not loads


def test_a_damaged_cell_is_measured_again(
    config: Path, tmp_path: Path, no_fsync: None, loads: list[EngineConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--sample", "6", "--sweep", "engine.window=4", "--out", str(tmp_path / "out"))
    bench(capsys, config, *arguments)
    torn = min((tmp_path / "out" / "cells").iterdir())
    torn.write_bytes(torn.read_bytes()[:40])
    loads.clear()
    assert len(bench(capsys, config, *arguments)["cells"]) == 2
    assert len(loads) == 1


def test_a_cell_is_found_again_as_another_change(
    config: Path, tmp_path: Path, no_fsync: None, loads: list[EngineConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ("--sample", "6", "--out", str(tmp_path / "out"), "--sweep")
    before = bench(capsys, config, *shared, "engine.window=4")
    loads.clear()
    after = bench(capsys, config, *shared, "engine.window=1", "--set", "engine.window=4")
    assert not loads
    assert [cell["changes"] for cell in after["cells"]] == [{}, {"engine.window": 1}]
    assert [cell["exchanges_s"] for cell in after["cells"]] == [c["exchanges_s"] for c in before["cells"][::-1]]
    loads.clear()
    bench(capsys, config, *shared, "engine.window=4", "--set", "gate.max_density=2.0")
    assert len(loads) == 2  # other rules may earn another verdict


def test_what_to_change_is_printed(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = ("--set", "engine.invent_rate=0.9", "--sweep", "engine.invent_rate=0.0")
    assert main(["bench", str(config), "--sample", "8", "--out", str(tmp_path / "out"), *faulty]) == 0
    printed = capsys.readouterr().out
    assert "Recommended: engine.invent_rate=0.0." in printed
    assert "To take it: --set engine.invent_rate=0.0" in printed


def test_cells_that_differ_in_the_prompt_share_an_engine(
    config: Path, tmp_path: Path, no_fsync: None, loads: list[EngineConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--sample", "6", "--sweep", f"{BUDGET}=200,400", "--out", str(tmp_path / "out"))
    assert len(bench(capsys, config, *arguments)["cells"]) == 3
    assert len(loads) == 1


def test_what_cannot_run_is_a_line_with_its_reason(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = ("--sample", "6", "--out", str(tmp_path / "out"), "--sweep", "engine.model=/no/such/model")
    record = bench(capsys, config, *swept, "--set", "engine.kind=vllm", code=1)
    assert [bool(cell["failure"]) for cell in record["cells"]] == [True, True]
    assert "/no/such/model" in record["cells"][1]["failure"]
    assert record["recommended"] is None
    assert main(["bench", str(config), *swept, "--set", "engine.kind=vllm"]) == 1
    assert "No setting could be measured" in capsys.readouterr().out


def test_an_engine_that_invents_is_not_recommended_for_its_speed(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = ("--grid", "--sample", "12", "--out", str(tmp_path / "out"))
    axes = ("--sweep", "engine.invent_rate=0.9", "--sweep", "engine.delay_ms=0")
    record = bench(capsys, config, *swept, *axes)
    assert len(record["cells"]) == 4
    verdicts = {cell["name"]: cell["verdict"] for cell in record["cells"]}
    assert verdicts["engine.invent_rate=0.9"] == FAIL
    assert "invent_rate" not in record["recommended"]["name"]


def test_the_extractive_distiller_is_measured_too(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(config), "--sample", "6", "--set", "engine.kind=extractive", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "as configured" in printed
    assert "Recommended: as configured." in printed


def test_claims_are_part_of_the_hours(
    config: Path, tmp_path: Path, no_fsync: None, capsys: pytest.CaptureFixture[str]
) -> None:
    products = "distill.products=[objects, claims]"
    record = bench(
        capsys, config, "--sample", "20", "--sweep", "engine.window=1", "--set", products, "--out", str(tmp_path)
    )
    (cell,) = record["cells"]
    assert cell["windows"] == record["windows"] >= 2
    share = 1 + cell["windows"] / cell["n"]
    assert cell["exchanges_s"] <= 1 / (0.015 * share)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--sweep", "engine.windw=3"), "unknown key"),
        (("--sweep", "engine.window"), "key.sub=value"),
        (("--sweep", "engine.window=3,"), "key.sub=value"),
        (("--sweep", "engine.window=many"), "whole number"),
        (("--sample", "-1"), "--sample -1"),
        (("--source", "/no/such/folder"), "/no/such/folder"),
    ],
)
def test_bad_usage_is_refused(
    config: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(config), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_one_setting_changes_at_a_time(config: Path) -> None:
    axes = [Axis("engine.window", (1, 2, 4)), Axis(BUDGET, (100,))]
    window = [{"engine.window": 2}, {"engine.window": 4}]
    assert cells(Source(config), axes, grid=False) == [{}, *window, {BUDGET: 100}]
    assert len(cells(Source(config), axes, grid=True)) == 3 * 2


def test_axes_fit_the_engine() -> None:
    def keys(engine: EngineConfig) -> set[str]:
        return {axis.key.split(".")[1] for axis in default_axes(Config(engine=engine))}

    vllm = EngineConfig(kind="vllm", model="/no/such", max_num_seqs=64, max_num_batched_tokens=8192)
    assert keys(vllm) == {
        *("prompt_tokens", "max_num_seqs", "max_num_batched_tokens", "prompt_lookup_tokens", "structured_backend")
    }
    assert keys(EngineConfig(kind="openai")) == {"prompt_tokens", "concurrency"}
    assert keys(EngineConfig(kind="extractive")) == set()
    seqs = next(axis for axis in default_axes(Config(engine=vllm)) if axis.key == SEQS)
    assert seqs.values == (32, 128)


def test_an_axis_is_read_as_the_config_would_read_it() -> None:
    assert parse_axis("engine.enforce_eager=true,false") == Axis("engine.enforce_eager", (True, False))
    assert parse_axis("engine.model=package:a, b/c").values == ("package:a", "b/c")
    with pytest.raises(UsageError):
        parse_axis("window=3")


def test_a_key_without_a_section_is_unknown(config: Path) -> None:
    with pytest.raises(ConfigError):
        cells(Source(config), [Axis("nothing.here", (1,))], grid=False)


def test_the_fastest_of_the_best_verdict_is_recommended() -> None:
    slow, fast, wrong = changed(11.0, seqs=8), changed(20.0, seqs=16), changed(90.0, FAIL, seqs=32)
    found = best([OWN, slow, fast, wrong])
    assert found is not None
    assert (found.cell, found.safe) == (fast, True)
    assert "2.00 times" in found.reason


def test_what_the_sample_cannot_tell_apart_goes_to_fewer_changes() -> None:
    found = best([OWN, changed(10.5, seqs=16)])
    assert found is not None
    assert found.cell is OWN
    assert "cannot tell from chance" in found.reason


def test_speed_by_leaving_out_is_not_recommended() -> None:
    short = replace(changed(30.0, budget=50), dropped=int(MARGIN) + 1)
    found = best([OWN, short])
    assert found is not None
    assert found.cell is OWN
    assert best([OWN, replace(short, dropped=int(MARGIN))]).cell.changes == {BUDGET: 50}  # type: ignore[union-attr]


def test_without_a_pass_the_reason_says_so() -> None:
    found = best([replace(OWN, verdict=FAIL), changed(30.0, MARGINAL, seqs=4)])
    assert found is not None
    assert (found.cell.verdict, found.safe) == (MARGINAL, False)
    assert "no setting passes" in found.reason
    assert best([replace(OWN, failure="out of memory")]) is None


def test_the_best_of_each_axis_are_put_together() -> None:
    gains = [OWN, changed(12.0, seqs=16), changed(14.0, seqs=32), changed(13.0, budget=700)]
    assert combination(gains) == {SEQS: 32, BUDGET: 700}
    assert combination([*gains, replace(OWN, changes={SEQS: 32, BUDGET: 700})]) is None
    assert combination([OWN, changed(14.0, seqs=32), changed(10.3, budget=700)]) is None
    assert combination([OWN, changed(14.0, seqs=32), changed(13.0, FAIL, budget=700)]) is None


rates = st.builds(
    lambda rate, error, verdict, seqs: replace(changed(rate, verdict, seqs=seqs), error=error),
    st.floats(0.01, 1e4),
    st.floats(0.0, 0.5),
    st.sampled_from([PASS, MARGINAL, FAIL]),
    st.integers(1, 99),
)


@given(st.lists(rates, min_size=1, max_size=8))
def test_the_recommended_is_never_surely_slower_than_one_as_good(found: Sequence[Measured]) -> None:
    choice = best(found)
    assert choice is not None
    alike = [cell for cell in found if cell.verdict == choice.cell.verdict]
    assert not any(cell.exchanges_s > choice.cell.exchanges_s and told_apart(cell, choice.cell) for cell in alike)
    assert choice.cell.verdict == min((c.verdict for c in found), key=(PASS, MARGINAL, FAIL).index)


def test_the_page_shows_every_axis_and_escapes_what_it_is_told() -> None:
    cell = {"name": "<b>x</b>", "changes": {}, "failure": "", "exchanges_s": 4.0, "error": 0.1, "tokens_in_s": 1.0,
            "tokens_out_s": 1.0, "hours_per_million": 69.4, "load_s": 1.0, "schema_failures": 0, "invented": 0,
            "mangled": 0, "dropped": 0, "secrets": 0, "density": 1.0, "verdict": PASS}  # fmt: skip
    other = {**cell, "changes": {SEQS: 32}, "exchanges_s": 8.0}
    named = {**cell, "changes": {"engine.model": "<i>m</i>"}}
    failed = {**cell, "changes": {SEQS: 64}, "failure": "<u>no</u>"}
    found = [cell, other, named, failed]
    points = points_of(found, {SEQS: 4, "engine.model": "a"})
    assert [(p.label, p.rate, p.own) for p in points[SEQS]] == [("4", 4.0, True), ("32", 8.0, False)]
    record = {"config": "<s>c</s>", "exchanges": 9, "windows": 0, "finished": False, "cells": found,
              "recommended": {"name": "<b>", "reason": "<p>"}}  # fmt: skip
    html = page(record, points)
    assert not any(tag in html for tag in ("<b>x", "<i>m", "<u>no", "<s>c", "<p>.", "<script"))
    assert html.count("<svg") == 2
    assert html.count("<polyline") == 1
    assert "goes on" in html


@pytest.mark.slow
def test_the_demo_model_on_a_handful_of_exchanges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    cpu = SAMPLES.parents[2] / "configs" / "cpu.yaml"
    settings = ("distill.products=[objects]", f"{BUDGET}=240", "engine.max_new_tokens=16", "engine.max_num_seqs=4")
    less = [word for setting in settings for word in ("--set", setting)]
    arguments = ("--source", str(SAMPLES), "--sample", "4", "--sweep", f"{BUDGET}=160", "--out", str(tmp_path / "out"))
    record = bench(capsys, cpu, *less, *arguments)
    assert [cell["failure"] for cell in record["cells"]] == ["", ""]
    own, short = record["cells"]
    assert own["device"]
    assert own["load_s"] > short["load_s"]
    assert short["tokens_in_s"] > 0
    assert own["tokens_out_s"] > 0
