"""Hits: a ranked document with its object, its place and its verbatim text, read from the row groups it stands in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from backfill.errors import BundleError
from backfill.recent import Recent
from backfill.text_pages import read_cells
from backfill.trees import iso, plain

if TYPE_CHECKING:
    from backfill.bundle import Segment
    from backfill.claim_search import ClaimHit
    from backfill.filters import Filters, Mask

_EXCHANGE = ("user_text", "agent_text")
_OBJECT = ("exchange_core", "specific_context", "room_assignments", "files_touched", "tier")
_MASKS = 16
OCCURRENCE_COLUMNS = ("agent", "session_id", "source", "byte_start", "byte_end", "project", "started_at", "part")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an exchange stands: a file relative to its source folder, and its bytes [byte_start, byte_end)."""

    path: str
    byte_start: int
    byte_end: int


@dataclass(frozen=True, slots=True)
class Location:
    """One place where an exchange, or a copy of it, stands; `started_at` is ISO 8601."""

    exchange_id: str
    agent: str
    session_id: str
    project: str
    started_at: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Hit:
    """One found exchange. `started_at` is ISO 8601 in UTC; `signals` are the raw scores that were fused.

    `places` are all places where it stands, the shown one first, and after these the places of the near copies that
    were folded into it, whose ids `folded` lists. In mode claims, `claim` is the text of the claim that was found and
    `found_claim` all of it. `note` says why a closest miss is none of the hits.
    """

    exchange_id: str
    score: float
    session_id: str
    project: str
    agent: str
    started_at: str | None
    exchange_core: str
    specific_context: str
    rooms: tuple[str, ...]
    files: tuple[str, ...]
    user_text: str
    agent_text: str
    source: Source
    part: int = 0
    tier: str | None = None
    signals: dict[str, float] = field(default_factory=dict)
    claim: str = ""
    note: str = ""
    places: tuple[Location, ...] = ()
    folded: tuple[str, ...] = ()
    found_claim: ClaimHit | None = None

    def to_tree(self) -> dict[str, Any]:
        """As JSON prints it; an empty claim or note is left out."""
        tree: dict[str, Any] = plain(self)
        return {name: value for name, value in tree.items() if value or name not in ("claim", "note", "found_claim")}


class Place(msgspec.Struct, frozen=True):
    """A ranked document, before its rows are read. `claim` is the number of the claim that won it, -1 for none."""

    segment: Segment
    doc: int
    exchange_id: bytes
    score: float = 0.0
    signals: dict[str, float] = msgspec.field(default_factory=dict)
    claim: int = -1


def read_hits(places: Sequence[Place], filters: Filters | None = None) -> list[Hit]:
    """The hits of the places, in their order; each row group is decoded once.

    Shown is the best visible occurrence among those that meet the filters.
    """
    texts = _texts(places)
    by_segment: dict[str, list[int]] = defaultdict(list)
    for number, place in enumerate(places):
        by_segment[place.segment.name].append(number)
    hits: dict[int, Hit] = {}
    for numbers in by_segment.values():
        segment = places[numbers[0]].segment
        found = _segment_hits(segment, [places[n] for n in numbers], [texts[n] for n in numbers], filters)
        hits.update(zip(numbers, found, strict=True))
    return [hits[number] for number in range(len(places))]


def _texts(places: Sequence[Place]) -> list[dict[str, Any]]:
    """The verbatim text of each place by column; those of all segments are decoded at once."""
    rows = [(place.segment.table("exchanges"), int(place.segment.docs.exchange_row[place.doc])) for place in places]
    found = read_cells([(table, name, row) for table, row in rows for name in _EXCHANGE])
    return [{name: found[table, name, row] for name in _EXCHANGE} for table, row in rows]


def _segment_hits(
    segment: Segment, places: Sequence[Place], texts: Sequence[dict[str, Any]], filters: Filters | None
) -> list[Hit]:
    docs = segment.docs
    meets = _meets(segment, filters) if filters is not None and filters.on_occurrences else None
    object_at = [int(docs.object_row[p.doc]) for p in places]
    occurrence_at = [_occurrence(segment, p.doc, meets) for p in places]
    shown = [at for at in object_at if at >= 0]
    objects = segment.table("objects").rows_at(_OBJECT, shown) if shown else {}
    standing = [occurrence_rows(segment, p.doc) for p in places]
    occurrences = segment.table("occurrences").rows_at(OCCURRENCE_COLUMNS, [row for rows in standing for row in rows])
    try:
        return [
            _hit(place, text, objects.get(o), [occurrences[c], *(occurrences[r] for r in rows if r != c)])
            for place, text, o, c, rows in zip(places, texts, object_at, occurrence_at, standing, strict=True)
        ]
    except (KeyError, TypeError) as error:
        raise BundleError(f"segment {segment.name} holds a row that is none of its table's") from error


def _meets(segment: Segment, filters: Filters) -> Mask:
    recent: Recent[Mask] = segment.once("=masks", Recent, _MASKS)
    mask = recent.get(filters)
    if mask is None:
        mask = filters.occurrence_mask(segment)
        recent.put(filters, mask, 1)
    return mask


def occurrence_rows(segment: Segment, doc: int) -> list[int]:
    """The rows of a document's visible occurrences, the best first."""
    docs = segment.docs
    rows: list[int] = docs.occ_row[int(docs.occ_indptr[doc]) : int(docs.occ_indptr[doc + 1])].tolist()
    return rows


def _occurrence(segment: Segment, doc: int, meets: Mask | None) -> int:
    rows = occurrence_rows(segment, doc)
    return rows[0] if meets is None else rows[int(np.argmax(meets[rows]))]


def _hit(
    place: Place, exchange: dict[str, Any], palace: dict[str, Any] | None, occurrences: list[dict[str, Any]]
) -> Hit:
    at = occurrences[0]
    return Hit(
        exchange_id=place.exchange_id.hex(),
        score=place.score,
        session_id=at["session_id"],
        project=at["project"],
        agent=at["agent"],
        started_at=iso(at["started_at"]),
        exchange_core=palace["exchange_core"] if palace else "",
        specific_context=palace["specific_context"] if palace else "",
        rooms=tuple(room["room_key"] for room in palace["room_assignments"]) if palace else (),
        files=tuple(touched["path"] for touched in palace["files_touched"]) if palace else (),
        user_text=exchange["user_text"],
        agent_text=exchange["agent_text"],
        source=Source(at["source"], at["byte_start"], at["byte_end"]),
        part=at["part"],
        tier=palace["tier"] if palace else None,
        signals=place.signals,
        places=tuple(location(place.exchange_id, row) for row in occurrences),
    )


def location(exchange_id: bytes, row: dict[str, Any]) -> Location:
    """A row of occurrences as a place."""
    source = Source(row["source"], row["byte_start"], row["byte_end"])
    return Location(exchange_id.hex(), row["agent"], row["session_id"], row["project"], iso(row["started_at"]), source)
