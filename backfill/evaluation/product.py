"""The search that `backfill query` does, over many queries: what a `product` configuration measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from backfill.bundle import Bundle
from backfill.evaluation.rank import Ranked
from backfill.evaluation.scores import Scores
from backfill.phrases import exact_mask, take_apart
from backfill.question import question_of
from backfill.ranking import rank


def rank_product(bundle: Bundle, scores: Scores, mode: str) -> Iterator[Ranked]:
    """Every query by the ranking of a search mode, restricted to its scope; ties by exchange_id, as in a search.

    Quoted phrases are exact terms here as they are there, but in `default-words`, where marks are left out: who wrote
    a set's queries did not write for our search. Near copies are not folded, for labels name each of them.
    The collection's documents are in the bundle's order.
    """
    ids = scores.collection.exchange_ids
    as_words = mode == "default-words"
    mode = "default" if as_words else mode
    for number, group in enumerate(scores.groups):
        mask = np.zeros(len(scores.collection), np.bool_)
        mask[group.docs] = True
        names_of: dict[int, list[int]] = defaultdict(list)
        for position, doc in enumerate(group.docs):
            names_of[int(doc)].append(position)
        for query in group.queries:
            text = take_apart(scores.queries[query].text)[0] if as_words else scores.queries[query].text
            vector = scores.query_rows[query] if scores.has_vectors else None
            question = question_of(text, vector, bundle.manifest.index)
            exact = take_apart(text)[1]
            ranking = rank(bundle, question, mode, exact_mask(bundle, exact, mask) if exact else mask)
            order = sorted(range(len(ranking.docs)), key=lambda i: (-ranking.scores[i], ids[int(ranking.docs[i])]))
            positions = [at for i in order for at in names_of[int(ranking.docs[i])]]
            yield Ranked(number, int(query), np.array(positions, np.int64))
