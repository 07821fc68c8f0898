"""BM25: building and querying against bm25s, rank_bm25 and tantivy on the same synthetic texts and queries.

All but tantivy get our tokens, so that scorers are compared and not tokenizers; tantivy brings its own. The value is
the median time of a top-10 query in CPU ms over a warm index that may answer with one row in forty only, as a filter by
project wants; ours goes through a bundle's segments with sums over months, bm25s takes the filter as a mask too.
tantivy and rank_bm25 answer without a filter. "Build" is CPU seconds from texts to an index that answers. Goal: faster
than bm25s with the filter; building is reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.bundle import Bundle
from backfill.indexes.bm25 import Bm25
from backfill.indexes.field import FieldIndex, build_field
from backfill.indexes.tokenizer import tokenize
from bench import synthetic
from bench.harness import Result, cpu_timed
from bench.peers import peer

K = 10
# rank_bm25 takes seconds a query at 100,000 texts.
RANK_BM25_QUERIES = 3

Mask = npt.NDArray[np.bool_]
Answer = Callable[[str, Mask | None], Sequence[int]]
FILTERED, SESSION = 40, 20


def run(quick: bool) -> Result:
    """Measures CPU ms a query; see the module."""
    n = 10_000 if quick else 100_000
    _, texts = synthetic.texts(n)
    # Ours remembers what it read of a term, so the filter gets questions of its own.
    asked = [query.text for query in synthetic.queries(n, 80)]
    queries, others = asked[:40], asked[40:]
    build: dict[str, float] = {}
    answers: dict[str, Answer] = {}
    for name, make in (("ours", _ours(n)), ("bm25s", _bm25s()), ("tantivy", _tantivy()), ("rank_bm25", _rank_bm25())):
        if make is None or (name == "rank_bm25" and not quick):
            continue
        held: list[Answer] = []
        build[name] = cpu_timed(lambda make=make, held=held: held.append(make(texts)))  # type: ignore[misc]
        answers[name] = held[0]
    took = {name: _median_ms(answer, queries, name) for name, answer in answers.items()}
    mask = _mask(n)
    some = {name: _median_ms(answers[name], others, name, mask) for name in ("ours", "bm25s") if name in answers}
    whole = _whole_ms(n, queries)
    for name, ms in took.items():
        within = f", {some[name]:.2f} with a filter" if name in some else ""
        print(f"  {name:<12} {ms:10.2f} CPU ms a query{within}, built in {build[name]:.1f} CPU s")
    print(f"  {'ours, one project':<12} {whole:10.2f} CPU ms a query through the whole search")
    agree = min(_agreement(answers, queries, allowed) for allowed in (None, mask))
    peers = {f"{name}, no filter": ms for name, ms in took.items()}
    peers |= {f"{name}, filter": ms for name, ms in some.items() if name != "ours"}
    ratio = some["ours"] / some["bm25s"] if "bm25s" in some else float("nan")
    return Result(
        name="bm25",
        value=some["ours"],
        unit="CPU ms a query with a filter",
        peers=peers,
        limit="reading the postings of the query's terms",
        ratio=ratio,
        goal="< bm25s with the same filter",
        met=ratio < 1 if "bm25s" in some else None,
        notes=f"{n:,} texts; build CPU s {', '.join(f'{k} {v:.1f}' for k, v in build.items())}; "
        f"the whole search of one project {whole:.2f} ms; top-10 overlap with bm25s {agree:.2f}",
    )


def _mask(n: int) -> Mask:
    """One session in forty."""
    sessions = np.random.default_rng(3).permutation(-(-n // SESSION)) % FILTERED == 0
    return np.repeat(sessions, SESSION)[:n]


def _median_ms(answer: Answer, queries: Sequence[str], name: str, mask: Mask | None = None) -> float:
    answer(queries[0], mask)
    taken = []
    for query in queries[:RANK_BM25_QUERIES] if name == "rank_bm25" else queries:
        began = time.process_time()
        answer(query, mask)
        taken.append((time.process_time() - began) * 1e3)
    return statistics.median(taken)


def _ours(n: int) -> Callable[[list[str]], Answer]:
    segments = [len(segment.docs) for segment in Bundle.open(synthetic.bundle(n)).segments]

    def make(texts: list[str]) -> Answer:
        bounds = np.cumsum([0, *segments]).tolist()
        fields = [FieldIndex(build_field(texts[a:b])) for a, b in pairwise(bounds)]
        index = Bm25(fields)
        starts = np.array(bounds[:-1])

        def answer(query: str, mask: Mask | None) -> Sequence[int]:
            masks = None if mask is None else np.split(mask, bounds[1:-1])
            _, segment, row = index.search(tokenize(query), K, masks)
            return (starts[segment] + row).tolist()  # type: ignore[no-any-return]

        return answer

    return make


def _bm25s() -> Callable[[list[str]], Answer] | None:
    bm25s = peer("bm25s")
    if bm25s is None:
        return None

    def make(texts: list[str]) -> Answer:
        index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        index.index([tokenize(text) for text in texts], show_progress=False)

        def answer(query: str, mask: Mask | None) -> Sequence[int]:
            weights = None if mask is None else mask.astype(np.float32)
            found, _ = index.retrieve([tokenize(query)], k=K, show_progress=False, weight_mask=weights)
            return found[0].tolist()  # type: ignore[no-any-return]

        return answer

    return make


def _rank_bm25() -> Callable[[list[str]], Answer] | None:
    rank_bm25 = peer("rank_bm25")
    if rank_bm25 is None:
        return None

    def make(texts: list[str]) -> Answer:
        index = rank_bm25.BM25Okapi([tokenize(text) for text in texts], k1=1.5, b=0.75)
        return lambda query, _: np.argsort(-index.get_scores(tokenize(query)))[:K].tolist()

    return make


def _tantivy() -> Callable[[list[str]], Answer] | None:
    tantivy = peer("tantivy")
    if tantivy is None:
        return None

    def make(texts: list[str]) -> Answer:
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("text", stored=False, tokenizer_name="en_stem")
        schema.add_integer_field("at", stored=True)
        index = tantivy.Index(schema.build())
        writer = index.writer(num_threads=1)
        for at, text in enumerate(texts):
            writer.add_document(tantivy.Document(text=text, at=at))
        writer.commit()
        index.reload()
        searcher = index.searcher()

        def answer(query: str, mask: Mask | None) -> Sequence[int]:
            words = "".join(c if c.isalnum() else " " for c in query)
            hits = searcher.search(index.parse_query(words, ["text"]), K).hits
            return [searcher.doc(address)["at"][0] for _, address in hits]

        return answer

    return make


def _whole_ms(n: int, queries: Sequence[str]) -> float:
    """Median CPU ms of a whole BM25 search within one project of forty, hits read included."""
    bundle: Any = Bundle.open(synthetic.bundle(n))
    taken = []
    for query in queries:
        began = time.process_time()
        bundle.search(query, mode="verbatim-bm25", project="project-07")
        taken.append((time.process_time() - began) * 1e3)
    return statistics.median(taken[1:])


def _agreement(answers: dict[str, Answer], queries: Sequence[str], mask: Mask | None) -> float:
    """Share of our ten that bm25s finds too; it fills up with rows that the filter leaves out, which do not count."""
    if "bm25s" not in answers:
        return float("nan")
    ours, theirs = answers["ours"], answers["bm25s"]
    pairs = ((set(ours(q, mask)), set(theirs(q, mask))) for q in queries[:20])
    return statistics.mean(len(mine & other) / max(1, len(mine)) for mine, other in pairs)
