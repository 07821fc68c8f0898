"""Claims of a window by an engine: the job that asks, and the shard that holds what came of it.

An answer's claims are judged one by one; those that fail are named in the retry. A window's claims are of one tier, for
a window shows one tier: the engine's where they cover at least half of the exchanges worth finding, else extractive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backfill.claim_prompt import CLAIMS_SCHEMA, Draft, build_claims_prompt, claim_source, parse_claims
from backfill.config import DistillConfig
from backfill.distill_jobs import Ask, key_of, refused
from backfill.distill_shard import DistilledShard, ShardStats, Slots
from backfill.engines.base import Answer
from backfill.extractive_claims import Statement, claims_of_window, make_claim
from backfill.fidelity.claim_checks import ClaimSource, claim_faults
from backfill.ids import digest_fields
from backfill.rundir import CLAIMS
from backfill.schema import Rejection
from backfill.types import Claim
from backfill.windows import Window

# Below this share of the exchanges worth finding, extraction says more.
MIN_COVERED = 0.5


class OpenClaims(Slots[Window, list[Claim]]):
    """A claims shard under way; its rows are windows."""

    def settle(self, i: int, claims: list[Claim], tier: str) -> None:
        """Window `i` has its claims."""
        self._fill(i, claims, tier)

    def fall(self, i: int) -> None:
        """Window `i` gets extractive claims; where it has none it counts as raw."""
        claims = self.extractive(i)
        self.settle(i, claims, "extractive" if claims else "raw")

    def extractive(self, i: int) -> list[Claim]:
        """The extractive claims of window `i`."""
        config = self._config
        return claims_of_window(
            self.rows[i], generation=config.generation, fingerprint=self._fingerprint, min_tokens=config.min_tokens
        )

    def eligible(self) -> list[int]:
        """Windows that an engine is asked about; those of exchanges below min_tokens alone are settled on the way."""
        asked = []
        for i, window in enumerate(self.rows):
            if any(row.tokens_est >= self._config.min_tokens for row in window.exchanges):
                asked.append(i)
            else:
                self.fall(i)
        self.counts["eligible"] = len(asked)
        return asked

    def done(self) -> DistilledShard:
        claims = [claim for slot in self._slots for claim in slot or ()]
        stats = ShardStats(
            n=len(self.rows),
            n_claims=len(claims),
            failures=dict(sorted(self.failures.items())),
            engine_s=self.engine_s,
            **self.counts,
        )
        return DistilledShard(self.name, [], stats, claims)


@dataclass(slots=True)
class ClaimJob:
    """One window, asked about at most `max_attempts` times."""

    shard: OpenClaims
    place: int
    config: DistillConfig
    fingerprint: str
    budget_tokens: int
    attempt: int = 0
    product: str = CLAIMS
    _kept: list[Draft] = field(default_factory=list)
    _worth: frozenset[bytes] | None = None

    @property
    def window(self) -> Window:
        return self.shard.rows[self.place]

    def ask(self, refusal: str) -> Ask:
        self.attempt += 1
        prompt = build_claims_prompt(self.window, budget_tokens=self.budget_tokens, refusal=refusal)
        if prompt.cuts and self.attempt == 1:
            self.shard.counts["cut"] += 1
        content = digest_fields([row.content_id for row in self.window.exchanges])
        key = key_of(content, self.attempt, prompt)
        return Ask(prompt.system, prompt.user, CLAIMS_SCHEMA, self.config.claims_max_new_tokens, key)

    def judge(self, answer: Answer) -> Rejection | None:
        if rejection := refused(answer):
            return rejection
        drafts = parse_claims(answer.text, len(self.window.exchanges))
        if isinstance(drafts, Rejection):
            return drafts
        good, refusal = self._sound(drafts)
        if self._covered(good) > self._covered(self._kept):
            self._kept = good
        missing = next((n for n, xid in self._numbered() if xid in self._worth_finding() - self._ids(good)), None)
        if refusal is None and missing is not None:
            refusal = Rejection("coverage", f"exchange {missing} has no claim")
        if refusal is not None and (self.attempt < self.config.max_attempts or not self._does(self._kept)):
            return refusal
        self._settle()
        return None

    def shrink(self) -> None:
        self.budget_tokens //= 2

    def fall(self) -> None:
        if self._does(self._kept):
            self._settle()
        else:
            self.shard.fall(self.place)

    def _settle(self) -> None:
        window, claims = self.window, []
        for draft in self._kept:
            ids = [window.exchanges[n - 1].exchange_id for n in draft.exchanges]
            # What several exchanges say together held once the last of them was over.
            started_at = window.starts[max(draft.exchanges) - 1]
            said = Statement(draft.text, draft.kind)
            claims.append(make_claim(window, said, ids, started_at, "llm", self.config.generation, self.fingerprint))
        self.shard.settle(self.place, list({claim.claim_id: claim for claim in claims}.values()), "llm")

    def _sound(self, drafts: Sequence[Draft]) -> tuple[list[Draft], Rejection | None]:
        """The drafts without a fault, and the first fault of the others."""
        source = ClaimSource.of(claim_source(self.window))
        good: list[Draft] = []
        refusal: Rejection | None = None
        for draft in drafts:
            faults = claim_faults(draft.text, source)
            if not faults:
                good.append(draft)
            elif refusal is None:
                refusal = Rejection(faults[0].kind, f"{faults[0].handle!r} in {draft.text[:80]!r}")
        return good, refusal

    def _numbered(self) -> list[tuple[int, bytes]]:
        return [(n, row.exchange_id) for n, row in enumerate(self.window.exchanges, 1)]

    def _ids(self, drafts: Sequence[Draft]) -> frozenset[bytes]:
        return frozenset(self.window.exchanges[n - 1].exchange_id for draft in drafts for n in draft.exchanges)

    def _covered(self, drafts: Sequence[Draft]) -> int:
        return len(self._ids(drafts))

    def _worth_finding(self) -> frozenset[bytes]:
        """The exchanges that extraction finds a claim in."""
        if self._worth is None:
            self._worth = frozenset(xid for claim in self.shard.extractive(self.place) for xid in claim.exchange_ids)
        return self._worth

    def _does(self, drafts: Sequence[Draft]) -> bool:
        worth = self._worth_finding()
        return bool(drafts) and len(worth & self._ids(drafts)) >= MIN_COVERED * len(worth)
