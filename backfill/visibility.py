"""What is visible: pure functions of the tables.

Nothing here depends on the order in which rows arrived, so merging stays a set union. `ordinal` fields of a row are
compared first, its canonical bytes break every tie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from backfill.ids import row_bytes, row_hash
from backfill.types import TIER_RANK, Claim, Exchange, Occurrence, PalaceObject, Room

UNDATED = "undated"


def visible_occurrences(rows: Iterable[Occurrence]) -> list[Occurrence]:
    """Per key the greatest row by (scan_version, n_records, exchange_id, row bytes).

    Rows that a better reader read again are left out first: those for which a higher scan_version has a row of the
    same session and source that ends at or after their byte_end.
    """
    rows = list(rows)
    reach: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for row in rows:
        ends = reach[row.agent, row.session_id, row.source]
        ends[row.scan_version] = max(row.byte_end, ends.get(row.scan_version, 0))
    best: dict[tuple[str, str, str, int], Occurrence] = {}
    for row in rows:
        ends = reach[row.agent, row.session_id, row.source]
        if any(version > row.scan_version and end >= row.byte_end for version, end in ends.items()):
            continue
        key = (row.agent, row.session_id, row.anchor, row.part)
        other = best.get(key)
        if other is None or _occurrence_rank(row) > _occurrence_rank(other):
            best[key] = row
    return list(best.values())


def stored_bytes(row: Exchange) -> int:
    """UTF-8 bytes of all text that a row stores; of two rows with one id the fuller one is shown."""
    texts = [row.user_text, row.agent_text, row.thinking]
    for tool in row.tools:
        texts += (tool.input, tool.head, tool.tail)
    return sum(len(text.encode()) for text in texts)


def exchange_rank(row: Exchange) -> tuple[int, bytes]:
    """Order of rows with one exchange_id: (stored bytes, row bytes)."""
    return stored_bytes(row), row_bytes(row)


def visible_exchanges(
    rows: Iterable[Exchange], occurrences: Iterable[Occurrence], forgotten: Collection[bytes]
) -> dict[bytes, Exchange]:
    """By exchange_id: the row that is shown of every exchange that a visible occurrence names."""
    named = {o.exchange_id for o in occurrences}.difference(forgotten)
    best: dict[bytes, Exchange] = {}
    for row in rows:
        if row.exchange_id not in named:
            continue
        other = best.get(row.exchange_id)
        if other is None or exchange_rank(row) > exchange_rank(other):
            best[row.exchange_id] = row
    return best


def visible_objects(rows: Iterable[PalaceObject], exchanges: Mapping[bytes, Exchange]) -> dict[bytes, PalaceObject]:
    """By exchange_id: the greatest by (tier, generation, fingerprint, row), of visible exchanges only.

    Between rows that differ in the last alone, one made from the exchange row that is shown goes first: so a history
    that grew (its tool outputs arrived later) shows what a history read at once shows.
    """
    shown = {xid: row_hash(row) for xid, row in exchanges.items()}
    best: dict[bytes, tuple[tuple[int, int, str, bool, bytes], PalaceObject]] = {}
    for row in rows:
        if row.exchange_id not in shown:
            continue
        from_shown = row.source_row == shown[row.exchange_id]
        rank = (TIER_RANK[row.tier], row.generation, row.fingerprint, from_shown, row_bytes(row))
        if row.exchange_id not in best or rank > best[row.exchange_id][0]:
            best[row.exchange_id] = (rank, row)
    return {xid: row for xid, (_, row) in best.items()}


def visible_claims(rows: Iterable[Claim], exchanges: Collection[bytes], forgotten: Collection[bytes]) -> list[Claim]:
    """Per window the rows of the greatest (tier, generation, fingerprint), with a visible and no forgotten source.

    A window is (session_id, source, window) as it was last read: rows of an earlier reading, made before the session
    grew, go first of all. Of equal claims of several windows, for a history may lie in several files, the greatest by
    (tier, generation, fingerprint, row bytes) shows.
    """
    rows = list(rows)
    best: dict[tuple[str, str, int], tuple[int, int, int, str]] = {}
    for row in rows:
        window, rank = (row.session_id, row.source, row.window), _claim_rank(row)
        best[window] = max(rank, best.get(window, rank))
    shown: dict[bytes, Claim] = {}
    for row in rows:
        if (
            best[row.session_id, row.source, row.window] != _claim_rank(row)
            or not any(xid in exchanges for xid in row.exchange_ids)
            or any(xid in forgotten for xid in row.exchange_ids)
        ):
            continue
        other = shown.get(row.claim_id)
        if other is None or (_claim_rank(row)[1:], row_bytes(row)) > (_claim_rank(other)[1:], row_bytes(other)):
            shown[row.claim_id] = row
    return list(shown.values())


def best_occurrences(occurrences: Iterable[Occurrence]) -> dict[bytes, list[Occurrence]]:
    """By exchange_id: its occurrences, the earliest dated first; ties by canonical bytes."""
    by_exchange: dict[bytes, list[Occurrence]] = defaultdict(list)
    for row in occurrences:
        by_exchange[row.exchange_id].append(row)
    for places in by_exchange.values():
        places.sort(key=lambda o: (o.started_at is None, o.started_at or 0, row_bytes(o)))
    return dict(by_exchange)


def derive_rooms(objects: Mapping[bytes, PalaceObject], occurrences: Mapping[bytes, list[Occurrence]]) -> list[Room]:
    """The rooms of the visible objects: one row a (type, key, project), the first label by text order."""
    times: dict[tuple[str, str, str], list[int | None]] = defaultdict(list)
    labels: dict[tuple[str, str, str], str] = {}
    for xid, row in objects.items():
        place = occurrences[xid][0]
        for room in row.room_assignments:
            key = (room.room_type, room.room_key, place.project)
            times[key].append(place.started_at)
            labels[key] = min(labels.get(key, room.room_label), room.room_label)
    rooms = []
    for (room_type, room_key, project), stamps in times.items():
        known = [t for t in stamps if t is not None]
        rooms.append(
            Room(
                room_type=room_type,  # type: ignore[arg-type]
                room_key=room_key,
                room_label=labels[room_type, room_key, project],
                project=project,
                n_exchanges=len(stamps),
                first_at=min(known, default=None),
                last_at=max(known, default=None),
            )
        )
    return rooms


def _occurrence_rank(row: Occurrence) -> tuple[int, int, bytes, bytes]:
    return row.scan_version, row.n_records, row.exchange_id, row_bytes(row)


def _claim_rank(row: Claim) -> tuple[int, int, int, str]:
    return row.reading, TIER_RANK[row.tier], row.generation, row.fingerprint
