"""The sweep: cell after cell, each kept once it is measured, so that the same command goes on where it was stopped.

Cells that differ in the prompt alone share one loaded engine. A cell that cannot run (a model that does not fit, a
backend that is not installed) is a line of the table with the reason, and is tried again by the next command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backfill.config import EngineConfig
from backfill.engines import Engine, make_engine
from backfill.errors import EngineError, ModelError
from backfill.gate_sample import Sample
from backfill.throughput.axes import Changes, Source
from backfill.throughput.choice import combination
from backfill.throughput.measure import Measured, ShouldStop, cell_key, measure, store, stored

CELLS, LOGS = "cells", "logs"
Say = Callable[[str], None]


@dataclass(slots=True)
class Loaded:
    """The engine that runs at present, and its configuration."""

    config: EngineConfig | None = None
    engine: Engine | None = None

    def take(self, config: EngineConfig, log: Path) -> Engine | None:
        """The engine of this configuration, the running one if it is the same; None for `extractive`."""
        if config != self.config:
            self.close()
            self.engine = None if config.kind == "extractive" else make_engine(config, log_path=log)
            self.config = config
        return self.engine

    def close(self) -> None:
        """Stops what runs, and frees its device before another loads."""
        if self.engine is not None:
            self.engine.close()
        self.config = self.engine = None


def sweep(
    source: Source,
    planned: Sequence[Changes],
    sample: Sample,
    out: Path,
    should_stop: ShouldStop,
    say: Say,
    keep: Callable[[Measured], None],
    *,
    combine: bool,
) -> None:
    """Measures the planned cells, and with `combine` the best values together; `keep` gets each once it is there.

    Raises Interrupted; what was measured until then is kept.
    """
    done: list[Measured] = []
    waiting = list(planned)
    loaded = Loaded()
    try:
        while waiting:
            changes = waiting.pop(0)
            cell = _cell(source, changes, sample, out, loaded, should_stop)
            done.append(cell)
            keep(cell)
            say(f"{len(done)}/{len(done) + len(waiting)} {_line(cell)}")
            if not waiting and combine:
                together = combination(done)
                waiting = [together] if together else []
                combine = False
    finally:
        loaded.close()


def _cell(
    source: Source, changes: Changes, sample: Sample, out: Path, loaded: Loaded, should_stop: ShouldStop
) -> Measured:
    config = source.load(changes)
    try:
        key = cell_key(config, sample)
        found = stored(out / CELLS, key)
        if found is not None:
            # The same settings may have been another change of another configuration.
            return replace(found, changes=changes)
        engine = loaded.take(config.engine, out / LOGS / f"{key[:8]}.log")
        cell = measure(config, changes, sample, engine, should_stop)
    except (ModelError, EngineError) as error:
        loaded.close()
        return Measured(changes, failure=str(error))
    store(out / CELLS, key, cell)
    return cell


def _line(cell: Measured) -> str:
    if cell.failure:
        return f"{cell.name}: {cell.failure}"
    return f"{cell.name}: {cell.exchanges_s:.2f} exchanges/s (±{cell.error:.0%}), {cell.verdict}"
