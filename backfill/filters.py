"""Which documents a search may find: project, agent, room, file, dates, tier and claim kind as masks.

Filters are applied before anything is ranked, so `k` hits come back whenever that many documents pass. Conditions on
where an exchange stands (project, agent, dates) must hold for one and the same occurrence, and that occurrence is
shown. Deliberately absent: quoted phrases, which need verbatim text (`phrases.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from backfill.bundle_segment import UNKNOWN_US
from backfill.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from backfill.bundle import Segment

Mask = npt.NDArray[np.bool_]
_US = 1_000_000


class FilterOptions(TypedDict, total=False):
    """Conditions as a person writes them; None and the empty text set none.

    `project`: a name, the last part of a path, or a glob. `agent`: the reader that took the transcript in. `room`: key
    or type:key. `file`: a glob over a path or its end. `since`, `until`: YYYY-MM-DD (UTC, whole days) or an ISO 8601
    time. `tier`: llm, extractive or raw. `kind`: a kind of claim.
    """

    project: str | None
    agent: str | None
    room: str | None
    file: str | None
    since: str | None
    until: str | None
    tier: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions of one search, checked. `since_us` and `until_us` are microseconds since 1970, both inclusive."""

    project: str | None = None
    agent: str | None = None
    room: str | None = None
    file: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    tier: str | None = None
    kind: str | None = None

    @classmethod
    def parse(cls, **options: Unpack[FilterOptions]) -> Filters:
        """Filters as a person writes them. Raises UsageError for an unknown one, or a bad value."""
        for name in options.keys() - FilterOptions.__annotations__.keys():
            one_of("filter", name, list(FilterOptions.__annotations__))
        room, file = options.get("room"), options.get("file")
        since, until = options.get("since"), options.get("until")
        tier, kind = options.get("tier"), options.get("kind")
        return cls(
            project=options.get("project") or None,
            agent=options.get("agent") or None,
            room=_room(room) if room else None,
            file=file.replace("\\", "/").removeprefix("./") if file else None,
            since_us=_instant(since, end=False) if since else None,
            until_us=_instant(until, end=True) if until else None,
            tier=_known("tier", tier) if tier else None,
            kind=_known("kind", kind) if kind else None,
        )

    @property
    def empty(self) -> bool:
        return self == Filters()

    @property
    def on_occurrences(self) -> bool:
        """Whether a condition concerns where an exchange stands."""
        return any(v is not None for v in (self.project, self.agent, self.since_us, self.until_us))

    def occurrence_mask(self, segment: Segment) -> Mask:
        """[occurrences] true where the row meets project, agent and dates."""
        mask = np.ones(segment.files["occurrences"].rows, np.bool_)
        if self.project is not None:
            wanted = self.project
            mask &= segment.labels("occurrences", "project").rows_with(lambda p: project_matches(p, wanted))
        if self.agent is not None:
            folded = self.agent.casefold()
            mask &= segment.labels("occurrences", "agent").rows_with(lambda a: a.casefold() == folded)
        if self.since_us is not None or self.until_us is not None:
            times = segment.started_us
            mask &= times != UNKNOWN_US
            mask &= times >= (self.since_us if self.since_us is not None else UNKNOWN_US)
            mask &= times <= (self.until_us if self.until_us is not None else (1 << 63) - 1)
        return mask

    def document_mask(self, segment: Segment) -> Mask:
        """[D] true where the document may be found."""
        docs = segment.docs
        mask = np.ones(len(docs), np.bool_)
        if not len(docs):
            return mask
        if self.on_occurrences:
            rows = self.occurrence_mask(segment)[docs.occ_row]
            mask &= np.logical_or.reduceat(rows, docs.occ_indptr[:-1])
        if self.room is not None or self.file is not None or self.tier is not None:
            rows = self._object_mask(segment)
            # Row -1 (no object) reads the extra false at the end.
            mask &= np.append(rows, False)[docs.object_row]
        return mask

    def _object_mask(self, segment: Segment) -> Mask:
        if not segment.has("objects"):
            return np.zeros(0, np.bool_)
        mask = np.ones(segment.files["objects"].rows, np.bool_)
        if self.tier is not None:
            wanted = self.tier
            mask &= segment.labels("objects", "tier").rows_with(lambda t: t == wanted)
        if self.room is not None:
            kind, _, key = self.room.rpartition(":")
            mask &= segment.labels("objects", "room_assignments").rows_with(
                lambda room: room.partition(":")[2] == key and kind in ("", room.partition(":")[0])
            )
        if self.file is not None:
            pattern = self.file
            mask &= segment.labels("objects", "files_touched").rows_with(lambda path: file_matches(path, pattern))
        return mask


def project_matches(project: str, wanted: str) -> bool:
    """Equal without regard to case, as a whole or in the last part of a path, or by a glob."""
    name, wanted = project.casefold(), wanted.casefold()
    return wanted in (name, re.split(r"[/\\]", name.rstrip("/\\"))[-1]) or fnmatchcase(name, wanted)


def file_matches(path: str, pattern: str) -> bool:
    """A glob over the whole path or its end: `app.ts`, `src/*.py`, `*/retry.py` all match by whole names."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def one_of(what: str, value: str, known: list[str]) -> str:
    """`value` if it is known; raises UsageError that names the nearest known one."""
    if value in known:
        return value
    import difflib

    close = difflib.get_close_matches(value, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"unknown {what} {value[:80]!r}", hint=f"{hint}known: {', '.join(known)}")


def _known(what: Literal["tier", "kind", "room type"], value: str) -> str:
    # Imported here: few searches are narrowed so, and the row types take as long to make as a search takes.
    from backfill.types import CLAIM_KINDS, ROOM_TYPES, TIER_RANK

    return one_of(what, value, list({"tier": TIER_RANK, "kind": CLAIM_KINDS, "room type": ROOM_TYPES}[what]))


def _room(text: str) -> str:
    kind, sep, key = text.rpartition(":")
    if sep:
        _known("room type", kind)
    key = re.sub(r"[\s\-]+", "_", key.strip().lower())
    return f"{kind}:{key}" if sep else key


def _instant(text: str, *, end: bool) -> int:
    """Microseconds of a date (its first, or with `end` its last instant, UTC) or of an ISO 8601 time."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return _us(day + timedelta(days=1)) - 1 if end else _us(day)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"{text[:40]!r} is not a date", hint="write YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ") from None
    return _us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _us(moment: datetime) -> int:
    span = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (span.days * 86_400 + span.seconds) * _US + span.microseconds
