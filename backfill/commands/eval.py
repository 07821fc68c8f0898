"""Measure retrieval: a grid of configurations over a bundle with labelled queries, or over a labelled set.

`eval BUNDLE --queries Q --grades G` takes queries (JSONL: id, text, and optionally scope, category) and grades (TSV:
query, doc, grade; doc is an exchange id); with `--grader CONFIG` in the place of --grades, engines grade what any
configuration finds. `eval --corpus DIR` makes a bundle of a set (corpus.jsonl, queries.jsonl, qrels.tsv) first.
`eval words --corpus DIR...` compares BM25 with a common package's, without a bundle; `eval queries BUNDLE --out FILE`
writes queries of one's own; `eval answers --corpus DIR` asks whether answers are delivered. With --out, tables, an
HTML page, grades and a TREC run file per configuration are written.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill.commands.printing import clean, clean_line
from backfill.errors import UsageError

if TYPE_CHECKING:
    from backfill.config import Config
    from backfill.engines.base import Engine
    from backfill.evaluation.corpus import Corpus
    from backfill.evaluation.evaluate import Evaluation, Result
    from backfill.evaluation.graders import Grader
    from backfill.evaluation.grid import Grid
    from backfill.evaluation.prepare import Prepared
    from backfill.progress import Reporter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("words", nargs="*", metavar="[words|queries|answers] BUNDLE")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="queries as JSONL (id, text, scope, category)")
    parser.add_argument("--grades", type=Path, metavar="FILE", help="grades as TSV with the header query, doc, grade")
    parser.add_argument("--corpus", type=Path, nargs="+", default=[], metavar="DIR",
                        help="a labelled set to make a bundle of; words: any number of sets")  # fmt: skip
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
    parser.add_argument("--grader", action="append", default=[], type=Path, metavar="CONFIG",
                        help="an engine that grades or judges (its `engine` section); repeatable")  # fmt: skip
    parser.add_argument("--answerer", type=Path, metavar="CONFIG", help="answers: an engine that answers from contexts")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="have engines judge N queries only (all)")
    parser.add_argument("--tie-break", type=Path, metavar="CONFIG", help="the engine that decides where there is none")
    parser.add_argument("--log", type=Path, metavar="FILE", help="queries: import a query log (JSONL, or one a line)")
    parser.add_argument("--write", type=int, default=0, metavar="N", help="queries: have --grader write N, so marked")
    parser.add_argument("--budget", type=int, default=4000, metavar="CHARS", help="answers: size of a context (4000)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where vectors are kept between evaluations")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")


def run(args: argparse.Namespace) -> int:
    """Evaluates and prints; raises UsageError (exit code 2) for options that do not fit together."""
    import tempfile

    from backfill.commands.printing import print_json, print_lines
    from backfill.evaluation import tasks
    from backfill.evaluation.report import table_lines, to_tree, write_report
    from backfill.progress import Reporter

    _take_words(args)
    reporter = Reporter(quiet=args.json)
    if args.task == "words":
        from backfill.evaluation.words import word_table

        record, lines = word_table(args.corpus, args.relevant)
    elif args.task == "queries":
        record, lines = tasks.queries(args.bundle, args.out, log=args.log, writer=_engine(args), wanted=args.write)
    else:
        with tempfile.TemporaryDirectory(prefix="backfill-eval-") as scratch:
            prepared = _prepared(args, args.out or Path(scratch), reporter)
            if args.task == "answers":
                record, lines = _answers(args, prepared)
            else:
                prepared, before = _graded(args, prepared, args.out or Path(scratch))
                evaluation = _evaluate(args, prepared, _grid(args.grid), before, reporter)
                record, lines = to_tree(evaluation), table_lines(evaluation)
                if args.out is not None:
                    write_report(evaluation, args.out)
                    lines.append(f"written to {args.out}: eval.html, eval.json, eval.parquet, queries.parquet, runs/")
    if args.json:
        print_json(record)
    else:
        print_lines(("", clean_line(line)) if "  " not in line else ("", clean(line)) for line in lines)
    return 0


def _take_words(args: argparse.Namespace) -> None:
    """Sets `task` and `bundle`. Raises UsageError for words and options that do not fit together."""
    words = list(args.words)
    args.task = words.pop(0) if words and words[0] in ("words", "queries", "answers") else "eval"
    args.bundle = Path(words.pop(0)) if words else None
    labelled = args.queries is not None and (args.grades is not None or bool(args.grader))
    fits = {
        "eval": len(args.corpus) == (args.bundle is None) and labelled == (not args.corpus),
        "words": args.bundle is None and bool(args.corpus),
        "queries": args.bundle is not None and args.out is not None and not args.corpus,
        "answers": args.bundle is None and len(args.corpus) == 1,
    }
    if words or not fits[args.task]:
        raise UsageError(
            "say BUNDLE --queries FILE with --grades FILE or --grader CONFIG, or --corpus DIR; "
            "or words --corpus DIR...; or queries BUNDLE --out FILE; or answers --corpus DIR",
            hint="`backfill eval --help` tells more",
        )


def _grid(name: str) -> Grid:
    from backfill.evaluation.grid import load_grid, packaged_grid

    if name in ("full", "main"):
        grid = load_grid(packaged_grid())
        return grid if name == "full" else grid.main_part()
    return load_grid(Path(name))


def _prepared(args: argparse.Namespace, out: Path, reporter: Reporter) -> Prepared:
    from backfill.evaluation.corpus import read_grades, read_queries
    from backfill.evaluation.evaluate import Labels
    from backfill.evaluation.ingest import build_bundle
    from backfill.evaluation.prepare import prepare

    if not args.corpus:
        grades = read_grades(args.grades) if args.grades else {}
        queries = read_queries(args.queries)
        queries = queries[: args.limit or None] if args.grader else queries
        labels = Labels(args.queries.stem, queries, grades)
        return prepare(
            args.bundle, labels, cache=args.cache, trust_encoder=args.trust_encoder, needs_grades=bool(args.grades)
        )
    corpus = _corpus(args)
    for warning in corpus.warnings:
        reporter.warn(warning)
    labels = Labels(corpus.name, corpus.queries, corpus.grades).graded()
    bundle = build_bundle(
        corpus, args.corpus[0], out / "run", _config(args), reporter, ungated=args.ungated, cache=args.cache
    )
    # The run that was just made here is what exported the encoder.
    return prepare(bundle, labels, cache=args.cache, trust_encoder=True)


def _corpus(args: argparse.Namespace) -> Corpus:
    from backfill.evaluation.corpus import read_corpus

    return read_corpus(args.corpus[0])


def _engine(args: argparse.Namespace) -> Engine | None:
    return _grader(args.grader[0]).engine if args.grader else None


def _grader(path: Path) -> Grader:
    from backfill.config import load_config
    from backfill.engines import make_engine
    from backfill.evaluation.graders import Grader, family_of

    engine = load_config(path).engine
    return Grader(path.stem, make_engine(engine), family_of(engine.model))


def _answers(args: argparse.Namespace, prepared: Prepared) -> tuple[dict[str, Any], list[str]]:
    from backfill.evaluation.answers import answers

    if args.grader and args.out is None:
        raise UsageError("judges need --out DIR for their logs, so that no verdict is paid twice")
    judges = [_grader(path) for path in args.grader]
    answerer = _grader(args.answerer) if args.answerer else None
    try:
        return answers(prepared, _corpus(args), args.budget, judges=judges, answerer=answerer, limit=args.limit,
                       folder=args.out and args.out / "grades")  # fmt: skip
    finally:
        for one in [*judges, *([answerer] if answerer else [])]:
            one.engine.close()


def _graded(args: argparse.Namespace, prepared: Prepared, out: Path) -> tuple[Prepared, list[str]]:
    """The labels by graders, and what is to be said of them first; on a labelled set, how graders agree with it."""
    from backfill.evaluation import tasks

    if not args.grader:
        return prepared, []
    graders = [_grader(path) for path in args.grader]
    last = _grader(args.tie_break) if args.tie_break else None
    try:
        return tasks.grade(prepared, _grid(args.grid), graders, last, out, args.limit)
    finally:
        for grader in [*graders, *([last] if last else [])]:
            grader.engine.close()


def _config(args: argparse.Namespace) -> Config:
    from backfill.config import load_config

    # The null device is an empty file: all defaults.
    return load_config(args.config or Path(os.devnull), overrides=tuple(args.set))


def _evaluate(
    args: argparse.Namespace, prepared: Prepared, grid: Grid, notes: list[str], reporter: Reporter
) -> Evaluation:
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
            notes=notes,
            on_done=done,
        )
