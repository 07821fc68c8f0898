"""Runs a grid over a bundle and labelled queries: rankings, measures, comparisons and choices by halves.

Reads a bundle and labels, writes run files where asked. Deliberately absent: tables and pages (`report.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backfill.bundle import Bundle
from backfill.errors import UsageError
from backfill.evaluation import trec
from backfill.evaluation.collection import Collection
from backfill.evaluation.corpus import Query
from backfill.evaluation.grid import Configuration, Grid
from backfill.evaluation.metrics import Measures
from backfill.evaluation.product import rank_product
from backfill.evaluation.rank import Ranked, measure, rank_all
from backfill.evaluation.scores import Scores
from backfill.evaluation.statistics import MARGIN, Choice, Paired, bonferroni, choose_by_halves, holm, paired_all

BASELINE = "stock-bm25"
# Of configurations that no contract asks for in full; a reciprocal rank beyond it is below 0.01.
RUN_DEPTH = 100
LONG_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Result:
    """One configuration over all graded queries. `stands_for` is the one that a `better_of` chose."""

    configuration: Configuration
    measures: Measures
    bytes_per_exchange: float
    seconds: float
    stands_for: str = ""

    @property
    def name(self) -> str:
        return self.configuration.name


@dataclass(frozen=True, slots=True)
class Comparison:
    """A result against another, with p values adjusted over its family."""

    name: str
    against: str
    paired: Paired
    p_holm: float
    p_bonferroni: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """tokens_est per exchange: verbatim, distilled, and how many times smaller; `long` is over 300 tokens and more."""

    verbatim: float
    distilled: float
    ratio: float
    long_exchanges: int
    long_ratio: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that a report shows; `main` are the configurations that are shown in short tables too, `notes` what
    must stand above any result."""

    name: str
    queries: tuple[Query, ...]
    relevant: float
    margin: float
    baseline: str
    results: tuple[Result, ...]
    against_baseline: Mapping[str, Comparison]
    pairs: tuple[Comparison, ...]
    choices: Mapping[str, Choice]
    tokens: Tokens
    skipped: Mapping[str, str]
    warnings: tuple[str, ...]
    seconds: float
    main: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def result(self, name: str) -> Result:
        """The result of a configuration. Raises KeyError."""
        return {r.name: r for r in self.results}[name]


@dataclass(frozen=True, slots=True)
class Labels:
    """Graded queries and their grades by document name."""

    name: str
    queries: tuple[Query, ...]
    grades: Mapping[str, Mapping[str, float]]

    def graded(self) -> Labels:
        """The same without queries that have no grade. Raises UsageError where none is left."""
        kept = tuple(query for query in self.queries if query.query_id in self.grades)
        if not kept:
            raise UsageError("no query has a grade", hint="grades name queries by their id, in the column `query`")
        return Labels(self.name, kept, self.grades)


def evaluate(
    bundle: Bundle,
    scores: Scores,
    labels: Labels,
    grid: Grid,
    *,
    relevant: float = 1.0,
    baseline: str = BASELINE,
    margin: float = MARGIN,
    runs: Path | None = None,
    run_depth: int = RUN_DEPTH,
    notes: Sequence[str] = (),
    on_done: Callable[[Result], None] = lambda result: None,
) -> Evaluation:
    """Ranks and measures every configuration of the grid; `runs` gets a run file of each, the report `notes`.

    `scores` holds the matrices over the labels' queries. Raises UsageError where the baseline is not in the grid.
    """
    started = time.perf_counter()
    runner = _Runner(bundle, scores, labels, relevant, runs, run_depth, frozenset(grid.main))
    results: dict[str, Result] = {}
    skipped: dict[str, str] = {}
    for configuration in grid.configurations:
        reason = cannot(configuration, scores, results)
        if reason:
            skipped[configuration.name] = reason
            continue
        if configuration.better_of:
            result = runner.better(configuration, [results[n] for n in configuration.better_of if n in results])
        else:
            result = runner.run(configuration)
        results[configuration.name] = result
        on_done(result)
    if baseline not in results:
        raise UsageError(f"the baseline {baseline!r} is not among the measured configurations")
    ordered = tuple(results.values())
    return Evaluation(
        name=labels.name,
        queries=scores.queries,
        relevant=relevant,
        margin=margin,
        baseline=baseline,
        results=ordered,
        against_baseline={c.name: c for c in _compare([(r, results[baseline]) for r in ordered], margin)},
        pairs=tuple(_compare([(r, results[r.configuration.against]) for r in ordered
                              if r.configuration.against in results], margin)),
        choices=_choices(ordered, results[baseline]),
        tokens=tokens_of(scores.collection),
        skipped=skipped,
        warnings=tuple(_warnings(labels, scores)),
        seconds=round(time.perf_counter() - started, 2),
        main=grid.main,
        notes=tuple(notes),
    )  # fmt: skip


