"""What is known of one session while a unit is read, and how its records lead to each other.

`Stream` holds the state of a session up to the current record; `Links` answers which exchange a record's parent leads
to. Deliberately absent: the rules of what opens an exchange (`segment`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill.assemble import Joined, Link, OpenExchange, OpenPart, OpenTool
from backfill.ledger import Fate
from backfill.privacy import Redactor
from backfill.records import Record, ToolResult, ToolUse
from backfill.steering import QueuedText, TypedQueue


@dataclass(slots=True)
class Opener:
    """A record that opens an exchange only if the agent answers it."""

    text: str
    record: Record
    ordinal: int
    fate: Fate


@dataclass(slots=True)
class Stream:
    """What is known of one session so far. `running` is also the last exchange: none ends without a next one."""

    session_id: str
    parent_session: str
    n: int = 0
    records: int = 0
    running: OpenExchange | None = None
    settling: OpenExchange | None = None
    opener: Opener | None = None
    queue: TypedQueue = field(default_factory=TypedQueue)
    calls: dict[str, tuple[OpenPart, OpenTool]] = field(default_factory=dict)
    after_compaction: bool = False
    own: bool = False
    title: str = ""
    title_given: bool = False
    project: str = ""
    cwd: str = ""
    branch: str = ""
    model: str = ""
    noticed_cwd: str = ""
    noticed_branch: str = ""
    _noticed_model: str = ""

    def notice(self, record: Record, redactor: Redactor) -> None:
        """Takes what a record says of its surroundings."""
        if record.cwd and record.cwd != self.noticed_cwd:
            self.noticed_cwd = record.cwd
            self.cwd = redactor.short(record.cwd)
            if not self.project:
                self.project = self.cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
        if record.branch and record.branch != self.noticed_branch:
            self.noticed_branch = record.branch
            self.branch = redactor.short(record.branch)
        if record.model and record.model != self._noticed_model:
            self._noticed_model = record.model
            self.model = redactor.short(record.model)

    def rest(self) -> None:
        """Forgets what only saves work, and what a record said before secrets were replaced in it."""
        self.noticed_cwd = self.noticed_branch = self._noticed_model = ""
        if self.opener is not None:
            record = self.opener.record
            record.acts, record.cwd, record.branch, record.model = [], "", "", ""

    def join(self, part: OpenPart, record: Record) -> None:
        """A record becomes part of an exchange, which takes the surroundings as they are now."""
        part.n_records = self.n
        if record.end > part.byte_end:
            part.byte_end = record.end
        at = record.at
        if at is not None:
            if part.started_at is None:
                part.started_at = at
                part.tz_assumed = record.tz_assumed
            if part.ended_at is None or at > part.ended_at:
                part.ended_at = at
        part.cwd = self.cwd
        part.project = self.project
        part.branch = self.branch
        part.title = self.title
        part.model = self.model

    def touch(self) -> None:
        """A record of the queue changes what is open: its state is settled here."""
        if self.running is not None:
            self.running.part.n_records = self.n

    def sink(self, part: OpenPart, *, waiting: bool = False) -> None:
        """What floats beside a part belongs to it now; with `waiting` also what never left the queue."""
        queue = self.queue
        if queue.afloat or (waiting and queue.waiting):
            for queued in (*queue.sink(part), *(queue.waiting if waiting else ())):
                _append(part, queued)

    def tool_called(self, part: OpenPart, act: ToolUse) -> OpenTool:
        """The call of an act in `part`: a new one, or the one whose result came before it."""
        waiting = self.calls.get(act.call_id) if act.call_id else None
        if waiting is not None and waiting[0] is part and not waiting[1].called:
            tool = waiting[1]
        else:
            tool = OpenTool()
            part.tools.append(tool)
        if act.call_id:
            tool.call_id = act.call_id
            self.calls[act.call_id] = (part, tool)
        return tool

    def tool_answered(self, part: OpenPart, act: ToolResult) -> OpenTool:
        """The call that a result in `part` belongs to; a late or second one stands for itself, named by its call."""
        call = self.calls.get(act.call_id)
        if call is not None and call[0] is part and not call[1].answered:
            return call[1]
        tool = OpenTool()
        part.tools.append(tool)
        if call is not None:
            tool.name, tool.digest = call[1].name, call[1].digest
        elif act.call_id:
            tool.call_id = act.call_id
            self.calls[act.call_id] = (part, tool)
        return tool

    def forget_calls(self, part: OpenPart) -> None:
        """Answered calls of a complete part need no name any more: a second result stands for itself."""
        for tool in part.tools:
            if tool.answered and self.calls.get(tool.call_id, (None, None))[1] is tool:
                del self.calls[tool.call_id]


class Links:
    """Records by their ids: what became of each, and which exchange it leads to."""

    def __init__(self) -> None:
        self._fates: dict[str, Fate] = {}
        # where a record that joined nothing leads to: an exchange, None for a root; absent where nobody knows
        self._leads: dict[str, Link | None] = {}

    def fate(self, uuid: str) -> Fate | None:
        """What became of the record of that id, if it was read."""
        return self._fates.get(uuid)

    def remember(self, record: Record, stream: Stream, fate: Fate) -> None:
        """Keeps what became of a record that has an id."""
        self._fates[record.uuid] = fate
        if fate.state == "part_of" or not record.linked or record.uuid in self._leads:
            return
        if record.parent is None:
            self._leads[record.uuid] = None
            return
        known, found = self.lead(record.parent, stream)
        if known:
            self._leads[record.uuid] = found

    def lead(self, parent: str, stream: Stream) -> tuple[bool, Link | None]:
        """(known, exchange or None for a root) of the record `parent`, as seen from a stream."""
        fate = self._fates.get(parent)
        if fate is not None and isinstance(fate.owner, (OpenPart, Joined)) and fate.state == "part_of":
            found: Link | None = fate.owner.link
        elif parent in self._leads:
            found = self._leads[parent]
        else:
            return False, None
        return (found is None or found.stream is stream), found

    def previous(self, stream: Stream, record: Record) -> Link | None:
        """The exchange before the one that `record` opens: by its links, else by file order."""
        running = stream.running.link if stream.running is not None else None
        if not record.linked:
            return running
        if record.parent is None:
            return running if stream.after_compaction else None
        known, found = self.lead(record.parent, stream)
        return found if known else running

    def compacted(self, stream: Stream, record: Record, parent: str | None) -> None:
        """A compaction leads to the exchange of the record that it continues, else to the running one."""
        stream.after_compaction = True
        parent = parent or record.parent
        known, found = self.lead(parent, stream) if parent else (False, None)
        if not known:
            found = None
        if found is None and stream.running is not None:
            found = stream.running.link
        if record.uuid and found is not None:
            self._leads[record.uuid] = found


def _append(part: OpenPart, queued: QueuedText) -> None:
    part.added.append(queued.text)
    part.n_turns += 1
    queued.fate.settle("part_of", part)
