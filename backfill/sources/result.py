"""What reading one unit yields, and how the results of several become one.

Counts by format go with it, so that each member of an archive counts under the agent that wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill.sources.checkpoint import Checkpoint
from backfill.spill import SpilledRows
from backfill.types import Exchange, LedgerRow, Occurrence


@dataclass(slots=True)
class UnitResult:
    """What one unit yields. `agent` is empty where no reader knows it; `secrets` counts replacements by type.

    `silent` are sessions (agent, session id) without an exchange. `formats` has the counts by agent where the unit is
    a container of several files. `kept` lets a later reading go on, `earlier` are the exchanges that the reading before
    this one gave.
    """

    agent: str
    exchanges: list[Exchange] | SpilledRows[Exchange]
    occurrences: list[Occurrence] | SpilledRows[Occurrence]
    ledger: list[LedgerRow]
    secrets: dict[str, int] = field(default_factory=dict)
    decode_errors: int = 0
    sessions: int = 0
    silent: list[tuple[str, str]] = field(default_factory=list)
    formats: dict[str, Counter[str]] = field(default_factory=dict)
    kept: Checkpoint | None = None
    earlier: frozenset[bytes] = frozenset()


def counted(result: UnitResult, sizes: Mapping[str, int]) -> Counter[str]:
    """Files, bytes, sessions, exchanges, occurrences, and records by state and by state and reason."""
    counts = Counter(files=len(sizes), bytes=sum(sizes.values()), sessions=result.sessions)
    counts.update(exchanges=len(result.exchanges), occurrences=len(result.occurrences))
    for row in result.ledger:
        counts[row.state] += row.n_records
        if row.reason:
            counts[f"{row.state}:{row.reason}"] += row.n_records
    return counts


def by_format(result: UnitResult, sizes: Mapping[str, int]) -> dict[str, Counter[str]]:
    """The counts of a result under the agents whose files it read."""
    return result.formats or {result.agent or "none": counted(result, sizes)}


def join(whole: UnitResult, one: UnitResult, sizes: Mapping[str, int]) -> None:
    """Adds the rows and counts of `one`, read from files of these sizes, to `whole`."""
    whole.exchanges.extend(one.exchanges)
    whole.occurrences.extend(one.occurrences)
    whole.ledger += one.ledger
    whole.secrets = dict(Counter(whole.secrets) + Counter(one.secrets))
    whole.decode_errors += one.decode_errors
    whole.sessions += one.sessions
    whole.silent += one.silent
    for agent, counts in by_format(one, sizes).items():
        whole.formats.setdefault(agent, Counter()).update(counts)
