"""Near copies among the exchanges of a scanned run, for `scan --near-dup`: groups, told and folded, never deleted.

Reads the tables of 01-exchanges twice: once for MinHash signatures (`backfill_kernels.minhash_near_dup`), cut into
bands whose keys name candidates, and once for the texts of candidates, which are compared as `folding` compares two
hits. So what is reported is what a search folds. Writes RUN/near-copies.jsonl, a line a group. Only visible exchanges
count. Memory: 1.5 KB an occurrence, 200 bytes an exchange, and 8 bytes a run of three words of the candidates (of
20,000 characters of each text at most).
Deliberately absent: anything that changes rows; equal content is distilled once anyway.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import xxhash
from backfill_kernels.minhash_near_dup import signatures

from backfill.durable import replace_file
from backfill.errors import Interrupted
from backfill.folding import COMPARED_HITS, MIN_SHARED, MIN_SIZE, is_telling, words_of
from backfill.ids import canonical_json
from backfill.rundir import Plan, RunDir
from backfill.tables import OCCURRENCES, read_table
from backfill.trees import iso
from backfill.types import Occurrence
from backfill.visibility import best_occurrences, visible_occurrences

U64 = npt.NDArray[np.uint64]

# Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", 3.4.2: with b bands of r rows a pair of similarity s
# becomes a candidate with 1 - (1 - s^r)^b, here .998 at .8, .9999 at .85 and .28 at .5.
BANDS, BAND_ROWS = 21, 6
N_PERM = BANDS * BAND_ROWS
FILE_NAME = "near-copies.jsonl"
_BATCH_ROWS = 512
_SHOWN_GROUPS = 20
_FNV_PRIME = np.uint64(0x100000001B3)
# Odd numbers that tell the three places of a run apart; any odd ones do.
_PLACES = np.array([random.Random(place).getrandbits(64) | 1 for place in range(3)], np.uint64)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What two exchanges are compared by.

    `runs` are the hashes of all runs of three words, rising and distinct; `telling` is the hash of the words that must
    agree; `n_chars` the length of both texts, `words` the hash of all words in order.
    """

    n_chars: int
    words: int
    telling: int
    runs: U64


@dataclass(frozen=True, slots=True)
class Group:
    """Near copies: the earliest one, which is shown, and the others with their Jaccard similarity to it."""

    shown: bytes
    copies: tuple[tuple[bytes, float], ...]


def sketch(user_text: str, agent_text: str) -> Sketch:
    """The sketch of an exchange's texts."""
    words = words_of(user_text, agent_text)
    hashes = np.array([_hash(word) for word in words], np.uint64)
    order = xxhash.xxh3_64_intdigest(hashes.tobytes())
    runs = hashes[:-2] * _PLACES[0] + hashes[1:-1] * _PLACES[1] + hashes[2:] * _PLACES[2]
    telling = _hash("\0".join(filter(is_telling, words)))
    found = np.unique(runs) if len(words) > 2 else np.array([order], np.uint64)
    return Sketch(len(user_text) + len(agent_text), order, telling, found)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))


def similarity(one: Sketch, other: Sketch) -> float:
    """The Jaccard similarity of their runs where they are near copies by `folding`'s rule, else 0."""
    sizes = sorted((one.n_chars, other.n_chars))
    if sizes[0] < MIN_SIZE * sizes[1]:
        return 0.0
    if one.words == other.words:
        return 1.0
    lengths = sorted((len(one.runs), len(other.runs)))
    if one.telling != other.telling or lengths[0] < MIN_SHARED * lengths[1]:
        return 0.0
    shared = len(np.intersect1d(one.runs, other.runs, assume_unique=True))
    found = shared / (sum(lengths) - shared)
    return found if found >= MIN_SHARED else 0.0


def band_keys(sketches: Sequence[Sketch], device: Literal["cpu", "cuda"] = "cpu") -> U64:
    """Keys [N, BANDS]: near copies share one with high probability (see BANDS). Words that must agree are in them."""
    offsets = np.cumsum([0, *(len(one.runs) for one in sketches)]).astype(np.int64)
    # The upper half: the lower bits of a sum of products depend on the lower bits of its terms alone.
    runs = np.concatenate([one.runs for one in sketches]) >> np.uint64(32)
    rows = signatures(runs.astype(np.uint32), offsets, n_perm=N_PERM, device=device)
    keys = np.array([one.telling for one in sketches], np.uint64)[:, None] + np.arange(BANDS, dtype=np.uint64)
    for row in range(BAND_ROWS):
        keys = (keys ^ rows[:, row::BAND_ROWS]) * _FNV_PRIME  # [N, BANDS]
    return keys


def candidates(keys: U64) -> npt.NDArray[np.bool_]:
    """[N]: whether an exchange shares a key of a band with another one."""
    found = np.zeros(len(keys), np.bool_)
    for band in range(keys.shape[1]):
        _, places, counts = np.unique(keys[:, band], return_inverse=True, return_counts=True)
        found |= counts[places] > 1
    return found


