"""Text typed while the agent works: what waits in the queue, what has left it, and which prompt it became.

A text that left the queue floats beside the part that was running there, until a prompt turns out to be the same text
(then it counts once, as that prompt) or the part is complete (then it belongs to it). Reads and writes nothing else;
deliberately absent: any look at records that come later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill.ledger import Fate, Owner

# A shorter text must be a whole line of the prompt: "yes" is contained in too many prompts.
_CONTAINED_MIN_CHARS = 12


@dataclass(slots=True, eq=False)
class QueuedText:
    """One text, the fate of the record that brought it, and the part beside which it floats."""

    text: str
    fate: Fate
    part: Owner | None = None


@dataclass(slots=True)
class TypedQueue:
    """The queue of one session. First in, first out, unless a record names the text that left."""

    waiting: list[QueuedText] = field(default_factory=list)
    afloat: list[QueuedText] = field(default_factory=list)
    _unsure: QueuedText | None = None
    _spent: list[str] = field(default_factory=list)

    def leave(self, part: Owner, *, everything: bool, sure: bool) -> None:
        """The oldest text, or every one, leaves the queue while `part` is running."""
        self._unsure = None
        leaving = self.waiting if everything else self.waiting[:1]
        self.waiting = [] if everything else self.waiting[1:]
        for queued in leaving:
            queued.part = part
            self.afloat.append(queued)
            if not sure:
                self._unsure = queued

    def name(self, text: str, part: Owner | None, fate: Fate) -> bool:
        """A record names a text that left the queue while `part` is running; False if it is counted already.

        Without a part the text goes on waiting for one. It corrects an unsure departure just before: the text that was
        taken to have left goes back to the front.
        """
        norm = normal(text)
        if part is None:
            fresh = all(normal(queued.text) != norm for queued in self.waiting)
            if fresh:
                self.waiting.append(QueuedText(text, fate))
            return fresh
        if norm in self._spent:
            self._spent.remove(norm)
            return False
        if any(normal(queued.text) == norm for queued in self.afloat):
            return False
        for queued in self.waiting:
            if normal(queued.text) == norm:
                self.waiting.remove(queued)
                if self._unsure is not None and self._unsure in self.afloat and self._unsure.part is part:
                    self.afloat.remove(self._unsure)
                    self.waiting.insert(0, self._unsure)
                break
        else:
            queued = QueuedText(text, fate)
        self._unsure = None
        queued.part = part
        self.afloat.append(queued)
        return queued.fate is fate

    def sink(self, part: Owner) -> list[QueuedText]:
        """Takes out what floats beside `part`: it belongs to it now."""
        sunk = [queued for queued in self.afloat if queued.part is part]
        if sunk:
            self.afloat = [queued for queued in self.afloat if queued.part is not part]
            self._spent.extend(normal(queued.text) for queued in sunk)
        return sunk

    def take_matching(self, prompt: str) -> list[QueuedText]:
        """Takes out the texts that `prompt` is or contains whole."""
        if not self.waiting and not self.afloat:
            return []
        norm = normal(prompt)
        lines = {normal(line) for line in prompt.splitlines()}
        taken = [q for q in (*self.afloat, *self.waiting) if _is_in(normal(q.text), norm, lines)]
        self.waiting = [queued for queued in self.waiting if queued not in taken]
        self.afloat = [queued for queued in self.afloat if queued not in taken]
        self._spent.extend(normal(queued.text) for queued in taken)
        return taken

    def forget_spent(self) -> None:
        """A new exchange: what was counted before may be typed again."""
        self._spent.clear()


def normal(text: str) -> str:
    """The text with every run of white space as one space."""
    return " ".join(text.split())


def _is_in(text: str, prompt: str, lines: set[str]) -> bool:
    if text == prompt or text in lines:
        return True
    if len(text) < _CONTAINED_MIN_CHARS:
        return False
    at = prompt.find(text)
    if at < 0:
        return False
    before, after = prompt[:at][-1:], prompt[at + len(text) :][:1]
    return not (before.isalnum() and text[0].isalnum()) and not (after.isalnum() and text[-1].isalnum())
