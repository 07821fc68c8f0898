"""Rows and results as plain values for JSON: ids in hex, times in ISO 8601, dates as YYYY-MM-DD."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("started_at", "ended_at", "first_at", "last_at")


def iso(us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 with Z; None where unknown or beyond the calendar."""
    if us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
    return moment.isoformat(timespec="microseconds" if us % 1_000_000 else "seconds").replace("+00:00", "Z")


def iso_date(days: int | None) -> str | None:
    """Days since 1970 as YYYY-MM-DD; None where unknown or beyond the calendar."""
    try:
        return None if days is None else (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def plain(value: Any, name: str = "") -> Any:
    """A row, or anything made of rows, as mappings, lists and scalars. `name` is the field that the value stands in."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and name in _TIMES:
        return iso(value)
    return iso_date(value) if isinstance(value, int) and name == "date" else value
