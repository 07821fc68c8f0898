"""A whole evaluation of a small set: bundle, grid, run files, report; the default is the search that ships."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from backfill.bundle import Bundle
from backfill.cli import main
from backfill.encoders import ExportedEncoder
from backfill.evaluation import trec
from backfill.evaluation.corpus import Query
from backfill.evaluation.evaluate import Labels, evaluate
from backfill.evaluation.grid import Configuration, load_grid, parse_signal
from backfill.evaluation.metrics import measure_run
from backfill.evaluation.prepare import prepare
from backfill.evaluation.product import rank_product
from backfill.evaluation.rank import rank_all
from backfill.evaluation.report import page, to_tree
from backfill.query import search
from backfill.trust import encoder_digest
from tests import bundle_fixture, fake_encoder
from tests.evaluation.sets import TOPICS, small_set

GRID = """
main: [stock-bm25, default]
configurations:
  - {name: stock-bm25, signals: [stock]}
  - {name: verbatim-bm25, signals: [bm25 verbatim], axis: words}
  - {name: verbatim-vector-cut, signals: [vector verbatim]}
  - {name: verbatim-vector-chunked, signals: [vector chunks]}
  - {name: verbatim-vector, better_of: [verbatim-vector-cut, verbatim-vector-chunked]}
  - {name: distilled-bm25, signals: [bm25 core+context], against: verbatim-bm25, axis: words}
  - {name: distilled-vector, signals: ["vector core,context"], against: verbatim-vector}
  - {name: distilled-hnsw, signals: ["hnsw core,context m=8 ef=64"]}
  - {name: mixed, signals: [bm25 verbatim, "vector core,context"], session: 0.3}
  - {name: default, product: default, against: verbatim-bm25}
  - {name: claims-vector, signals: [vector claims], against: verbatim-vector}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bundle_fixture.Fixture:
    return bundle_fixture.write_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def labels_of(made: bundle_fixture.Fixture) -> Labels:
    asked = {
        "retry": "payment worker retries",
        "migrate": "deadlock of the migration",
        "parser": "which file crashes the parser?",
        "nodate": "licence",
    }
    queries = [Query(f"q-{name}", text, category="phrase") for name, text in asked.items()]
    grades = {f"q-{name}": {made.id(name): 1.0} for name in asked}
    return Labels("fixture", tuple(queries), grades)


