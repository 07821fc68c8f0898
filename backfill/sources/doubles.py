"""Streams that say everything twice: as an event for the screen and as an item of the conversation.

`Doubles` passes records on in file order. An item is always read; an event that an item repeats, before it or after
it, is skipped, and one that no item repeats counts as what it says. Deliberately absent: the records' meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backfill.records import Record, Skip
from backfill.sources.typed import strip_wrappers
from backfill.steering import normal

COPY = "event_copy"
# Items follow their event within a few records (contexts, token counts); the bound keeps a long file from waiting.
_MAX_HELD = 64
_CONTAINED_MIN_CHARS = 12
_SAME_WORDS = 0.6


@dataclass(slots=True)
class Held:
    """A record that waits; an `event` of it does so for its item, `ordinal` is its place in the session."""

    record: Record
    kind: str = ""
    text: str = ""
    ordinal: int = 0
    event: bool = False


class Doubles:
    """Pairs the events of one session with its items; `kind` is "user" or "agent"."""

    def __init__(self) -> None:
        self._held: list[Held] = []
        self._said: list[tuple[str, str]] = []  # items since the other side spoke that no event has repeated yet

    def event(self, record: Record, kind: str, text: str, ordinal: int) -> Iterator[Record]:
        """An event, its acts those of a text without item."""
        for i, (said_kind, said) in enumerate(self._said):
            if said_kind == kind and same_text(text, said):
                del self._said[i]
                record.acts = [Skip(COPY)]
                return self.other(record)
        self._held.append(Held(record, kind, text, ordinal, event=True))
        return self._ready()

    def item(self, record: Record, kind: str, text: str) -> Iterator[Record]:
        """An item. One that follows its event is anchored where the event stands, as it would be without the item."""
        self.turn("user" if kind == "agent" else "agent")
        waiting = [held for held in self._held if held.event and held.kind == kind]
        found = next((held for held in waiting if normal(held.text) == normal(text)), None)
        if found is None:
            found = next((held for held in waiting if same_text(held.text, text)), None)
        if found is None:
            self._said.append((kind, text))
        else:
            found.event = False
            found.record.acts = [Skip(COPY)]
            if kind == "user":
                record.uuid = str(found.ordinal)
        return self.other(record)

    def other(self, record: Record) -> Iterator[Record]:
        """A record that is neither."""
        if not self._held:
            return iter((record,))
        self._held.append(Held(record))
        return self._ready()

    def turn(self, kind: str) -> None:
        """The other side speaks: events of this one had no item."""
        if not self._said and not self._held:
            return
        self._said = [said for said in self._said if said[0] != kind]
        for held in self._held:
            if held.kind == kind:
                held.event = False

    def finish(self) -> Iterator[Record]:
        """Everything that still waits."""
        for held in self._held:
            held.event = False
        return self._ready()

    def _ready(self) -> Iterator[Record]:
        waiting = next((i for i, held in enumerate(self._held) if held.event), len(self._held))
        ready = self._held[: max(waiting, len(self._held) - _MAX_HELD)]
        self._held = self._held[len(ready) :]
        return (held.record for held in ready)


def same_text(event: str, item: str) -> bool:
    """Whether two texts are one: equal but for space and wrappers, one inside the other, or mostly the same words."""
    a, b = normal(strip_wrappers(event)), normal(strip_wrappers(item))
    if a == b:
        return True
    short, long = sorted((a, b), key=len)
    if len(short) >= _CONTAINED_MIN_CHARS and short in long:
        return True
    words, others = set(short.split()), set(long.split())
    return len(words) > 2 and len(words & others) >= _SAME_WORDS * len(words)
