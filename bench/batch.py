"""Throughput of the demo's engine against the number of requests in flight: how much batching buys on this machine.

SmolLM2 with the settings of configs/cpu.yaml, loaded once; the distill stage keeps 1 to 16 requests in flight over
exchanges that the engine has not seen. `bench.growth` draws it and takes the same engine's time at three sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from backfill.calibrate import MeteredEngine
from backfill.config import Config, load_config
from backfill.distill import distill
from backfill.engines import Engine, make_engine
from bench.harness import timed
from bench.overhead import distinct_rows

NEW_TOKENS, PROMPT_TOKENS, WIDEST = 16, 128, 16
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


def rates(folder: Path, quick: bool) -> dict[str, list[tuple[float, float]]]:
    """Exchanges a second at each width, and ends the engine."""
    running = demo(folder)
    widths, turns = ((1, 4, 8), 1) if quick else ((1, 2, 4, 8, 16), 3)
    found: list[tuple[float, float]] = []
    for _ in range(turns):
        for width in widths:
            n = max(4, width) if quick else max(16, 2 * width)
            found.append((width, n / running.asked_s(n, width)))
            print(f"  {width:>3} in flight {found[-1][1]:12.2f} exchanges/s", flush=True)
    running.engine.close()
    demo.cache_clear()
    return {"distill stage, SmolLM2-135M on the CPU": found}
