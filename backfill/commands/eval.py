"""Measure retrieval: a grid of configurations over a bundle with labelled queries, or over a labelled set.

`eval BUNDLE --queries Q --grades G` takes queries (JSONL: id, text, and optionally scope, category) and grades (TSV:
query, doc, grade; doc is an exchange id). `eval --corpus DIR` makes a bundle of a set (corpus.jsonl, queries.jsonl,
qrels.tsv) first. With --out, tables, an HTML page, the grades and a TREC run file per configuration are written.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backfill.config import Config
    from backfill.evaluation.evaluate import Evaluation, Result
    from backfill.evaluation.grid import Grid
    from backfill.evaluation.prepare import Prepared
    from backfill.progress import Reporter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("bundle", nargs="?", type=Path, metavar="BUNDLE")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="queries as JSONL (id, text, scope, category)")
    parser.add_argument("--grades", type=Path, metavar="FILE", help="grades as TSV with the header query, doc, grade")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a labelled set to make a bundle of")
    parser.add_argument("--config", type=Path, metavar="FILE", help="how to distill the set (extractive unless told)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")
    parser.add_argument("--ungated", action="store_true", help="let an LLM engine run without a recorded PASS")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where reports, runs and the set's bundle go")
    parser.add_argument("--grid", default="full", metavar="full|main|FILE", help="which configurations (full)")
    parser.add_argument("--relevant", type=float, default=1.0, metavar="GRADE", help="the least grade that counts (1)")
    parser.add_argument("--baseline", default="stock-bm25", metavar="NAME", help="what deltas are taken from")
    parser.add_argument("--margin", type=float, default=0.03, metavar="MRR", help="margin of non-inferiority (0.03)")
    parser.add_argument(
        "--run-depth", type=int, default=100, metavar="N", help="lines a query in runs that are not main; 0: all (100)"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where vectors are kept between evaluations")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")


def run(args: argparse.Namespace) -> int:
    """Evaluates and prints; raises UsageError (exit code 2) for options that do not fit together."""
    import tempfile

    from backfill.commands.printing import print_json, print_lines
    from backfill.errors import UsageError
    from backfill.evaluation.report import table_lines, to_tree, write_report
    from backfill.progress import Reporter

    if (args.corpus is None) == (args.bundle is None or args.queries is None or args.grades is None):
        raise UsageError(
            "say either BUNDLE --queries FILE --grades FILE, or --corpus DIR",
            hint="`backfill eval-queries` makes queries of your own, `backfill eval-grade` grades without labels",
        )
    reporter = Reporter(quiet=args.json)
    grid = _grid(args.grid)
    with tempfile.TemporaryDirectory(prefix="backfill-eval-") as scratch:
        prepared = _prepared(args, args.out or Path(scratch), reporter)
        evaluation = _evaluate(args, prepared, grid, reporter)
        if args.out is not None:
            write_report(evaluation, args.out)
    if args.json:
        print_json(to_tree(evaluation))
    else:
        print_lines(("", line) for line in table_lines(evaluation))
        if args.out is not None:
            print(f"written to {args.out}: eval.html, eval.json, eval.parquet, queries.parquet, runs/*.trec")
    return 0


def _grid(name: str) -> Grid:
    from backfill.evaluation.grid import load_grid, packaged_grid

    if name in ("full", "main"):
        grid = load_grid(packaged_grid())
        return grid if name == "full" else grid.main_part()
    return load_grid(Path(name))


def _prepared(args: argparse.Namespace, out: Path, reporter: Reporter) -> Prepared:
    from backfill.evaluation.corpus import read_corpus, read_grades, read_queries
    from backfill.evaluation.evaluate import Labels
    from backfill.evaluation.ingest import build_bundle
    from backfill.evaluation.prepare import prepare

    if args.corpus is None:
        labels = Labels(args.queries.stem, read_queries(args.queries), read_grades(args.grades))
        return prepare(args.bundle, labels, cache=args.cache, trust_encoder=args.trust_encoder)
    corpus = read_corpus(args.corpus)
    for warning in corpus.warnings:
        reporter.warn(warning)
    labels = Labels(corpus.name, corpus.queries, corpus.grades).graded()
    bundle = build_bundle(
        corpus, args.corpus, out / "run", _config(args), reporter, ungated=args.ungated, cache=args.cache
    )
    # The run that was just made here is what exported the encoder.
    return prepare(bundle, labels, cache=args.cache, trust_encoder=True)


def _config(args: argparse.Namespace) -> Config:
    from backfill.config import load_config

    # The null device is an empty file: all defaults.
    return load_config(args.config or Path(os.devnull), overrides=tuple(args.set))


def _evaluate(args: argparse.Namespace, prepared: Prepared, grid: Grid, reporter: Reporter) -> Evaluation:
    from backfill.evaluation.evaluate import evaluate

    for warning in prepared.warnings:
        reporter.warn(warning)
    with reporter.stage("evaluate", "configurations", len(grid.configurations)) as view:

        def done(result: Result) -> None:
            view.advance(1, result.name)

        return evaluate(
            prepared.bundle,
            prepared.scores,
            prepared.labels,
            grid,
            relevant=args.relevant,
            baseline=args.baseline,
            margin=args.margin,
            runs=args.out / "runs" if args.out else None,
            run_depth=args.run_depth,
            on_done=done,
        )
