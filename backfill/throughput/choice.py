"""Which measured cell to take, and which to measure last: the best value of every axis together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backfill.gate import PASS
from backfill.throughput.axes import Changes
from backfill.throughput.measure import VERDICTS, Measured

# How many more faults of a hundred than the configuration itself a cell may have.
MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The cell to take and why; `safe` says that its engine passes the gate."""

    cell: Measured
    reason: str
    safe: bool


def best(cells: Sequence[Measured]) -> Recommendation | None:
    """The fastest cell of the best verdict, as far as the figures tell cells apart; None where nothing was measured.

    A shorter excerpt is faster because it leaves things out, so cells with more faults than the configuration itself
    are left out. Of cells that are equal within their intervals the one with the fewest changes is taken.
    """
    measured = [cell for cell in cells if not cell.failure]
    if not measured:
        return None
    verdict = min((cell.verdict for cell in measured), key=VERDICTS.index)
    peers = [cell for cell in measured if cell.verdict == verdict]
    own = _own(measured)
    faithful = [cell for cell in peers if own is None or cell.faults <= own.faults + MARGIN] or peers
    fastest = max(faithful, key=lambda cell: cell.exchanges_s)
    alike = [cell for cell in faithful if not told_apart(cell, fastest)]
    taken = min(alike, key=lambda cell: (len(cell.changes), -cell.exchanges_s))
    said = [f"{len(peers)} of {len(measured)} settings earn {verdict}, the best verdict here"]
    if len(faithful) < len(peers):
        said.append(f"{len(peers) - len(faithful)} of them have more faults than the configuration itself")
    said += _compared(taken, fastest, own)
    if verdict != PASS:
        said.append("no setting passes the gate, so another model or prompt is the better change")
    return Recommendation(taken, "; ".join(said), verdict == PASS)


def _compared(taken: Measured, fastest: Measured, own: Measured | None) -> list[str]:
    said = []
    if own is not None and taken is not own:
        said.append(
            f"it does {taken.exchanges_s / own.exchanges_s:.2f} times the exchanges of the configuration as it is"
        )
    if taken is fastest:
        said.append("it is the fastest of the rest")
    else:
        said.append(
            f"{fastest.name} was {fastest.exchanges_s / taken.exchanges_s:.2f} times as fast, which this sample cannot "
            "tell from chance"
        )
    return said


def combination(cells: Sequence[Measured]) -> Changes | None:
    """The best value of every axis that is surely faster than the configuration itself and as faithful; None where
    these are fewer than two axes, or were measured together already."""
    own = _own(cells)
    if own is None:
        return None
    gains: dict[str, Measured] = {}
    for cell in cells:
        if len(cell.changes) != 1 or cell.failure or cell.exchanges_s <= own.exchanges_s or not told_apart(cell, own):
            continue
        if VERDICTS.index(cell.verdict) > VERDICTS.index(own.verdict) or cell.faults > own.faults + MARGIN:
            continue
        (key,) = cell.changes
        if key not in gains or cell.exchanges_s > gains[key].exchanges_s:
            gains[key] = cell
    together = {key: value for cell in gains.values() for key, value in cell.changes.items()}
    known = [cell.changes for cell in cells]
    return together if len(together) > 1 and together not in known else None


def told_apart(one: Measured, other: Measured) -> bool:
    """Whether the 95% intervals of two rates are apart."""
    low, high = sorted((one, other), key=lambda cell: cell.exchanges_s)
    return low.exchanges_s * (1 + low.error) < high.exchanges_s * (1 - high.error)


def _own(cells: Sequence[Measured]) -> Measured | None:
    return next((cell for cell in cells if not cell.changes and not cell.failure), None)
