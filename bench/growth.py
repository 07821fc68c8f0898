"""How every line grows: its cost at three sizes, and the exponent of cost = c * size^k with a 95% interval.

Costs are CPU seconds of this process, all threads together, since the clock of a shared machine measures the others;
sizes take turns, so that drift falls on all alike. Of the real engine it is wall time at a full window; tokens and
bytes are counted. A fixed share (imports, a month's files) makes an exponent smaller, so below 1 is no loss. Writes the
points and their plots into `bench/plots`; `python -m bench.growth [--quick] [--sizes N N N] LINE...` fits some alone.
Goals: at most 1.15 unless the interval holds 1, the whole query below 0.5.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backfill.errors import BackfillError
from bench.fit import Fit, fit
from bench.harness import Result, cpu_timed, machine

GOAL, QUERY_GOAL = 1.15, 0.5
QUERIES = 15
Cost = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: `make` sets it up, given a scratch folder, and returns the cost of a size."""

    name: str
    unit: str
    sizes: tuple[int, int, int]
    quick: tuple[int, int, int]
    make: Callable[[Path], Cost]
    goal: float = GOAL
    of: str = "CPU s"


def run(quick: bool) -> Result:
    """Fits every line; see the module."""
    from bench import batch, plots

    found: dict[str, Fit] = {}
    missed: list[str] = []
    left_out: list[str] = []
    drawn: list[plots.Point] = []
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        try:
            for line in LINES:
                try:
                    found[line.name], points = fitted(line, Path(folder), quick)
                except BackfillError as error:  # no engine for this machine, say
                    print(f"  {line.name} is left out: {error}")
                    left_out.append(line.name)
                    continue
                missed += [line.name] if _missed(line, found[line.name]) else []
                if line.name.startswith("query"):
                    drawn += [plots.Point("query-size", line.name, size, 1e3 * cost) for size, cost in points]
        finally:
            batch.end_demo(Path(folder))
    print(f"  plots: {plots.draw(drawn)}")
    worst = max((name for name in found if not name.startswith("query")), key=lambda name: found[name].exponent)
    return Result(
        name="growth",
        value=found[worst].exponent,
        unit="exponent of the steepest line",
        peers={name: one.exponent for name, one in found.items()},
        limit="1: everything is read once",
        ratio=found[worst].exponent / GOAL,
        goal=f"every exponent <= {GOAL}, the whole query < {QUERY_GOAL}",
        met=False if missed else None if left_out else True,
        notes=f"steepest: {worst}; above the goal: {', '.join(missed) or 'none'}; "
        f"left out: {', '.join(left_out) or 'none'}; "
        + ", ".join(f"{name} {one.low:.2f} to {one.high:.2f}" for name, one in found.items()),
    )


def _missed(line: Line, found: Fit) -> bool:
    """Above the goal; where that is to grow like the input, only if the interval excludes it."""
    return found.exponent > line.goal and (found.low > 1 or line.goal < 1)


def fitted(line: Line, folder: Path, quick: bool) -> tuple[Fit, list[tuple[float, float]]]:
    """A line's fit and its points, printed as they come."""
    points = _measured(line, folder, line.quick if quick else line.sizes, _turns(line, quick))
    found = fit(points)
    told = " ".join(f"{size:,}: {cost:.4g}" for size, cost in sorted(points))
    print(f"  {line.name:<22} {found}  [{line.of} at {line.unit}: {told}]", flush=True)
    return found, points


def _turns(line: Line, quick: bool) -> int:
    if quick:
        return 1 if line.of == "wall s" else 2
    return 3


def _measured(line: Line, folder: Path, sizes: tuple[int, int, int], turns: int) -> list[tuple[float, float]]:
    """Points of all turns; a counted line is the same every time. The least size warms up what all have in common."""
    cost = line.make(folder)
    if not line.of.endswith(" s"):
        return [(size, cost(size)) for size in sizes]
    cost(sizes[0])
    return [(size, cost(size)) for _ in range(turns) for size in sizes]


def _scan(folder: Path) -> Cost:
    from bench.scan import scan_once
    from bench.scan_corpus import write_corpus

    written: dict[int, Path] = {}

    def cost(exchanges: int) -> float:
        if exchanges not in written:
            written[exchanges] = folder / f"scan-{exchanges}"
            written[exchanges].mkdir()
            write_corpus(written[exchanges], 1, exchanges)
        return cpu_timed(lambda: scan_once(folder, written[exchanges], "secrets"))

    return cost


def _overhead(folder: Path) -> Cost:
    from bench.overhead import once

    seed = iter(range(1_000, 10_000))
    return lambda n: once((next(seed), n))


def _extractive(folder: Path) -> Cost:
    from backfill.extractive import extract
    from bench.overhead import distinct_rows

    seed = iter(range(20_000, 30_000))

    def cost(n: int) -> float:
        rows = distinct_rows(next(seed), n)
        return cpu_timed(lambda: [extract(row, generation=0, fingerprint="f") for row in rows])

    return cost


def _tokens(folder: Path) -> Cost:
    from bench.tokens import counted, sampled

    return lambda n: sum(counted(sampled()[:n])["wire"])


def _embed(folder: Path) -> Cost:
    from backfill.config import EmbedderConfig
    from backfill.encoders import make_embedder
    from bench.embed import MODEL, texts_of

    embedder = make_embedder(EmbedderConfig(model=MODEL, device="cpu"))
    seed = iter(range(1_000, 10_000))

    def cost(n: int) -> float:
        texts = texts_of(n, next(seed))
        return cpu_timed(lambda: embedder.encode(texts, kind="passage"))

    return cost


