"""Ranks every query by a configuration: signals fused over the query's scope, or the product's own search.

Fusion functions are those of `backfill.fusion`, over all documents of the scope. `product` configurations call the
ranking that `backfill query` calls, with its depth, so that what is measured is what ships.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backfill import fusion
from backfill.evaluation.grid import Configuration
from backfill.evaluation.metrics import Measures, measure_one, stack
from backfill.evaluation.scores import Scores

# As the index setting of that name has it.
ZERO_COSINE = 0.0

F64 = npt.NDArray[np.float64]
Order = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Per query (by its number) the names' positions in its group, best first, and the group."""

    group: int
    query: int
    order: Order


def rank_all(scores: Scores, configuration: Configuration) -> Iterator[Ranked]:
    """Every query's ranking. A document that no signal reaches is not retrieved; ties keep the collection's order."""
    parts = [scores.of(signal) for signal in configuration.signals]
    floors = [0.0 if signal.kind in ("bm25", "stock") else None for signal in configuration.signals]
    for number, group in enumerate(scores.groups):
        sessions = scores.collection.session_of[group.docs].astype(np.uint64)
        for row, query in enumerate(group.queries):
            signals = [
                fusion.Signal(part[number][row].astype(np.float64), signal.weight, floor, zero=ZERO_COSINE)
                for part, signal, floor in zip(parts, configuration.signals, floors, strict=True)
            ]
            docs = np.flatnonzero(np.logical_or.reduce([_reached(signal) for signal in signals]))
            total = fused(configuration, signals)[docs]
            lifted = fusion.lift_sessions(total, sessions[docs], configuration.session)
            yield Ranked(number, int(query), docs[np.argsort(-lifted, kind="stable")])


def fused(configuration: Configuration, signals: Sequence[fusion.Signal]) -> F64:
    """[N] one score from several signals, by the configuration's fusion; a single signal stays as it is."""
    if len(signals) == 1:
        return np.nan_to_num(signals[0].scores, nan=-np.inf)
    return fusion.fuse(
        signals,
        fusion=configuration.fusion,
        normalization=configuration.normalization,
        rrf_k=configuration.rrf_k,
    )


def _reached(signal: fusion.Signal) -> npt.NDArray[np.bool_]:
    present = signal.present
    return present if signal.floor is None else present & (np.where(present, signal.scores, 0.0) > signal.floor)


def measure(
    scores: Scores, ranked: Iterator[Ranked], grades: Sequence[npt.NDArray[np.float64]], held: Sequence[F64],
    relevant: float,
) -> Measures:  # fmt: skip
    """Measures in the order of the queries. `grades[q]` are those of the names of the query's group, `held[q]` all."""
    rows: list[tuple[float, ...]] = [(0.0,) * 6] * len(scores.queries)
    for one in ranked:
        rows[one.query] = measure_one(grades[one.query][one.order], held[one.query], relevant)
    return stack(rows)