class _Runner:
    """Ranks configurations over one set of labels."""

    def __init__(
        self,
        bundle: Bundle,
        scores: Scores,
        labels: Labels,
        relevant: float,
        runs: Path | None,
        run_depth: int,
        main: frozenset[str],
    ) -> None:
        self._bundle, self._scores, self._relevant = bundle, scores, relevant
        self._runs, self._run_depth, self._main = runs, run_depth, main
        n_queries = len(scores.queries)
        self._found: list[npt.NDArray[np.float64]] = [np.zeros(0)] * n_queries
        self._held: list[npt.NDArray[np.float64]] = [np.zeros(0)] * n_queries
        for group in scores.groups:
            for query in group.queries:
                graded = labels.grades[scores.queries[query].query_id]
                self._found[query] = np.array([graded.get(name, 0.0) for name in group.names])
                self._held[query] = np.array(list(graded.values()))

    def run(self, configuration: Configuration) -> Result:
        """Ranks, measures and writes one configuration."""
        started = time.perf_counter()
        if configuration.product:
            ranked = list(rank_product(self._bundle, self._scores, configuration.product))
        else:
            ranked = list(rank_all(self._scores, configuration))
        measures = measure(self._scores, iter(ranked), self._found, self._held, self._relevant)
        self._write(configuration.name, ranked)
        n_vectors = sum(self._scores.n_vectors(signal) for signal in configuration.signals)
        size = 2 * n_vectors * self._scores.query_rows.shape[1] if n_vectors else 0
        seconds = round(time.perf_counter() - started, 3)
        return Result(configuration, measures, size / max(len(self._scores.collection), 1), seconds)

    def better(self, configuration: Configuration, candidates: Sequence[Result]) -> Result:
        """The candidate with the higher MRR, under the configuration's own name; its run file too."""
        best = max(candidates, key=lambda result: float(result.measures.mrr.mean()))
        chosen = best.stands_for or best.name
        if self._runs is not None:
            source = self._runs / trec.run_name(best.name)
            (self._runs / trec.run_name(configuration.name)).write_bytes(source.read_bytes())
        return replace(best, configuration=configuration, stands_for=chosen)

    def _write(self, name: str, ranked: Sequence[Ranked]) -> None:
        if self._runs is None:
            return
        depth = None if name in self._main or not self._run_depth else self._run_depth
        trec.write_run(self._runs / trec.run_name(name), name, self._named(ranked, depth))

    def _named(self, ranked: Sequence[Ranked], depth: int | None) -> Iterator[tuple[str, list[str]]]:
        for one in ranked:
            names = self._scores.groups[one.group].names
            yield self._scores.queries[one.query].query_id, [names[at] for at in one.order[:depth]]


def cannot(configuration: Configuration, scores: Scores, results: Mapping[str, Result]) -> str:
    """Why a configuration cannot be measured here, or nothing."""
    if configuration.better_of:
        return "" if any(name in results for name in configuration.better_of) else "none of its choices was measured"
    texts = {field for s in configuration.signals for text in s.texts for field in text.split("+")}
    if "claims" in texts and not scores.collection.claims:
        return "the bundle has no claims"
    if configuration.product == "claims" and not scores.collection.claims:
        return "the bundle has no claims"
    wants_vectors = any(s.kind in ("vector", "hnsw") for s in configuration.signals)
    if (wants_vectors or configuration.product.endswith("vector")) and not scores.has_vectors:
        return "the bundle has no encoder"
    # A signal is what its texts give together: objects without a context still have the vectors of their cores.
    empty = [s.texts for s in configuration.signals if s.kind != "stock" and not any(map(scores.has_text, s.texts))]
    return f"no exchange has a text for {' or '.join(empty[0])}" if empty else ""


def _compare(pairs: Sequence[tuple[Result, Result]], margin: float) -> list[Comparison]:
    found = paired_all([(a.measures.mrr, b.measures.mrr) for a, b in pairs], margin=margin)
    # A result against itself is no test and does not count in the family.
    real = [i for i, (a, b) in enumerate(pairs) if a.name != b.name]
    p_values = [found[i].p for i in real]
    held = dict(zip(real, zip(holm(p_values), bonferroni(p_values), strict=True), strict=True))
    return [
        Comparison(a.name, b.name, found[i], *held.get(i, (1.0, 1.0)), ratio=_ratio(a, b))
        for i, (a, b) in enumerate(pairs)
    ]


def _ratio(a: Result, b: Result) -> float:
    below = float(b.measures.mrr.mean())
    return float(a.measures.mrr.mean()) / below if below else 0.0


def _choices(results: Sequence[Result], baseline: Result) -> dict[str, Choice]:
    """Per axis of the grid with more than one configuration: the best on one half, reported on the other."""
    axes: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    for result in results:
        if result.configuration.axis and not result.stands_for:
            axes.setdefault(result.configuration.axis, {})[result.name] = result.measures.mrr
    few = len(baseline.measures.mrr) < 4
    return {} if few else {
        axis: choose_by_halves(values, baseline.measures.mrr) for axis, values in axes.items() if len(values) > 1
    }  # fmt: skip


def tokens_of(collection: Collection) -> Tokens:
    """Mean tokens of verbatim and distilled text over the exchanges."""
    verbatim, distilled = collection.n_tokens["verbatim"], collection.n_tokens["distilled"]
    long = verbatim >= LONG_TOKENS
    return Tokens(
        verbatim=float(verbatim.mean()) if len(verbatim) else 0.0,
        distilled=float(distilled.mean()) if len(distilled) else 0.0,
        ratio=float(verbatim.sum() / max(int(distilled.sum()), 1)),
        long_exchanges=int(long.sum()),
        long_ratio=float(verbatim[long].sum() / max(int(distilled[long].sum()), 1)),
    )


def _warnings(labels: Labels, scores: Scores) -> Iterator[str]:
    known = {(scores.queries[q].query_id, name) for g in scores.groups for q in g.queries for name in g.names}
    lost = sum((query.query_id, doc) not in known for query in scores.queries for doc in labels.grades[query.query_id])
    if lost:
        yield f"{lost} grades name documents that the bundle does not show in the query's scope"
    if any(query.synthesised for query in scores.queries):
        yield "some queries were written by an engine: read paired differences only, no absolute figure"
    if len({query.scope for query in scores.queries}) > 1:
        yield "queries share scopes (conversations), so intervals that take them as independent are too narrow"
