"""The best of a ranking, in order, as places to read: nothing of an exchange is read before it has won."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from backfill import signals
from backfill.hits import Place
from backfill.ranking import Ranking

if TYPE_CHECKING:
    from backfill.bundle import Bundle


def best_positions(bundle: Bundle, ranking: Ranking, k: int) -> list[int]:
    """The positions in a ranking of its `k` best documents, best first; equal scores by exchange_id."""
    best = signals.best_units(ranking.scores, np.arange(len(ranking.scores)), k)
    ordered = best[np.argsort(-ranking.scores[best], kind="stable")].tolist()
    scores = ranking.scores.tolist()
    found: list[int] = []
    for _, group in groupby(ordered, key=lambda at: scores[at]):
        tied = list(group)
        if len(tied) > 1:
            ids = {place.exchange_id: at for at, place in zip(tied, places_at(bundle, ranking, tied), strict=True)}
            tied = [ids[exchange_id] for exchange_id in sorted(ids)]
        found += tied
        if len(found) >= k:
            break
    return found[:k]


def places_at(bundle: Bundle, ranking: Ranking, positions: list[int]) -> list[Place]:
    """The documents at positions of a ranking, with their scores."""
    base = signals.starts(bundle, "documents")
    docs = ranking.docs[positions]
    numbers = np.searchsorted(base, docs, side="right") - 1
    scores = {name: values[positions].tolist() for name, values in ranking.signals.items()}
    claims = [-1] * len(positions) if ranking.claims is None else ranking.claims[positions].tolist()
    places = []
    for n, (number, at) in enumerate(zip(numbers.tolist(), docs.tolist(), strict=True)):
        segment, doc = bundle.segments[number], at - int(base[number])
        # NaN differs from itself: the document lacks the signal.
        found = {name: values[n] for name, values in scores.items() if values[n] == values[n]}
        score = float(ranking.scores[positions[n]])
        places.append(Place(segment, doc, segment.document_id(doc), score, found, claims[n]))
    return places
