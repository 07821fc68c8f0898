"""Which windows of a bundle have claims that a sweep should make again, and those windows with their content.

A window is due where its visible claims are below tier llm and the engine at hand has not tried it. It is cut anew from
the occurrences of its session, and only taken where that gives the reading that its claims were made of: a session that
lies in several files under one name cannot be told from the bundle alone, and is left as it is. Deliberately absent:
windows without any claim, in which there was nothing to say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from backfill.bundle import Bundle, Segment
from backfill.rows import ROW_TYPES, rows_of
from backfill.types import Exchange, Occurrence
from backfill.windows import Span, Window, cut_session

_Key: TypeAlias = tuple[str, str, int, int]  # session, source unit, window, reading


@dataclass(slots=True)
class DueWindows:
    """The windows to distill, and how many could not be cut again as they were."""

    windows: list[Window]
    left: int = 0


def due_windows(bundle: Bundle, claims_print: str) -> DueWindows:
    """The windows that an engine of this fingerprint should distill, in the order of session, source and number."""
    keys = _due_keys(bundle, claims_print)
    if not keys:
        return DueWindows([])
    places, tokens = _sessions(bundle, {(session, source) for session, source, *_ in keys})
    spans = [
        span
        for (session, source), rows in sorted(places.items())
        for span in cut_session(session, source, rows, tokens)
        if (session, source, span.window, span.reading) in keys
    ]
    rows = _exchanges(bundle, {place.exchange_id for span in spans for place in (*span.lead, *span.places)})
    windows = [_window(span, rows) for span in spans if all(p.exchange_id in rows for p in (*span.lead, *span.places))]
    return DueWindows(windows, len(keys) - len(windows))


def _due_keys(bundle: Bundle, claims_print: str) -> set[_Key]:
    shown: set[_Key] = set()
    tried: set[_Key] = set()
    for segment in bundle.segments:
        if not segment.has("claims") or not segment.files["claims"].rows:
            continue
        names = ("session_id", "source", "window", "reading", "tier", "fingerprint")
        rows = list(zip(*(segment.column("claims", name) for name in names), strict=True))
        tried |= {(s, u, w, r) for s, u, w, r, tier, print_ in rows if tier == "llm" or print_ == claims_print}
        shown |= {rows[i][:4] for i in segment.docs.claim_row.tolist()}
    return shown - tried


def _sessions(
    bundle: Bundle, wanted: Collection[tuple[str, str]]
) -> tuple[dict[tuple[str, str], list[Occurrence]], dict[bytes, int]]:
    """The occurrences of sessions in their source units, all readings, and the tokens of every exchange."""
    units = {source for _, source in wanted}
    places: dict[tuple[str, str], list[Occurrence]] = {}
    tokens: dict[bytes, int] = {}
    columns = list(ROW_TYPES["occurrences"].__slots__)
    for segment in bundle.segments:
        sizes = segment.column("exchanges", "tokens_est")
        tokens.update(zip(segment.column("exchanges", "exchange_id"), sizes, strict=True))
        sessions, sources = (segment.column("occurrences", name) for name in ("session_id", "source"))
        # A member of an archive or a folder is named UNIT!MEMBER.
        outer = [source if source in units else source.partition("!")[0] for source in sources]
        at = [i for i, key in enumerate(zip(sessions, outer, strict=True)) if key in wanted]
        found = segment.table("occurrences").rows_at(columns, at)
        made = rows_of("occurrences", {name: [cells[name] for cells in found.values()] for name in columns})
        for i, row in zip(found, made, strict=True):
            places.setdefault((row.session_id, outer[i]), []).append(row)
    return places, tokens


def _exchanges(bundle: Bundle, ids: Iterable[bytes]) -> dict[bytes, Exchange]:
    """A row of each exchange; rows of one id have one text, and claims are made of texts."""
    ordered = sorted(ids)
    found: dict[bytes, Exchange] = {}
    for segment in bundle.segments:
        for row in _rows(segment, [xid for xid in ordered if xid not in found]):
            found.setdefault(row.exchange_id, row)
    return found


def _rows(segment: Segment, ids: Iterable[bytes]) -> list[Exchange]:
    column = segment.exchange_ids
    at = [p for xid in ids for p in range(bisect_left(column, xid), bisect_right(column, xid))]
    columns = list(ROW_TYPES["exchanges"].__slots__)
    cells = segment.table("exchanges").rows_at(columns, at)
    rows: list[Exchange] = rows_of("exchanges", {name: [c[name] for c in cells.values()] for name in columns})
    return rows


def _window(span: Span, rows: Mapping[bytes, Exchange]) -> Window:
    return Window(
        span.session_id,
        span.source,
        span.window,
        span.reading,
        tuple(rows[place.exchange_id] for place in span.places),
        tuple(place.started_at for place in span.places),
        tuple(rows[place.exchange_id] for place in span.lead),
    )
