"""What bundles already hold of an LLM's work, so that a run does not pay for it again.

Objects are known by (content_id, fingerprint), claims by the window and reading that they were made of. What is taken
over is checked against the row at hand as an answer would be, and carries that row's ids, files and generation; what
does not hold there is asked about anew. Deliberately absent: answers of runs, which their logs hold (`answer_cache`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from backfill.bundle import Bundle
from backfill.fidelity.checks import HARD, check_object
from backfill.ids import row_hash
from backfill.toolpaths import files_touched
from backfill.types import Claim, Exchange, PalaceObject
from backfill.verify import context_holds, read_rows
from backfill.windows import Window

_WindowKey: TypeAlias = tuple[str, str, int, int]


class MadeBefore:
    """Objects and claims of tier llm in some bundles, under one fingerprint each."""

    def __init__(self, bundles: Iterable[Path], fingerprint: str, claims_fingerprint: str) -> None:
        self._objects: dict[bytes, PalaceObject] = {}
        self._claims: dict[_WindowKey, list[Claim]] = {}
        for path in bundles:
            with Bundle.open(path) as bundle:
                for segment in bundle.segments:
                    contents = segment.table("exchanges").read(["exchange_id", "content_id"])
                    content_of = dict(zip(contents["exchange_id"], contents["content_id"], strict=True))
                    for made in read_rows(segment, "objects"):
                        if made.tier == "llm" and made.fingerprint == fingerprint and made.exchange_id in content_of:
                            self._objects.setdefault(content_of[made.exchange_id], made)
                    for claim in read_rows(segment, "claims") if segment.has("claims") else ():
                        if claim.tier == "llm" and claim.fingerprint == claims_fingerprint:
                            key = (claim.session_id, claim.source, claim.window, claim.reading)
                            self._claims.setdefault(key, []).append(claim)

    def objects_of(self, rows: Sequence[Exchange], generation: int) -> list[PalaceObject] | None:
        """The objects of rows of one content, each checked against its row; None where one does not hold."""
        known = self._objects.get(rows[0].content_id)
        if known is None:
            return None
        made = [_moved(known, row, generation) for row in rows]
        return [each for each in made if each is not None] if None not in made else None

    def claims_of(self, window: Window, generation: int) -> list[Claim] | None:
        """The claims of a window, where all of them are about its exchanges; None where there are none."""
        found = self._claims.get((window.session_id, window.source, window.window, window.reading), [])
        ids = {row.exchange_id for row in window.exchanges}
        if not found or not all(ids.issuperset(claim.exchange_ids) for claim in found):
            return None
        return [replace(claim, generation=generation) for claim in found]


def _moved(known: PalaceObject, row: Exchange, generation: int) -> PalaceObject | None:
    made = replace(
        known,
        exchange_id=row.exchange_id,
        files_touched=files_touched(row),
        generation=generation,
        source_row=row_hash(row),
    )
    if not context_holds(made, row) or any(finding.kind in HARD for finding in check_object(made, row)):
        return None
    return made
