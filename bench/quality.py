"""An engine's objects against the gold objects, and over a sample of the shared corpus.

Against gold: handle recall and precision (handles of core and context, of one form), room agreement (a gold room met by
a room whose words contain its words, or the other way round), density (tokens by the gold's). Over a sample by content
hash: what the checks find in what is committed, mean tokens, compression, surviving vocabulary (the share of an
exchange's ten terms of highest IDF that are in its object). The engine is extractive unless BACKFILL_QUALITY names a
config. Reads the shared corpus; prints the tables of docs/quality.md.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill.config import Config, load_config
from backfill.distill import distill, distill_fingerprint
from backfill.engines import make_engine
from backfill.fidelity.checks import check_object
from backfill.fidelity.handles import find_handles
from backfill.gate_sample import sample_of
from backfill.rooms import STOP_WORDS
from backfill.types import Exchange, PalaceObject, RoomAssignment
from bench.gold import TRANSCRIPTS, GoldPair, gold_pairs
from bench.harness import Result

SAMPLE = 2000
QUICK_SAMPLE = 200
LONG_TOKENS = 300
TOP_TERMS = 10
CONFIG_NAME = "BACKFILL_QUALITY"
_WORD = re.compile(r"[^\W_]{3,}")


@dataclass(frozen=True, slots=True)
class GoldScore:
    """Means over the gold exchanges; an object without a handle says nothing of precision."""

    recall: float
    precision: float
    rooms: float
    density: float
    mean_tokens: float


def run(quick: bool) -> Result:
    """Scores one engine; see the module."""
    path = os.environ.get(CONFIG_NAME, "")
    config = load_config(Path(path)) if path else Config()
    pairs = gold_pairs()
    gold = score_gold(pairs, objects_of(config, [pair.row for pair in pairs]))
    print(f"  gold: handle recall {gold.recall:.3f}, precision {gold.precision:.3f}, rooms {gold.rooms:.3f}, "
          f"density {gold.density:.2f}, {gold.mean_tokens:.1f} tokens")  # fmt: skip
    size = QUICK_SAMPLE if quick or path else SAMPLE
    rows = list(sample_of([Config(sources=(str(TRANSCRIPTS),))], size, lambda: False).rows)
    started = time.process_time()
    made = objects_of(config, rows)
    per_s = len(rows) / max(time.process_time() - started, 1e-9)
    _print_sample(rows, made, per_s if not path else math.nan)
    kind = f"{config.engine.kind} {config.engine.model}".strip()
    return Result(
        name="quality",
        value=gold.recall,
        unit="share of gold handles kept",
        peers={"precision": gold.precision, "rooms": gold.rooms, "density": gold.density},
        limit="the gold objects themselves",
        ratio=gold.recall,
        goal="density <= 1.25",
        met=gold.density <= 1.25,
        notes=f"{kind}, {len(pairs)} gold exchanges, {len(rows)} of the corpus",
    )


def objects_of(config: Config, rows: Sequence[Exchange]) -> list[PalaceObject]:
    """What a run would commit for these rows, in their order: after retry, checks and fallback."""
    engine = None if config.engine.kind == "extractive" else make_engine(config.engine)
    try:
        print_ = distill_fingerprint(config.distill, config.engine)
        (shard,) = distill(
            [("rows", list(rows))],
            config.distill,
            fingerprint=print_,
            engine=engine,
            max_new_tokens=config.engine.max_new_tokens,
        )
    finally:
        if engine is not None:
            engine.close()
    if engine is not None:
        print(f"  stats: {shard.stats}")
    return shard.objects


def score_gold(pairs: Sequence[GoldPair], made: Sequence[PalaceObject]) -> GoldScore:
    """Compares objects with the gold objects of the same rows."""
    recalls, precisions, rooms = [], [], []
    for pair, one in zip(pairs, made, strict=True):
        wanted, found = _handles(pair.made), _handles(one)
        recalls += [len(wanted & found) / len(wanted)] if wanted else []
        precisions += [len(wanted & found) / len(found)] if found else []
        rooms.append(_agreement(pair.made.room_assignments, one.room_assignments))
    tokens = sum(one.tokens for one in made)
    return GoldScore(
        _mean(recalls), _mean(precisions), _mean(rooms), tokens / sum(p.gold.tokens for p in pairs), tokens / len(made)
    )


def vocabulary(rows: Sequence[Exchange], made: Sequence[PalaceObject]) -> float:
    """The mean share of an exchange's terms of highest IDF (over `rows`) that its object has."""
    terms = [Counter(_terms(f"{row.user_text}\n{row.agent_text}")) for row in rows]
    spread = Counter(term for counts in terms for term in counts)
    shares = []
    for counts, one in zip(terms, made, strict=True):
        top = sorted(counts, key=lambda t: (spread[t], -counts[t], t))[:TOP_TERMS]
        told = set(_terms(f"{one.exchange_core}\n{one.specific_context}"))
        shares += [sum(term in told for term in top) / len(top)] if top else []
    return _mean(shares)


def _print_sample(rows: Sequence[Exchange], made: Sequence[PalaceObject], per_s: float) -> None:
    kinds = Counter(f.kind for row, one in zip(rows, made, strict=True) for f in check_object(one, row))
    tiers = dict(Counter(one.tier for one in made))
    print(
        f"  sample: {len(rows)} exchanges, tiers {tiers}, findings {dict(kinds)}, {per_s:.0f} exchanges per CPU second"
    )
    for name, least in (("all", 0), (f"of {LONG_TOKENS} tokens or more", LONG_TOKENS)):
        kept = [(row, one) for row, one in zip(rows, made, strict=True) if row.tokens_est >= least]
        before, after = sum(row.tokens_est for row, _ in kept), sum(one.tokens for _, one in kept)
        share = vocabulary([row for row, _ in kept], [one for _, one in kept])
        print(f"  {name}: {len(kept)} exchanges, {before / len(kept):.0f} -> {after / len(kept):.1f} tokens_est "
              f"({before / after:.1f}x), vocabulary {share:.3f}")  # fmt: skip


def _handles(made: PalaceObject) -> set[str]:
    text = f"{made.exchange_core}\n{made.specific_context}"
    return {h.text.casefold().strip("`\"'()") for h in find_handles(text)}


def _agreement(wanted: Sequence[RoomAssignment], found: Sequence[RoomAssignment]) -> float:
    """The share of wanted rooms that one of the found meets."""
    words = [set(room.room_key.split("_")) for room in found]
    met = [any(_within(set(room.room_key.split("_")), other) for other in words) for room in wanted]
    return sum(met) / len(met)


def _within(one: set[str], other: set[str]) -> bool:
    return one <= other or other <= one


def _terms(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(1, len(listed))
