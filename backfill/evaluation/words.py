"""BM25 over labelled sets as they are, without a bundle or a model: what a common package gives, and ours beside it.

The common package has one index a scope; ours has the product's tokenizer and one index of all scopes, as in a bundle.
Deliberately absent: anything with vectors, which needs a bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfill.evaluation.collection import Collection
from backfill.evaluation.corpus import Corpus, read_corpus
from backfill.evaluation.evaluate import BASELINE, Labels
from backfill.evaluation.grid import Configuration, Signal
from backfill.evaluation.ingest import AGENT
from backfill.evaluation.metrics import Measures
from backfill.evaluation.rank import measure, rank_all
from backfill.evaluation.report import aligned
from backfill.evaluation.scores import Scores
from backfill.evaluation.statistics import Paired, paired

OURS = "verbatim-bm25"
_SHOWN = ("mrr", "ndcg10", "r10")


def word_table(folders: Sequence[Path], relevant: float = 1.0) -> tuple[dict[str, Any], list[str]]:
    """Both over each set: JSON record and a table. Raises UsageError for a broken set, or one without a grade."""
    rows: list[tuple[str, ...]] = [
        ("set", "documents", "queries", *(f"{BASELINE} {n}" for n in _SHOWN), *(f"{OURS} {n}" for n in _SHOWN),
         "delta MRR", "95% interval")
    ]  # fmt: skip
    sets = []
    for folder in folders:
        corpus = read_corpus(folder)
        found = measure_words(corpus, relevant)
        compared = paired(found[OURS].mrr, found[BASELINE].mrr)
        sets.append(_record(corpus, found, compared))
        cells = [f"{found[name].means()[measure]:.3f}" for name in (BASELINE, OURS) for measure in _SHOWN]
        low, high = compared.ci95
        rows.append((corpus.name, f"{len(corpus.documents):,}", f"{len(found[OURS].mrr):,}", *cells,
                     f"{compared.delta:+.3f}", f"{low:+.3f} to {high:+.3f}"))  # fmt: skip
    return {"relevant": relevant, "sets": sets}, aligned(rows)


def measure_words(corpus: Corpus, relevant: float = 1.0) -> dict[str, Measures]:
    """Measures of the graded queries, in their order, by the name of the configuration. Raises UsageError."""
    labels = Labels(corpus.name, corpus.queries, corpus.grades).graded()
    scores = Scores(_collection(corpus), labels.queries)
    grades: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = [np.zeros(0)] * len(labels.queries)
    for group in scores.groups:
        for query in group.queries:
            graded = labels.grades[labels.queries[query].query_id]
            grades[query] = np.array([graded.get(name, 0.0) for name in group.names])
    held = [np.array(list(labels.grades[query.query_id].values())) for query in labels.queries]
    signals = {BASELINE: Signal("stock", ("verbatim",)), OURS: Signal("bm25", ("verbatim",))}
    return {
        name: measure(scores, rank_all(scores, Configuration(name, (signal,))), grades, held, relevant)
        for name, signal in signals.items()
    }


def _collection(corpus: Corpus) -> Collection:
    documents = corpus.documents
    return Collection(
        exchange_ids=tuple(number.to_bytes(16, "big") for number in range(len(documents))),
        texts={"verbatim": tuple(document.text for document in documents)},
        session_of=np.arange(len(documents)),
        places=tuple(((AGENT, document.scope, document.doc_id),) for document in documents),
        claims=(),
    )


def _record(corpus: Corpus, found: dict[str, Measures], compared: Paired) -> dict[str, Any]:
    return {
        "name": corpus.name,
        "documents": len(corpus.documents),
        "queries": len(found[OURS].mrr),
        "configurations": [{"name": name, **found[name].means()} for name in (BASELINE, OURS)],
        "delta": compared.delta,
        "ci95": list(compared.ci95),
        "p": compared.p,
        "mde": compared.mde,
    }