def grouped(ids: Sequence[bytes], keys: U64, sketches: Sequence[Sketch]) -> list[Group]:
    """Groups of near copies, in the order of `ids`: each joins the first shown one that it is near to."""
    shelves: dict[tuple[int, int], list[int]] = defaultdict(list)
    copies: dict[int, list[tuple[bytes, float]]] = {}
    for n, row in enumerate(keys.tolist()):
        near = sorted({other for shelf in enumerate(row) for other in shelves.get(shelf, ())})
        for other in near[-COMPARED_HITS:]:
            alike = similarity(sketches[other], sketches[n])
            if alike:
                copies[other].append((ids[n], alike))
                break
        else:
            copies[n] = []
            for shelf in enumerate(row):
                shelves[shelf] = [*shelves[shelf][1 - COMPARED_HITS :], n]
    return [Group(ids[n], tuple(found)) for n, found in copies.items() if found]


def find(
    run: RunDir, plan: Plan, should_stop: Callable[[], bool], device: Literal["cpu", "cuda"] = "cpu"
) -> dict[str, Any]:
    """Writes RUN/near-copies.jsonl and returns the `near_dup` part of the `scan --json` record.

    Raises Interrupted after a stop; nothing is written then.
    """
    manifests = [m for s in range(len(plan.scan_shards)) if (m := run.scan_manifest(plan, s)) is not None]
    files = [run.exchanges / m.file("exchanges").name for m in manifests]
    rows = (row for m in manifests for row in read_table(OCCURRENCES, run.exchanges / m.file("occurrences").name))
    places = best_occurrences(visible_occurrences(rows))
    ids, keys = _keys_of(files, set(places), should_stop, device)
    near = np.flatnonzero(candidates(keys))
    wanted = {ids[n] for n in near}
    again = {name: (one, tokens) for batch in _sketches(files, wanted, should_stop) for name, one, tokens in batch}
    order = sorted(near, key=lambda n: (places[ids[n]][0].started_at or 0, ids[n]))
    groups = grouped([ids[n] for n in order], keys[order], [again[ids[n]][0] for n in order])
    groups.sort(key=lambda group: (-len(group.copies), group.shown))
    trees = [_tree(group, places) for group in groups]
    replace_file(run.path / FILE_NAME, b"".join(canonical_json(tree) + b"\n" for tree in trees))
    folded = [name for group in groups for name, _ in group.copies]
    return {
        "exchanges": len(ids),
        "groups": len(groups),
        "copies": len(folded),
        "equal": sum(alike == 1.0 for group in groups for _, alike in group.copies),
        "tokens": sum(again[name][1] for name in folded),
        "min_shared": MIN_SHARED,
        "file": str(run.path / FILE_NAME),
        "largest": trees[:_SHOWN_GROUPS],
    }


def _keys_of(
    files: Sequence[Path], wanted: set[bytes], should_stop: Callable[[], bool], device: Literal["cpu", "cuda"]
) -> tuple[list[bytes], U64]:
    """The ids of the exchanges that are wanted, and their band keys [N, BANDS]."""
    ids: list[bytes] = []
    keys = [np.empty((0, BANDS), np.uint64)]
    for batch in _sketches(files, wanted, should_stop):
        ids += (name for name, _, _ in batch)
        keys.append(band_keys([one for _, one, _ in batch], device))
    return ids, np.concatenate(keys)


def _sketches(
    files: Sequence[Path], wanted: set[bytes], should_stop: Callable[[], bool]
) -> Iterator[list[tuple[bytes, Sketch, int]]]:
    """Id, sketch and tokens of each exchange that is wanted, once each, some hundreds at a time."""
    seen: set[bytes] = set()
    for path in files:
        file = pq.ParquetFile(path, memory_map=True)
        columns = ["exchange_id", "user_text", "agent_text", "tokens_est"]
        for rows in file.iter_batches(_BATCH_ROWS, columns=columns):
            if should_stop():
                raise Interrupted("stopped while looking for near copies", hint="the same command starts anew")
            batch = []
            for name, user_text, agent_text, tokens in zip(*(c.to_pylist() for c in rows.columns), strict=True):
                if name in wanted and name not in seen:
                    seen.add(name)
                    batch.append((name, sketch(user_text, agent_text), tokens))
            if batch:
                yield batch


def _tree(group: Group, places: Mapping[bytes, Sequence[Occurrence]]) -> dict[str, Any]:
    def place(name: bytes) -> dict[str, Any]:
        first = places[name][0]
        return {
            "exchange_id": name.hex(),
            "project": first.project,
            "session_id": first.session_id,
            "started_at": iso(first.started_at),
        }

    copies = [{**place(name), "similarity": round(alike, 3)} for name, alike in group.copies]
    return {"shown": place(group.shown), "copies": copies}