def _bm25_build(folder: Path) -> Cost:
    from bench import synthetic
    from bench.bm25 import build_field

    def cost(n: int) -> float:
        _, texts = synthetic.texts(n)
        return cpu_timed(lambda: build_field(texts))

    return cost


def _search(mode: str) -> Callable[[Path], Cost]:
    """Mean CPU seconds of a query that was not asked before, hits read, without encoding."""
    from bench import synthetic

    def make(folder: Path) -> Cost:
        asked: dict[int, Any] = {}

        def cost(n: int) -> float:
            if n not in asked:
                queries = synthetic.queries(n, 6 * QUERIES, seed=len(mode))
                asked[n] = synthetic.opened(n, queries), iter(queries)
            opened, queries = asked[n]
            chosen = [next(queries) for _ in range(QUERIES)]
            return statistics.median(cpu_timed(lambda q=q: opened.search(q.text, mode=mode)) for q in chosen)  # type: ignore[misc]

        return cost

    return make


def _by_hand(folder: Path) -> Cost:
    from bench import synthetic
    from bench.query import ByHand

    asked: dict[int, Any] = {}

    def cost(n: int) -> float:
        if n not in asked:
            asked[n] = ByHand(n), iter(synthetic.queries(n, 6 * QUERIES))
        search, queries = asked[n]
        chosen = [next(queries) for _ in range(QUERIES)]
        return statistics.median(cpu_timed(lambda q=q: search(q)) for q in chosen)  # type: ignore[misc]

    return cost


def _vectors(folder: Path) -> Cost:
    import numpy as np

    from backfill.vector_space import VectorSpace
    from bench import synthetic

    spaces: dict[int, Any] = {}

    def cost(n: int) -> float:
        if n not in spaces:
            _, (core, _) = synthetic.vectors(n)
            queries = [query.vector for query in synthetic.queries(n, QUERIES)]
            spaces[n] = VectorSpace([core], [np.arange(n)], n), queries, np.ones(n, np.bool_)
        space, queries, mask = spaces[n]
        return statistics.median(cpu_timed(lambda q=q: space.candidates(q, mask, 100)) for q in queries)  # type: ignore[misc]

    return cost


def _merge(folder: Path) -> Cost:
    from bench import merge

    os.environ["XDG_STATE_HOME"] = str(merge.CACHE / "state")

    def cost(n: int) -> float:
        shutil.rmtree(folder / "merged", ignore_errors=True)
        parts = [merge.part(n, kind) for kind in ("early", "late")]
        return cpu_timed(lambda: merge.merged_s(parts, folder / "merged"))

    return cost


def _size(folder: Path) -> Cost:
    from bench.size import bytes_by_role

    return lambda n: float(sum(bytes_by_role(n).values()))


def _open(folder: Path) -> Cost:
    from backfill.bundle import Bundle
    from bench import synthetic

    return lambda n: cpu_timed(lambda: Bundle.open(synthetic.bundle(n)))


def _distill(folder: Path) -> Cost:
    from bench.batch import demo

    return demo(folder).asked_s


def _mask(folder: Path) -> Cost:
    from backfill.weights import smollm2_dir
    from bench.mask import masks_s

    os.environ.setdefault("VLLM_REGEX_COMPILATION_TIMEOUT_S", "900")
    return masks_s(smollm2_dir())


BUNDLES, QUICK_BUNDLES = (10_000, 30_000, 100_000), (1_000, 3_000, 10_000)
LINES = (
    Line("scan", "exchanges", (60, 240, 960), (20, 60, 180), _scan),
    Line("distill", "exchanges", (16, 32, 64), (2, 4, 8), _distill, of="wall s"),
    Line("distill overhead", "exchanges", (128, 256, 512), (32, 64, 128), _overhead),
    Line("extractive", "exchanges", (500, 1_000, 2_000), (125, 250, 500), _extractive),
    Line("grammar mask", "answers", (256, 512, 1_024), (32, 64, 128), _mask),
    Line("decode tokens", "exchanges", (10, 20, 40), (10, 20, 40), _tokens, of="tokens"),
    Line("embed", "texts", (128, 512, 2_048), (16, 32, 64), _embed),
    Line("bm25 build", "exchanges", BUNDLES, QUICK_BUNDLES, _bm25_build),
    Line("bm25 search", "exchanges", BUNDLES, QUICK_BUNDLES, _search("verbatim-bm25")),
    Line("vector search", "vectors", BUNDLES, QUICK_BUNDLES, _vectors),
    Line("query", "exchanges", BUNDLES, QUICK_BUNDLES, _search("default"), goal=QUERY_GOAL),
    Line("query by hand", "exchanges", BUNDLES, QUICK_BUNDLES, _by_hand, goal=9.0),
    Line("open", "exchanges", BUNDLES, QUICK_BUNDLES, _open),
    Line("merge", "exchanges", (10_000, 30_000, 100_000), (500, 1_000, 2_500), _merge),
    Line("bundle size", "exchanges", BUNDLES, QUICK_BUNDLES, _size, of="bytes"),
)


def main() -> int:
    """Fits the lines that are named, and records nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("lines", nargs="+", choices=[line.name for line in LINES], metavar="LINE")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer turns")
    parser.add_argument("--sizes", nargs=3, type=int, metavar="N", help="other sizes, such as 10000 100000 1000000")
    args = parser.parse_args()
    print(f"== growth  ({machine()})", flush=True)
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        for line in LINES:
            if line.name in args.lines:
                sizes = tuple(args.sizes) if args.sizes else line.quick if args.quick else line.sizes
                fitted(replace(line, sizes=sizes, quick=sizes), Path(folder), args.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
