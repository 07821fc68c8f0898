"""A shard of the distill stage under way, and what comes of it.

Holds a slot for each exchange row until every row has its object, and the counts that the shard's manifest records.
Deliberately absent: engines and prompts; a row settles here with an object, or falls to the extractive distiller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from backfill.config import DistillConfig
from backfill.extractive import extract
from backfill.ids import row_bytes
from backfill.types import Claim, Exchange, PalaceObject

Row = TypeVar("Row")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ShardStats:
    """Counts of one shard. Rows: `n` = `llm` + `extractive` + `raw`; `eligible` have at least min_tokens.

    `failures` counts refused answers by reason (a content may have two), `requests` what the engine was asked,
    `replayed` what the log answered, `cached` rows that a bundle had the object (or claims) of, `shared` what waited
    for an equal request, `cut` rows whose first prompt left out some of their text for its budget. Tokens are the
    model's own. `engine_s` runs from the shard's first request to its last answer; shards overlap. In a claims shard
    rows are windows, raw ones gave no claim, and `n_claims` counts all.
    """

    n: int = 0
    eligible: int = 0
    llm: int = 0
    extractive: int = 0
    raw: int = 0
    requests: int = 0
    retries: int = 0
    replayed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    engine_s: float = 0.0
    n_claims: int = 0
    shared: int = 0
    cached: int = 0
    cut: int = 0
    failures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DistilledShard:
    """A shard that is done: objects in the order of its rows, or the claims of its windows."""

    name: str
    objects: list[PalaceObject]
    stats: ShardStats
    claims: list[Claim] = field(default_factory=list)


class Slots(Generic[Row, Made]):
    """What is under way in a shard of either product: a slot for each row, and counters."""

    def __init__(self, name: str, rows: Sequence[Row], config: DistillConfig, fingerprint: str) -> None:
        self.name = name
        self.rows = rows
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.first_asked: float | None = None
        self.last_answered = 0.0
        self._config = config
        self._fingerprint = fingerprint
        self._slots: list[Made | None] = [None] * len(rows)
        self._open = len(rows)

    def _fill(self, i: int, made: Made, tier: str) -> None:
        self._slots[i] = made
        self._open -= 1
        self.counts[tier] += 1

    @property
    def complete(self) -> bool:
        return self._open == 0

    @property
    def engine_s(self) -> float:
        """Seconds from the first request to the last answer; 0 where nothing was asked."""
        return round(self.last_answered - self.first_asked, 3) if self.first_asked is not None else 0.0


class OpenShard(Slots[Exchange, PalaceObject]):
    """A shard of objects under way."""

    def groups(self) -> list[list[int]]:
        """Row numbers of equal content, the representative first; rows below min_tokens are settled on the way."""
        by_content: dict[bytes, list[int]] = {}
        for i, row in enumerate(self.rows):
            if row.tokens_est < self._config.min_tokens:
                self.fall(i)
            else:
                by_content.setdefault(row.content_id, []).append(i)
        for group in by_content.values():
            if len(group) > 1:
                group.sort(key=lambda i: _stored_size(self.rows[i]), reverse=True)
        return list(by_content.values())

    def settle(self, i: int, made: PalaceObject) -> None:
        """Row `i` has its object."""
        self._fill(i, made, made.tier)

    def fall(self, i: int) -> None:
        """Row `i` goes down the ladder: extractive, which itself falls back to raw."""
        config = self._config
        made = extract(
            self.rows[i], generation=config.generation, fingerprint=self._fingerprint, min_tokens=config.min_tokens
        )
        self.settle(i, made)

    def done(self) -> DistilledShard:
        stats = ShardStats(
            n=len(self.rows),
            eligible=sum(row.tokens_est >= self._config.min_tokens for row in self.rows),
            failures=dict(sorted(self.failures.items())),
            engine_s=self.engine_s,
            **self.counts,
        )
        return DistilledShard(self.name, [made for made in self._slots if made is not None], stats)


def _stored_size(row: Exchange) -> tuple[int, bytes]:
    """Orders rows of one content: the one with more stored bytes says more, ties by row bytes."""
    data = row_bytes(row)
    return len(data), data
