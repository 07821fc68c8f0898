"""`stock-bm25`: what a few lines with a common BM25 package give, the baseline that has to be beaten.

Words of two or more characters, lower case, without 33 English stop words, Snowball-stemmed; Lucene's BM25 with
k1 = 1.5 and b = 0.75; one index a scope. These are the defaults of bm25s (Lu 2024, arXiv 2407.03618) with a stemmer.
Deliberately absent: anything that we do better.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import Stemmer

K1, B = 1.5, 0.75
_WORD = re.compile(r"\b\w\w+\b")
_STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
))  # fmt: skip
_stemmer = Stemmer.Stemmer("english")


def stock_terms(text: str) -> list[str]:
    """The terms of a text in order."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
    stems: list[str] = _stemmer.stemWords(words)
    return stems


class StockBm25:
    """An index over the documents of one scope."""

    def __init__(self, texts: Sequence[str]) -> None:
        terms = [stock_terms(text) for text in texts]
        lengths = np.array([len(t) for t in terms], np.float64)
        mean = float(lengths.mean()) if lengths.sum() else 1.0
        self._norm = K1 * (1.0 - B + B * lengths / mean)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for doc, found in enumerate(terms):
            for term, count in Counter(found).items():
                postings[term].append((doc, count))
        self._postings = {term: np.array(pairs, np.int64).T for term, pairs in postings.items()}

    def scores(self, query: str) -> npt.NDArray[np.float64]:
        """Score [N] of each document; 0 where it shares no term. A repeated term counts as often."""
        n_docs = len(self._norm)
        total = np.zeros(n_docs)
        for term, weight in Counter(stock_terms(query)).items():
            if term in self._postings:
                docs, counts = self._postings[term]
                idf = np.log(1.0 + (n_docs - len(docs) + 0.5) / (len(docs) + 0.5))
                total[docs] += weight * idf * counts / (counts + self._norm[docs])
        return total
