"""Near copies among exchanges: ours against datasketch's and rensa's own MinHash LSH, in the same run.

Made-up exchanges of 280 words by Zipf's law over 20,000 words; every twentieth is a copy of an earlier one with one
word changed, which is what has to be found. Ours makes sketches and signatures, finds candidates and compares them as
a search does; the peers are given the same runs of three words, hash them their own way and query an LSH index with as
many permutations, at a threshold of .8. Value: exchanges a CPU second. Goal: all copies, and
faster than datasketch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate

from backfill.folding import MIN_SHARED, words_of
from backfill.near_copies import N_PERM, band_keys, grouped, sketch
from bench.harness import Result, cpu_timed, take_turns
from bench.peers import peer

_WORDS = 280
_COPY_EVERY = 20


def texts_of(n: int, seed: int = 3) -> tuple[list[str], set[int]]:
    """N texts, and which of them are copies of an earlier one but for a word."""
    dice = random.Random(seed)
    vocabulary = [
        f"w{dice.randrange(36**5):x}".translate(str.maketrans("0123456789", "ghijklmnop")) for _ in range(20_000)
    ]
    weights = list(accumulate(1 / (rank + 5) for rank in range(len(vocabulary))))
    texts: list[str] = []
    copies: set[int] = set()
    for number in range(n):
        if number % _COPY_EVERY == _COPY_EVERY - 1:
            words = texts[number - dice.randint(1, _COPY_EVERY - 1)].split()
            words[dice.randrange(len(words))] = "changed"
            copies.add(number)
        else:
            words = dice.choices(vocabulary, cum_weights=weights, k=_WORDS)
        texts.append(" ".join(words))
    return texts, copies


def ours(texts: Sequence[str]) -> set[int]:
    """The numbers of the texts that were found to be copies."""
    sketches = [sketch(text, "") for text in texts]
    ids = [number.to_bytes(16, "big") for number in range(len(texts))]
    groups = grouped(ids, band_keys(sketches), sketches)
    return {int.from_bytes(name, "big") for group in groups for name, _ in group.copies}


def runs_of(text: str) -> list[str]:
    """The runs of three words, for the peers."""
    words = words_of(text, "")
    return list({f"{a} {b} {c}" for a, b, c in zip(words, words[1:], words[2:], strict=False)})


def by_datasketch(texts: Sequence[str]) -> set[int]:
    """The same by datasketch, its own hash and index."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=MIN_SHARED, num_perm=N_PERM)
    found = set()
    for number, text in enumerate(texts):
        one = MinHash(num_perm=N_PERM)
        one.update_batch([run.encode() for run in runs_of(text)])
        if index.query(one):
            found.add(number)
        index.insert(number, one)
    return found


def run(quick: bool) -> Result:
    """Measures exchanges a CPU second; see the module."""
    texts, copies = texts_of(1_000 if quick else 10_000)
    found: dict[str, set[int]] = {}

    def turn(name: str, work: Callable[[Sequence[str]], set[int]]) -> float:
        return len(texts) / cpu_timed(lambda: found.__setitem__(name, work(texts)))

    subjects = {"ours": lambda: turn("ours", ours), "datasketch": lambda: turn("datasketch", by_datasketch)}
    rensa = peer("rensa")
    if rensa is not None:

        def by_rensa(texts: Sequence[str]) -> set[int]:
            filtered = rensa.RMinHashDeduplicator(threshold=MIN_SHARED, num_perm=128, use_lsh=True)
            kept = filtered.add_pairs((str(n), runs_of(text)) for n, text in enumerate(texts))
            return {n for n, is_kept in enumerate(kept) if not is_kept}

        subjects["rensa"] = lambda: turn("rensa", by_rensa)
    spreads = take_turns(subjects, 3)
    recall = {name: len(numbers & copies) / len(copies) for name, numbers in found.items()}
    value, other = spreads["ours"].median, spreads["datasketch"].median
    return Result(
        name="neardup",
        value=value,
        unit="exchanges/CPU s",
        peers={name: spread.median for name, spread in spreads.items() if name != "ours"},
        limit="a pass of hashing over the words",
        ratio=value / other,
        goal="every planted copy found, and faster than datasketch's own way",
        met=recall["ours"] == 1.0 and value > other,
        spread=spreads,
        notes=f"{len(texts):,} exchanges, {len(copies)} planted copies; found "
        + ", ".join(f"{name} {share:.3f} (+{len(found[name] - copies)} others)" for name, share in recall.items()),
    )
