"""Detection of planted faults and false alarms, per kind, over the gold objects and claims.

A planted item counts as found where the checks report something that the faithful item does not have. False alarms are
faithful items of which anything is reported, `dropped` and `bloat` included. Goal: at least 95% of all planted faults
found, of every kind, at no more than 3% false alarms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from backfill.fidelity.checks import check_object, exchange_source
from backfill.fidelity.claim_checks import ClaimSource, claim_faults
from backfill.fidelity.handles import find_handles
from backfill.text import tokens_est
from backfill.types import Finding
from bench.gold import GoldPair, gold_pairs
from bench.harness import Result
from bench.planted import MISSING_ERROR, plants

Checker: TypeAlias = Callable[[str, str], tuple[Finding, ...]]

GOAL_FOUND = 0.95
GOAL_FALSE_ALARMS = 0.03


@dataclass(slots=True)
class Score:
    """Planted faults of one kind, how many were found, and the texts of those that were missed."""

    planted: int = 0
    found: int = 0
    missed: list[str] = field(default_factory=list)

    def take(self, found: bool, text: str) -> None:
        self.planted += 1
        self.found += found
        if not found:
            self.missed.append(text)


@dataclass(slots=True)
class Scores:
    """Scores by (product, kind); faithful items by product, and those that were refused."""

    kinds: dict[tuple[str, str], Score] = field(default_factory=lambda: defaultdict(Score))
    faithful: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    alarms: dict[str, list[tuple[str, tuple[Finding, ...]]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def detection(self) -> float:
        return sum(s.found for s in self.kinds.values()) / sum(s.planted for s in self.kinds.values())

    @property
    def false_alarms(self) -> float:
        return sum(map(len, self.alarms.values())) / sum(self.faithful.values())


def score(pairs: Sequence[GoldPair]) -> Scores:
    """Plants every kind into every item that it fits."""
    scores = Scores()
    others = sorted({h.text for p in pairs for h in find_handles(p.gold.exchange_core) if h.kind == "path"})
    kinds = plants(others)
    for pair in pairs:
        source = exchange_source(pair.row)
        claim_source = ClaimSource.of(source)
        items: list[tuple[str, str, Checker]] = [("object", pair.gold.exchange_core, partial(_check_core, pair))]
        items += [("claim", claim.text, partial(_check_claim, claim_source)) for claim in pair.gold.claims]
        for product, text, check in items:
            clean = check(text, "")
            scores.faithful[product] += 1
            if clean:
                scores.alarms[product].append((text, clean))
            for plant in kinds:
                # A claim speaks of one fact, and leaves out all others rightly.
                faulty = None if (product, plant.kind) == ("claim", MISSING_ERROR) else plant.make(text, source)
                if faulty is not None and faulty != text:
                    scores.kinds[product, plant.kind].take(bool(set(check(faulty, plant.kind)) - set(clean)), faulty)
    return scores


def _check_core(pair: GoldPair, core: str, kind: str) -> tuple[Finding, ...]:
    made = replace(pair.made, exchange_core=core)
    if kind == MISSING_ERROR:  # gone from the context too
        made = replace(made, specific_context="", context_start=0, context_end=0)
    made = replace(made, tokens=tokens_est(core + "\n" + made.specific_context))
    return check_object(made, pair.row)


def _check_claim(source: ClaimSource, text: str, kind: str) -> tuple[Finding, ...]:
    return claim_faults(text, source)


def run(quick: bool) -> Result:
    """Scores the checks; see the module."""
    pairs = gold_pairs()
    scores = score(pairs)
    for (product, kind), one in sorted(scores.kinds.items()):
        print(f"  {product:<7} {kind:<18} {one.found:4} of {one.planted:4} found ({one.found / one.planted:.1%})")
        if not quick:
            for text in one.missed:
                print(f"      missed: {text}")
    for product, n in scores.faithful.items():
        print(f"  {product:<7} false alarms       {len(scores.alarms[product]):4} of {n:4}")
        for text, findings in scores.alarms[product]:
            print(f"      {', '.join(f'{f.kind} {f.handle!r}' for f in findings)}: {text}")
    least = min(one.found / one.planted for one in scores.kinds.values())
    return Result(
        name="faults",
        value=scores.detection,
        unit="share of planted faults found",
        peers={"least kind": least, "false alarms": scores.false_alarms},
        limit="all of them",
        ratio=scores.detection,
        goal=f">= {GOAL_FOUND} found at <= {GOAL_FALSE_ALARMS} false alarms",
        met=scores.detection >= GOAL_FOUND and scores.false_alarms <= GOAL_FALSE_ALARMS,
        notes=f"{len(pairs)} gold objects and their claims, {sum(s.planted for s in scores.kinds.values())} faults",
    )
