"""The gold set: palace objects and claims written by hand for exchanges of the shared corpus.

Reads tests/gold/*.jsonl; an exchange is named by its content_id and the transcript that holds it, never by its text.
Used to score engines, and as the faithful items on which false alarms of the checks are counted. Deliberately absent:
any way into a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from backfill.config import ScanConfig
from backfill.errors import BackfillError
from backfill.extractive import Candidate
from backfill.ids import row_hash
from backfill.rooms import rooms_from
from backfill.schema import locate
from backfill.sources import read_unit
from backfill.text import tokens_est
from backfill.toolpaths import files_touched
from backfill.types import ClaimKind, Exchange, PalaceObject, RoomType

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "gold"
TRANSCRIPTS = ROOT.parent / "shared" / "data" / "transcripts"


class GoldClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of one exchange."""

    text: str
    kind: ClaimKind


class Gold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a careful reader would keep of one exchange; `rooms` are "type:key", `content_id` is 32 hex digits."""

    content_id: str
    source: str
    exchange_core: str
    specific_context: str
    rooms: tuple[str, ...]
    claims: tuple[GoldClaim, ...]

    @property
    def tokens(self) -> int:
        """tokens_est of the distilled text."""
        return tokens_est(self.exchange_core + "\n" + self.specific_context)


@dataclass(frozen=True, slots=True)
class GoldPair:
    """A gold record, its exchange row, and the palace object that it stands for in that row."""

    gold: Gold
    row: Exchange
    made: PalaceObject


def load_gold(folder: Path = FOLDER) -> list[Gold]:
    """All records, in the order of files and lines. Raises BackfillError for a line that is none."""
    records = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                records.append(msgspec.json.decode(line, type=Gold))
            except msgspec.MsgspecError as error:
                raise BackfillError(
                    f"{path}, line {number}: {error}", hint="fields: content_id, source, ..."
                ) from error
    return records


def gold_pairs(transcripts: Path = TRANSCRIPTS, records: Iterable[Gold] | None = None) -> list[GoldPair]:
    """The records with their exchanges. Raises BackfillError where the corpus lacks one, or its context."""
    if not transcripts.is_dir():
        raise BackfillError(f"the shared corpus is not there: {transcripts}")
    wanted = list(load_gold() if records is None else records)
    rows: dict[str, Exchange] = {}
    for source in sorted({gold.source for gold in wanted}):
        path = transcripts / source
        for row in read_unit(path, source, path.stat().st_size, ScanConfig()).exchanges:
            rows.setdefault(row.content_id.hex(), row)
    missing = [gold.content_id for gold in wanted if gold.content_id not in rows]
    if missing:
        raise BackfillError(
            f"{len(missing)} gold exchanges are not in the corpus, such as {missing[0]}",
            hint="a reader gives other content ids than before: name the exchanges anew",
        )
    return [GoldPair(gold, rows[gold.content_id], gold_object(gold, rows[gold.content_id])) for gold in wanted]


def gold_object(gold: Gold, row: Exchange) -> PalaceObject:
    """The palace object that a record stands for. Raises BackfillError where the context is in no text of the row."""
    place = locate(row, Candidate("gold", "user_text", 0, 0, gold.specific_context, 0.0))
    if place is None:
        raise BackfillError(f"the context of gold {gold.content_id} stands nowhere in its exchange")
    pairs: list[tuple[RoomType, str]] = []
    for text in gold.rooms:
        kind, _, key = text.partition(":")
        pairs.append((kind, key))  # type: ignore[arg-type]
    name, start, end = place
    return PalaceObject(
        exchange_id=row.exchange_id,
        exchange_core=gold.exchange_core,
        specific_context=gold.specific_context,
        context_field=name,
        context_start=start,
        context_end=end,
        room_assignments=rooms_from(pairs),
        files_touched=files_touched(row),
        tier="llm",
        generation=0,
        fingerprint="gold",
        tokens=gold.tokens,
        findings=(),
        source_row=row_hash(row),
    )
