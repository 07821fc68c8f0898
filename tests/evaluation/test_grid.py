"""The committed grid is as large as promised and covers the axes; a wrong line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill.errors import ConfigError
from backfill.evaluation.grid import Signal, load_grid, packaged_grid, parse_signal
from backfill.evaluation.trec import run_name

GRID = load_grid(packaged_grid())


def test_the_committed_grid_covers_the_axes():
    configurations = GRID.configurations
    assert len(configurations) >= 107
    kinds = {(s.kind, s.distilled) for c in configurations for s in c.signals}
    assert kinds >= {(kind, layer) for kind in ("bm25", "vector", "hnsw") for layer in (True, False)}
    variants = {text for c in configurations for s in c.signals for text in s.texts}
    assert variants >= {"core", "core+context", "core+context+rooms", "core+context+files", "claims", "chunks"}
    mixed = [c for c in configurations if len({s.distilled for s in c.signals}) == 2]
    assert {c.fusion for c in mixed} == {"weighted", "combmnz", "rrf"}
    assert {c.normalization for c in mixed} == {"minmax", "p95", "zscore"}
    assert {s.m for c in configurations for s in c.signals if s.kind == "hnsw"} == {8, 16, 32, 64}


def test_names_stay_distinct_as_file_names_and_the_contract_has_its_own():
    names = [run_name(c.name) for c in GRID.configurations]
    assert len(set(names)) == len(names)
    wanted = {"stock-bm25", "verbatim-bm25", "verbatim-vector", "distilled-bm25", "distilled-vector", "claims-vector",
              "claims-bm25", "default"}  # fmt: skip
    assert wanted <= {c.name for c in GRID.main_part().configurations}


def test_every_distilled_configuration_has_a_verbatim_one_of_its_mechanism():
    by_name = {c.name: c for c in GRID.configurations}
    for one in GRID.configurations:
        if len(one.signals) == 1 and one.signals[0].distilled and "verbatim" not in one.name:
            partner = by_name[one.against]
            kinds = {s.kind for n in (partner.better_of or (partner.name,)) for s in by_name[n].signals}
            assert kinds == {one.signals[0].kind}, one.name


def test_a_signal_is_read_from_its_words():
    signal = parse_signal("hnsw core, context+rooms m=16 weight=0.5", "here")
    assert signal == Signal("hnsw", ("core", "context+rooms"), weight=0.5, m=16)


def test_texts_of_bm25_have_shares():
    assert parse_signal("bm25 verbatim, files*0.5 weight=2", "here") == Signal(
        "bm25", ("verbatim", "files"), weight=2.0, shares=(1.0, 0.5)
    )
    assert parse_signal("bm25 verbatim,files*1", "here") == Signal("bm25", ("verbatim", "files"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bm26 core", "'bm26' is no kind"),
        ("bm25 kore", "'kore' is no text"),
        ("bm25", "names no text"),
        ("vector core size=3", "unknown option 'size'"),
        ("vector core weight=much", "is no number"),
        ("stock core", "takes no other"),
        ("bm25 verbatim,files*much", "is no number"),
        ("vector core,claims*0.5", "only bm25 adds"),
    ],
)
def test_a_wrong_signal_is_named(text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        parse_signal(text, "here")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: a, signals: [stock], against: b}", "names 'b'"),
        ("{name: a, signals: [stock], fusion: rff}", "fusion 'rff'"),
        ("{name: a, signals: [stock], colour: red}", "unknown key 'colour'"),
        ("{name: a}", "exactly one of signals"),
        ("{signals: [stock]}", "without a name"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path: Path, entry: str, message: str):
    path = tmp_path / "grid.yaml"
    path.write_text(f"configurations:\n  - {entry}\n")
    with pytest.raises(ConfigError, match=message):
        load_grid(path)
