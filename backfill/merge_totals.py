"""What a merge sums over segments while they are written: the digest, counts, rooms, and which claims are replaced."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from backfill.overview import Overview
from backfill.piece_columns import id_at
from backfill.superseded import marks_in
from backfill.types import Superseded
from backfill.union import SUM_LANES

_NO_TIME = np.iinfo(np.int64).min
RoomKey: TypeAlias = tuple[Any, str, str]  # type, key, project


@dataclass(slots=True)
class Totals:
    """What is summed over segments while they are written."""

    view: Overview
    sum_: npt.NDArray[np.uint16] = field(default_factory=lambda: np.zeros(SUM_LANES, "<u2"))
    counts: dict[str, int] = field(default_factory=dict)
    rooms: dict[RoomKey, list[Any]] = field(default_factory=dict)
    projects: dict[str, int] = field(default_factory=dict)
    started: Any = None
    project: Any = None
    claims: list[tuple[Any, Any, Any, Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = np.full(len(self.view.ids), _NO_TIME, np.int64)
        self.project = np.full(len(self.view.ids), -1, np.int32)

    def count(self, **more: int) -> None:
        for name, n in more.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def places(self, ids: npt.NDArray[Any], places: Iterable[tuple[int | None, str]]) -> None:
        """Notes time and project of the first place of visible exchanges."""
        started, projects = array("q"), array("i")
        for time, project in places:
            started.append(_NO_TIME if time is None else time)
            projects.append(self.projects.setdefault(project, len(self.projects)))
        at = np.searchsorted(self.view.ids, ids)
        self.started[at] = np.array(started, np.int64)
        self.project[at] = np.array(projects, np.int32)

    def add_rooms(self, rooms: Iterable[tuple[RoomKey, str, int, int | None, int | None]]) -> None:
        """Adds (key, label, exchanges, first, last) to what is known of each room."""
        for key, label, n, first, last in rooms:
            found = self.rooms.get(key)
            if found is None:
                self.rooms[key] = [label, n, first, last]
                continue
            found[1] += n
            if label < found[0]:
                found[0] = label
            if first is not None and (found[2] is None or first < found[2]):
                found[2] = first
            if last is not None and (found[3] is None or last > found[3]):
                found[3] = last

    def marks(self) -> list[Superseded]:
        """Which claims later ones replace; see `superseded.derive_superseded`."""
        names = [name for name, _ in sorted(self.projects.items(), key=lambda item: item[1])]
        groups: dict[tuple[str, bytes], list[tuple[int, bytes, Any]]] = {}
        for claim_ids, subjects, values, starts, named in self.claims:
            at = np.minimum(np.searchsorted(self.view.ids, named), max(len(self.view.ids) - 1, 0))
            known = (self.view.ids[at] == named) & (self.project[at] >= 0)
            for i in np.flatnonzero(subjects != b""):
                rows = at[starts[i] : starts[i + 1]][known[starts[i] : starts[i + 1]]]
                times = self.started[rows]
                times = times[times != _NO_TIME]
                if len(times):
                    project = min(names[p] for p in self.project[rows])
                    member = (int(times.max()), id_at(claim_ids, i), id_at(values, i))
                    groups.setdefault((project, id_at(subjects, i)), []).append(member)
        return marks_in(groups.values())
