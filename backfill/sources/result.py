"""What reading one unit yields."""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill.spill import ExchangeRows
from backfill.types import Exchange, LedgerRow, Occurrence


@dataclass(slots=True)
class UnitResult:
    """What one unit yields. `agent` is empty where no reader knows it; `secrets` counts replacements by type."""

    agent: str
    exchanges: list[Exchange] | ExchangeRows
    occurrences: list[Occurrence]
    ledger: list[LedgerRow]
    secrets: dict[str, int] = field(default_factory=dict)
    decode_errors: int = 0
    sessions: int = 0
