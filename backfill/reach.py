"""How far back the transcripts reach: sessions on disk against sessions read, the oldest date, and who deletes them.

Reads the occurrences of a scan and the settings that agents keep beside their transcripts. Deliberately absent: the
clock; how much is left of a period is the reader's to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

# Claude Code deletes transcripts that nobody has touched for so long, at its next start (its documentation).
CLAUDE_CLEANUP_DAYS = 30
_SETTINGS_MAX_BYTES = 1 << 20


def reach(
    occurrences: pa.Table,
    silent: Mapping[str, set[str]],
    formats: Mapping[str, Mapping[str, int]],
    roots: Sequence[Path],
) -> dict[str, dict[str, Any]]:
    """Per agent: files, sessions_on_disk, sessions_read, oldest and newest (ISO 8601, UTC, or null), warnings.

    `occurrences` has agent, session_id and started_at. `silent` are sessions without an exchange: opened and closed
    again, or left over from what was deleted. A session that several files hold counts once.
    """
    read: dict[str, set[str]] = {}
    spans: dict[str, tuple[Any, Any]] = {}
    for row in occurrences.group_by(["agent", "session_id"]).aggregate([]).to_pylist():
        read.setdefault(row["agent"], set()).add(row["session_id"])
    times = occurrences.group_by("agent").aggregate([("started_at", "min"), ("started_at", "max")])
    for row in times.to_pylist():
        spans[row["agent"]] = (row["started_at_min"], row["started_at_max"])
    found: dict[str, dict[str, Any]] = {}
    for agent in sorted((read.keys() | silent.keys() | formats.keys()) - {"none", "archive", ""}):
        sessions = read.get(agent, set())
        oldest, newest = spans.get(agent, (None, None))
        found[agent] = {
            "files": formats.get(agent, {}).get("files", 0),
            "sessions_on_disk": len(sessions | silent.get(agent, set())),
            "sessions_read": len(sessions),
            "oldest": _shown(oldest),
            "newest": _shown(newest),
            "warnings": _warnings(agent, roots),
        }
    return found


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _warnings(agent: str, roots: Sequence[Path]) -> list[str]:
    """What an agent says of itself that it will delete."""
    if agent == "claude_code":
        found = [(path, s["cleanupPeriodDays"]) for path, s in _settings(".claude", roots) if "cleanupPeriodDays" in s]
        days = [(path, n) for path, n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0]
        where = f"cleanupPeriodDays in {days[0][0]}" if days else "the default of cleanupPeriodDays"
        n = days[0][1] if days else CLAUDE_CLEANUP_DAYS
        return [f"Claude Code deletes sessions {n} days after their last use ({where}); `backfill archive` keeps them"]
    if agent == "gemini_cli":
        for path, settings in _settings(".gemini", roots):
            general = settings.get("general")
            kept = general.get("sessionRetention") if isinstance(general, dict) else None
            if isinstance(kept, dict) and kept.get("enabled") and isinstance(kept.get("maxAge"), str):
                after = f"{kept['maxAge'][:20]} (sessionRetention in {path})"
                return [f"Gemini CLI deletes sessions after {after}; `backfill archive` keeps them"]
    return []


def _settings(folder: str, roots: Sequence[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """The settings of the agent whose own folder a source is, lies in, or holds."""
    places: dict[Path, None] = {}
    for root in roots:
        own = [p for p in (root, *root.parents) if p.name == folder]
        own += [root / folder, root, root.parent]
        places |= dict.fromkeys(p / "settings.json" for p in own)
    return [(path, settings) for path in places if (settings := _read(path)) is not None]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _SETTINGS_MAX_BYTES:
            return None
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
