"""Throughput of the demo's engine against the number of requests in flight: how much batching buys on this machine.

SmolLM2 with the settings of configs/cpu.yaml, loaded once; the distill stage keeps 1 to 32 requests in flight over
exchanges that the engine has not seen, widths by turns. The points go to `bench/plots`, with the plot that they give.
`bench.growth` takes the same engine's time at three sizes. No goal: it reports.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from backfill.calibrate import MeteredEngine
from backfill.config import Config, load_config
from backfill.distill import distill
from backfill.engines import Engine, make_engine
from bench import plots
from bench.harness import Result, Spread, timed
from bench.overhead import distinct_rows

NEW_TOKENS, PROMPT_TOKENS = 16, 128
WIDTHS = (1, 2, 4, 8, 16, 32)
WIDEST = WIDTHS[-1]
SERIES = "distill stage, SmolLM2-135M on the CPU"
CPU_CONFIG = Path(__file__).resolve().parents[1] / "configs" / "cpu.yaml"


class Narrow(MeteredEngine):
    """An engine of which at most `width` requests are in flight."""

    def __init__(self, engine: Engine, width: int) -> None:
        super().__init__(engine)
        self._width = width

    @property
    def window(self) -> int:
        """The width."""
        return self._width


class Demo:
    """The loaded engine. The first exchanges, which load it and compile the grammar, are asked for here."""

    def __init__(self, folder: Path) -> None:
        read = load_config(CPU_CONFIG)
        self._config: Config = replace(
            read,
            engine=replace(read.engine, max_new_tokens=NEW_TOKENS, max_num_seqs=WIDEST),
            distill=replace(read.distill, max_attempts=1, prompt_tokens=PROMPT_TOKENS),
        )
        self.engine = make_engine(self._config.engine, log_path=folder / "demo.log")
        self._seeds: Iterator[int] = itertools.count(40_000)
        self.asked_s(2)

    def asked_s(self, n: int, width: int = WIDEST) -> float:
        """Seconds of the distill stage over `n` exchanges that were not asked about before."""
        rows = distinct_rows(next(self._seeds), n)
        work = distill(
            [("rows", rows)], self._config.distill, fingerprint="", engine=Narrow(self.engine, width),
            max_new_tokens=NEW_TOKENS,
        )  # fmt: skip
        return timed(lambda: list(work))


@lru_cache(maxsize=1)
def demo(folder: Path) -> Demo:
    """The engine, loaded once a process."""
    return Demo(folder)


def end_demo(folder: Path) -> None:
    """Ends the engine, where it was loaded."""
    if demo.cache_info().currsize:
        demo(folder).engine.close()
        demo.cache_clear()


def run(quick: bool) -> Result:
    """Measures exchanges a second at each width, and draws them; see the module."""
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as folder:
        try:
            rates = _rates(demo(Path(folder)), 1 if quick else 3)
        finally:
            end_demo(Path(folder))
    points = [plots.Point("throughput-batch", SERIES, width, rate) for width, found in rates.items() for rate in found]
    print(f"  plots: {plots.draw(points)}")
    medians = {width: statistics.median(found) for width, found in rates.items()}
    best = max(medians, key=lambda width: medians[width])
    return Result(
        name="batch",
        value=medians[best],
        unit="exchanges/s",
        peers={f"{width} in flight": rate for width, rate in medians.items()},
        limit="the model's arithmetic on this machine's cores",
        ratio=medians[best] / medians[1],
        goal="report",
        met=None,
        spread={f"{width} in flight": Spread.of(found) for width, found in rates.items()},
        notes=f"best at {best} in flight; {PROMPT_TOKENS} prompt tokens, at most {NEW_TOKENS} new ones",
    )


def _rates(running: Demo, turns: int) -> dict[int, list[float]]:
    """Exchanges a second at each width, a list of the turns. Each fills its width at least once."""
    found: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for _ in range(turns):
        for width in WIDTHS:
            n = max(4 if turns == 1 else 16, width)
            found[width].append(n / running.asked_s(n, width))
            print(f"  {width:>3} in flight {found[width][-1]:12.2f} exchanges/s", flush=True)
    return found
