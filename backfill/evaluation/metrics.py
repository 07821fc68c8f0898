"""Measures of a ranked list against grades, one value a query.

Reciprocal rank, precision and recall count grades of at least `relevant`; nDCG takes the grade as linear gain
(Jarvelin and Kekalainen 2002, with log2(rank + 1)). A query with no relevant document counts 0, not nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
NAMES = ("mrr", "p1", "ndcg10", "r5", "r10", "mean_grade")
_DISCOUNT = 1.0 / np.log2(np.arange(2, 12))


@dataclass(frozen=True, slots=True)
class Measures:
    """Values [Q] by query, in the order of the queries. `mean_grade` is over the first ten ranks, empty ones 0."""

    mrr: F64
    p1: F64
    ndcg10: F64
    r5: F64
    r10: F64
    mean_grade: F64

    def means(self) -> dict[str, float]:
        """Mean of each measure over the queries; 0 without any."""
        return {name: float(getattr(self, name).mean()) if len(self.mrr) else 0.0 for name in NAMES}

    def at(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Measures:
        """The same for some of the queries."""
        return Measures(*(getattr(self, name)[rows] for name in NAMES))


def measure_one(found: npt.NDArray[np.float64], held: npt.NDArray[np.float64], relevant: float) -> tuple[float, ...]:
    """The measures, in the order of NAMES, of one query.

    `found` are the grades of the retrieved documents, best rank first; `held` all grades that the query has.
    """
    good = np.flatnonzero(found >= relevant)
    n_good = int((held >= relevant).sum())
    top = found[:10]
    ideal = -np.sort(-held)[:10]
    best = float(ideal @ _DISCOUNT[: len(ideal)])
    return (
        1.0 / (int(good[0]) + 1) if len(good) else 0.0,
        float(len(good) > 0 and good[0] == 0),
        float(top @ _DISCOUNT[: len(top)]) / best if best > 0 else 0.0,
        int((good < 5).sum()) / n_good if n_good else 0.0,
        int((good < 10).sum()) / n_good if n_good else 0.0,
        float(top.sum()) / 10.0,
    )


def stack(rows: Sequence[tuple[float, ...]]) -> Measures:
    """Measures of Q queries from their rows."""
    matrix = np.array(rows, np.float64).reshape(len(rows), len(NAMES))
    return Measures(*(matrix[:, i].copy() for i in range(len(NAMES))))


def measure_run(
    run: Mapping[str, Sequence[str]], grades: Mapping[str, Mapping[str, float]], relevant: float = 1.0
) -> Measures:
    """Measures of a run (query -> documents, best first) over every graded query, in the order of `grades`."""
    rows = []
    for query, graded in grades.items():
        found = np.array([graded.get(doc, 0.0) for doc in run.get(query, ())], np.float64)
        rows.append(measure_one(found, np.array(list(graded.values()), np.float64), relevant))
    return stack(rows)