def test_every_configuration_is_measured_and_written(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    prepared = prepare(made.path, labels_of(made), cache=tmp_path / "cache", trust_encoder=True)
    runs = tmp_path / "runs"
    evaluation = evaluate(prepared.bundle, prepared.scores, prepared.labels, load_grid(grid), runs=runs)
    names = [line.split("name: ")[1].split(",")[0] for line in GRID.splitlines() if "name: " in line]
    assert [r.name for r in evaluation.results] == names
    for result in evaluation.results:
        run = trec.read_run(runs / trec.run_name(result.name))
        again = measure_run(run, prepared.labels.grades)
        assert again.mrr.tolist() == pytest.approx(result.measures.mrr.tolist()), result.name
        assert again.ndcg10.tolist() == pytest.approx(result.measures.ndcg10.tolist()), result.name
    assert evaluation.result("stock-bm25").measures.means()["mrr"] == 1.0
    assert {c.name: c.against for c in evaluation.pairs}["distilled-vector"] == "verbatim-vector"
    assert evaluation.result("verbatim-vector").stands_for in ("verbatim-vector-cut", "verbatim-vector-chunked")


def test_the_default_is_what_a_search_finds(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    prepared = prepare(made.path, labels_of(made), cache=tmp_path / "cache", trust_encoder=True)
    runs = tmp_path / "runs"
    evaluate(prepared.bundle, prepared.scores, prepared.labels, load_grid(grid), runs=runs)
    run = trec.read_run(runs / "default.trec")
    bundle = Bundle.open(made.path, trust_encoder=True)
    for query in prepared.labels.queries:
        hits = search(bundle, query.text, k=10, fold=False).hits
        assert run[query.query_id][:10] == [hit.exchange_id for hit in hits]


def test_in_memory_and_by_the_product_are_the_same_figures(made: bundle_fixture.Fixture, tmp_path: Path):
    prepared = prepare(made.path, labels_of(made), cache=tmp_path / "cache", trust_encoder=True)
    bundle, scores = prepared.bundle, prepared.scores
    index = replace(bundle.manifest.index, weights={"bm25": 0.5, "nearest": 0.5, "files": 0.5}, session_prior=0.6,
                    zero_cosine=0.0)  # fmt: skip
    bundle.manifest = replace(bundle.manifest, index=index)
    signals = ("bm25 verbatim,files*0.5 weight=0.5", "vector core,context,claims weight=0.5")
    one = Configuration("x", tuple(parse_signal(text, "x") for text in signals), session=0.6)
    in_memory = {r.query: r.order.tolist() for r in rank_all(scores, one)}
    for ranked in rank_product(bundle, scores, "default"):
        assert ranked.order.tolist() == in_memory[ranked.query]


def test_marks_of_a_labelled_query_are_a_filter_or_words(made: bundle_fixture.Fixture, tmp_path: Path):
    labels = Labels("x", (Query("q", 'the "worker payment" retries'),), {"q": {made.id("retry"): 1.0}})
    prepared = prepare(made.path, labels, cache=tmp_path / "cache", trust_encoder=True)
    exact, words = (next(rank_product(prepared.bundle, prepared.scores, mode)) for mode in ("default", "default-words"))
    assert len(exact.order) == 0
    assert prepared.scores.groups[0].names[words.order[0]] == made.id("retry")


def test_vectors_are_encoded_once(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    first = prepare(made.path, labels_of(made), cache=tmp_path / "cache", trust_encoder=True)
    evaluate(first.bundle, first.scores, first.labels, load_grid(grid))
    again = prepare(made.path, labels_of(made), cache=tmp_path / "cache", trust_encoder=True)
    evaluate(again.bundle, again.scores, again.labels, load_grid(grid))
    passages = again.scores.passages
    assert passages is not None
    assert passages.encoded == 0


def test_a_hostile_name_is_escaped_on_the_page(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    labels = labels_of(made)
    hostile = tuple(Query(q.query_id, q.text, category="<script>alert(1)</script>") for q in labels.queries)
    prepared = prepare(made.path, Labels("<b>", hostile, labels.grades), cache=tmp_path / "cache", trust_encoder=True)
    html = page(evaluate(prepared.bundle, prepared.scores, prepared.labels, load_grid(grid)), "<img onerror=x>")
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.fixture
def words_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None) -> None:
    """Runs of this process encode by a real ONNX model of one vector a word."""
    fake_encoder.install(monkeypatch, tmp_path)
    vocabulary = sorted({w for topic in TOPICS for w in topic.split()} | {"fail", "load", "raised", "shop", "blog"})
    encoder = bundle_fixture.write_encoder(tmp_path / "encoder", vocabulary)
    info = {
        "sha256": encoder_digest(tmp_path / "encoder"),
        "dim": encoder.dim,
        "pooling": "mean",
        "prompts": {"query": "", "passage": ""},
        "probe_cosine_min": 0.999,
        "path": "encoder",
    }
    exported = ExportedEncoder(info, tuple(sorted((tmp_path / "encoder").iterdir())))
    monkeypatch.setattr("backfill.encoders.make_embedder", lambda config: encoder)
    monkeypatch.setattr("backfill.encoders.export_encoder", lambda config: exported)


def run_eval(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["eval", *words, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    tree: dict[str, Any] = json.loads(lines[0])
    return tree


@pytest.mark.usefixtures("words_encoder")
def test_a_set_becomes_a_bundle_and_a_report(tmp_path: Path, grid: Path, capsys: pytest.CaptureFixture[str]):
    folder, out = small_set(tmp_path / "set"), tmp_path / "out"
    words = ["--corpus", str(folder), "--out", str(out), "--grid", str(grid), "--cache", str(tmp_path / "cache")]
    tree = run_eval(capsys, *words)
    assert tree["queries"] == 12
    assert tree["baseline"] == "stock-bm25"
    by_name = {c["name"]: c for c in tree["configurations"]}
    # Each scope has a document about each topic, and only the one in the query's own scope counts.
    assert by_name["stock-bm25"]["mrr"] == 1.0
    assert by_name["verbatim-bm25"]["by_category"] == [
        {"category": "conceptual", "queries": 12, "mrr": 1.0, "p1": 1.0, "ndcg10": 1.0, "r5": 1.0, "r10": 1.0,
         "mean_grade": 0.2}
    ]  # fmt: skip
    assert set(by_name["default"]) >= {"name", "mrr", "p1", "ndcg10", "r5", "r10", "delta", "ci95", "p", "p_holm",
                                       "d", "mde", "by_category"}  # fmt: skip
    run = trec.read_run(out / "runs" / "stock-bm25.trec")
    assert run["blog-2"][0] == "d2"
    assert pq.read_table(out / "eval.parquet").num_rows == len(tree["configurations"])
    assert pq.read_table(out / "queries.parquet").num_rows == 12 * len(tree["configurations"])
    assert (out / "eval.html").read_text().startswith("<!doctype html>")
    assert run_eval(capsys, *words)["configurations"][0]["mrr"] == 1.0  # resumes over what is there


@pytest.mark.usefixtures("words_encoder")
def test_claims_and_objects_of_a_set_stand_beside_its_exchanges(
    tmp_path: Path, grid: Path, capsys: pytest.CaptureFixture[str]
):
    folder, out = small_set(tmp_path / "set"), tmp_path / "out"
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    rows[2] |= {"exchange_core": "Raised the limit of the image cache.", "specific_context": "image_limit to 42"}
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    claims = [{"text": f"The {topic} of the blog fail under load.", "scope": "blog", "src": [f"d{number}"]}
              for number, topic in enumerate(TOPICS)]  # fmt: skip
    (folder / "claims.jsonl").write_text("".join(json.dumps(claim) + "\n" for claim in claims))
    words = ["--corpus", str(folder), "--out", str(out), "--grid", str(grid), "--cache", str(tmp_path / "cache")]
    by_name = {c["name"]: c for c in run_eval(capsys, *words)["configurations"]}
    assert by_name["stock-bm25"]["mrr"] == by_name["default"]["mrr"] == 1.0
    run = trec.read_run(out / "runs" / "claims-vector.trec")
    assert [run[f"blog-{number}"][0] for number in range(6)] == [f"d{number}" for number in range(6)]
    bundle = Bundle.open(out / "run" / "bundle", trust_encoder=True)
    assert [claim.text for claim in bundle.claims("image cache").claims][:1] == [claims[2]["text"]]
    hit = search(bundle, "image cache of the shop", fold=False).hits[0]
    assert (hit.exchange_core, hit.specific_context) == ("Raised the limit of the image cache.", "image_limit to 42")


@pytest.mark.usefixtures("words_encoder")
def test_objects_without_a_context_are_measured_by_what_they_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, grid = small_set(tmp_path / "set"), tmp_path / "grid.yaml"
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    for row in rows:
        row["exchange_core"] = row["user"]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    grid.write_text(
        "main: [stock-bm25, both, context-only]\n"
        "configurations:\n"
        '  - {name: stock-bm25, signals: ["stock"]}\n'
        '  - {name: both, signals: ["vector core,context"]}\n'
        '  - {name: context-only, signals: ["vector context"]}\n'
    )
    words = [
        "--corpus",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--grid",
        str(grid),
        "--cache",
        str(tmp_path / "c"),
    ]
    tree = run_eval(capsys, *words)
    assert {c["name"]: c["mrr"] for c in tree["configurations"]} == {"stock-bm25": 1.0, "both": 1.0}
    assert tree["skipped"] == [{"name": "context-only", "reason": "no exchange has a text for context"}]


@pytest.mark.parametrize("words", [[], ["--corpus", "x", "--queries", "y"], ["bundle"], ["bundle", "--queries", "q"]])
def test_options_that_do_not_fit_are_bad_usage(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["eval", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


def test_the_report_states_what_it_rests_on(made: bundle_fixture.Fixture, grid: Path, tmp_path: Path):
    labels = labels_of(made)
    written = tuple(Query(q.query_id, q.text, synthesised=True) for q in labels.queries)
    prepared = prepare(made.path, Labels("x", written, labels.grades), cache=tmp_path / "cache", trust_encoder=True)
    tree = to_tree(evaluate(prepared.bundle, prepared.scores, prepared.labels, load_grid(grid)))
    assert "written by an engine" in tree["warnings"][0]
    assert tree["tokens"]["verbatim"] > tree["tokens"]["distilled"]
