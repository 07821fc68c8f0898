"""Cuts a stream of records into exchanges, occurrences and ledger rows.

`Segmenter.feed` takes the records of one source unit in file order, `finish` gives the rows. The rules are those of
the design's "What opens an exchange"; every decision depends on the records up to there only, so that a file read
again after it has grown gives the same exchanges, with greater `n_records` wherever one changed. Deliberately absent:
anything about formats (`sources`) and about other files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backfill.assemble import Caps, OpenExchange, OpenPart, OpenTool
from backfill.ledger import Fate, LedgerBuilder
from backfill.privacy import Redactor
from backfill.records import (
    AgentText,
    Compacted,
    Pending,
    Prompt,
    Quarantine,
    Queued,
    Record,
    Skip,
    Steered,
    Thinking,
    Titled,
    ToolResult,
    ToolUse,
    Unqueued,
)
from backfill.steering import QueuedText, TypedQueue, normal
from backfill.types import Exchange, Occurrence

SEGMENT_VERSION = 1
OWN_MARKER = "backfill-distill/"


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """`split_tokens` is the visible size after which a part ends; `max_tool_bytes` caps one tool result."""

    split_tokens: int = 1500
    max_tool_bytes: int = 4096


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


class Segmenter:
    """Reads the records of one unit. `default_project` stands in for a format without working directories."""

    def __init__(
        self,
        agent: str,
        source: str,
        scan_version: int,
        settings: SegmentSettings,
        redactor: Redactor,
        default_project: str = "",
    ) -> None:
        self.agent = agent
        self.source = source
        self.scan_version = scan_version
        self.exchanges: dict[bytes, list[Exchange]] = {}
        self.occurrences: list[Occurrence] = []
        self.ledger = LedgerBuilder(source)
        self._redactor = redactor
        self._split_bytes = 4 * settings.split_tokens
        self._caps = Caps(settings.max_tool_bytes, settings.max_tool_bytes // 4)
        self._default_project = default_project
        self._streams: dict[str, Stream] = {}
        self._apart: dict[str, Fate] = {}
        self._seen: dict[str, Fate] = {}
        # where a record that joined nothing leads to: an exchange, None for a root; absent where nobody knows
        self._leads: dict[str, OpenExchange | None] = {}
        self._blocks: dict[int, Fate] = {}
        self._acts: dict[type[Any], Callable[[Stream, Record, Any], Fate | None]] = {
            Prompt: self._prompt,
            AgentText: self._agent_text,
            Thinking: self._thinking,
            ToolUse: self._tool_use,
            ToolResult: self._tool_result,
            Queued: self._queued,
            Unqueued: self._unqueued,
            Steered: self._steered,
            Titled: self._titled,
            Compacted: self._compacted,
            Skip: self._skip,
        }

    def feed(self, record: Record) -> None:
        """Takes the next record of the file."""
        fate = self._fate(record)
        self.ledger.add(record.end, fate)

    def finish(self) -> None:
        """Ends the unit: what is still open becomes rows as it stands."""
        for stream in self._streams.values():
            if stream.settling is not None:
                self._settle(stream)
            if stream.running is not None:
                part = stream.running.part
                for queued in (*stream.queue.sink(part), *stream.queue.waiting):
                    self._append(part, queued)
                self._emit(part, stream, is_open=True)

    def sessions(self) -> int:
        """Sessions with at least one exchange."""
        return sum(stream.running is not None for stream in self._streams.values())

    # -- one record ---------------------------------------------------------------------------------------------

    def _fate(self, record: Record) -> Fate:
        if record.session == "":
            return self._sessionless(record)
        stream = self._stream(record)
        stream.n += 1
        original = self._seen.get(record.uuid) if record.uuid else None
        if original is None and record.block:
            original = self._blocks.get(record.block)
        if original is not None:
            return Fate("duplicate", original=original)
        self._context(stream, record)
        fate = self._apart_fate("own_session") if stream.own else None
        if fate is None:
            for act in record.acts:
                outcome = self._acts[type(act)](stream, record, act)
                if outcome is not None and (fate is None or type(act) is not Skip):
                    fate = outcome
        if stream.own or fate is None:
            fate = self._apart_fate("own_session" if stream.own else "empty")
        if record.uuid:
            self._seen[record.uuid] = fate
            if fate.state != "part_of" and record.uuid not in self._leads:
                self._remember_lead(record)
        if record.block:
            self._blocks[record.block] = fate
        return fate

    def _sessionless(self, record: Record) -> Fate:
        for act in record.acts:
            if isinstance(act, Quarantine):
                return self._apart_fate(act.reason, "quarantined")
            if isinstance(act, Pending):
                return self._apart_fate("", "pending")
            if isinstance(act, Skip):
                return self._apart_fate(act.reason)
        return self._apart_fate("empty")

    def _stream(self, record: Record) -> Stream:
        stream = self._streams.get(record.session)
        if stream is None:
            stream = Stream(record.session, record.parent_session)
            self._streams[record.session] = stream
        return stream

    def _context(self, stream: Stream, record: Record) -> None:
        if record.cwd:
            cwd = self._redactor.masked(record.cwd)
            if not stream.project:
                stream.project = cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
            stream.cwd = cwd
        if record.branch:
            stream.branch = record.branch
        if record.model:
            stream.model = record.model

    def _apart_fate(self, reason: str, state: Any = "skipped") -> Fate:
        key = f"{state}:{reason}"
        fate = self._apart.get(key)
        if fate is None:
            fate = self._apart[key] = Fate(state, reason)
        return fate

    # -- links ----------------------------------------------------------------------------------------------------

    def _lead(self, parent: str, stream: Stream) -> tuple[bool, OpenExchange | None]:
        """(known, exchange or None for a root) of the record `parent`, as seen from a stream."""
        fate = self._seen.get(parent)
        if fate is not None and isinstance(fate.owner, OpenPart) and fate.state == "part_of":
            found: OpenExchange | None = fate.owner.exchange
        elif parent in self._leads:
            found = self._leads[parent]
        else:
            return False, None
        return (found is None or found.stream is stream), found

    def _remember_lead(self, record: Record) -> None:
        if not record.linked:
            return
        if record.parent is None:
            self._leads[record.uuid] = None
            return
        known, found = self._lead(record.parent, self._streams[record.session])
        if known:
            self._leads[record.uuid] = found

    def _previous(self, stream: Stream, record: Record) -> OpenExchange | None:
        """The exchange before the one that `record` opens: by its links, else by file order."""
        if not record.linked:
            return stream.running
        if record.parent is None:
            return stream.running if stream.after_compaction else None
        known, found = self._lead(record.parent, stream)
        return found if known else stream.running

    # -- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, stream: Stream, record: Record, act: Prompt) -> Fate | None:
        text = self._redactor.text(act.text)
        if text.startswith(OWN_MARKER):
            stream.own = True
            return None
        stream.opener = None  # unanswered: its fate says so already
        if act.unanswered:
            stream.opener = Opener(text, record, stream.n, Fate("skipped", act.unanswered))
            return stream.opener.fate
        running = stream.running
        if running is not None and not running.has_agent:
            running.add_prompt(text)
            part = running.part
        else:
            part = self._open(stream, record, stream.n, text)
        part.n_turns += 1
        self._join(stream, part, record)
        self._count_once(stream, part, text)
        return part.fate

    def _open(self, stream: Stream, record: Record, ordinal: int, text: str) -> OpenPart:
        """Opens an exchange at `record` and closes the running one here."""
        anchor = record.uuid or str(ordinal)
        previous = self._previous(stream, record)
        closed = stream.running
        stream.running = OpenExchange(stream, anchor, text, previous, record)
        stream.after_compaction = False
        stream.queue.forget_spent()
        if closed is not None:
            closed.part.closed_n = stream.n
            stream.settling = closed
            if not stream.queue.afloat:
                self._settle(stream)  # nothing that a further prompt could take back
        return stream.running.part

    def _count_once(self, stream: Stream, part: OpenPart, prompt: str) -> None:
        """Queued texts that became this prompt are counted here; the exchange that they left is settled anew."""
        for queued in stream.queue.take_matching(prompt):
            queued.fate.settle("duplicate", part)
            if stream.settling is not None and queued.part is stream.settling.part:
                stream.settling.part.closed_n = stream.n

    def _settle(self, stream: Stream) -> None:
        """Completes the exchange before the running one: no later prompt can take back what the queue added to it."""
        closed = stream.settling
        stream.settling = None
        if closed is not None:
            for queued in stream.queue.sink(closed.part):
                self._append(closed.part, queued)
            self._emit(closed.part, stream, is_open=False)

    # -- the agent ------------------------------------------------------------------------------------------------

    def _agent(self, stream: Stream, record: Record) -> OpenPart | None:
        """The part that a record of the agent joins, or None where no exchange is running."""
        turn = record.turn or f"{record.start}"
        opener = stream.opener
        if opener is not None and (stream.running is None or turn not in stream.running.turns):
            self._answer(stream, opener)
        exchange = stream.running
        if exchange is None:
            return None
        if stream.settling is not None:
            self._settle(stream)
        exchange.has_agent = True
        if turn not in exchange.turns:
            exchange.turns.add(turn)
            if exchange.part.visible_bytes > self._split_bytes:
                self._next_part(stream, exchange, record)
            exchange.part.n_turns += 1
        self._join(stream, exchange.part, record)
        return exchange.part

    def _answer(self, stream: Stream, opener: Opener) -> None:
        """The agent answers a slash command or a prompt of images: it opens an exchange, or joins an unanswered one."""
        stream.opener = None
        running = stream.running
        if running is not None and not running.has_agent:
            running.add_prompt(opener.text)
            part = running.part
        else:
            part = self._open(stream, opener.record, opener.ordinal, opener.text)
        part.n_turns += 1
        self._join(stream, part, opener.record)
        opener.fate.settle("part_of", part)

    def _next_part(self, stream: Stream, exchange: OpenExchange, record: Record) -> None:
        closed = exchange.part
        closed.closed_n = stream.n
        for queued in stream.queue.sink(closed):
            self._append(closed, queued)
        self._emit(closed, stream, is_open=False)
        exchange.part = OpenPart(exchange, closed.number + 1, record)

    def _agent_text(self, stream: Stream, record: Record, act: AgentText) -> Fate:
        part = self._agent(stream, record)
        if part is None:
            return self._apart_fate("no_prompt")
        if act.text.strip():
            part.say(self._redactor.text(act.text))
        return part.fate

    def _thinking(self, stream: Stream, record: Record, act: Thinking) -> Fate:
        part = self._agent(stream, record)
        if part is None:
            return self._apart_fate("no_prompt")
        if act.text.strip():
            part.thinking.append(self._redactor.text(act.text))
        return part.fate

    def _tool_use(self, stream: Stream, record: Record, act: ToolUse) -> Fate:
        part = self._agent(stream, record)
        if part is None:
            return self._apart_fate("no_prompt")
        waiting = stream.calls.get(act.call_id) if act.call_id else None
        if waiting is not None and waiting[0] is part and not waiting[1].called:
            tool = waiting[1]
        else:
            tool = OpenTool()
            part.tools.append(tool)
        tool.call(act.name, act.arguments, stream.cwd, self._caps, self._redactor)
        if act.call_id:
            tool.call_id = act.call_id
            stream.calls[act.call_id] = (part, tool)
        return part.fate

    def _tool_result(self, stream: Stream, record: Record, act: ToolResult) -> Fate:
        if stream.running is None:
            return self._apart_fate("no_prompt")
        part = stream.running.part
        call = stream.calls.get(act.call_id)
        if call is not None and call[0] is part and not call[1].answered:
            tool = call[1]
        else:
            tool = OpenTool()
            part.tools.append(tool)
            if call is not None:  # late, or a second one: named by its call
                tool.name, tool.digest = call[1].name, call[1].digest
            elif act.call_id:
                tool.call_id = act.call_id
                stream.calls[act.call_id] = (part, tool)
        tool.result(act.text, self._caps, self._redactor)
        self._join(stream, part, record)
        return part.fate

    # -- the queue ------------------------------------------------------------------------------------------------

    def _queued(self, stream: Stream, record: Record, act: Queued) -> Fate:
        queued = QueuedText(self._redactor.text(act.text), Fate("skipped", "queue"))
        stream.queue.waiting.append(queued)
        self._touch(stream, record)
        return queued.fate

    def _unqueued(self, stream: Stream, record: Record, act: Unqueued) -> Fate:
        if stream.running is not None:  # before the first exchange texts go on waiting for it
            stream.queue.leave(stream.running.part, everything=act.everything, sure=act.sure)
            self._touch(stream, record)
        return self._apart_fate("queue")

    def _steered(self, stream: Stream, record: Record, act: Steered) -> Fate:
        text = self._redactor.text(act.text)
        fate = Fate("skipped", "queue")
        if stream.running is None:
            if all(normal(queued.text) != normal(text) for queued in stream.queue.waiting):
                stream.queue.waiting.append(QueuedText(text, fate))
            return fate
        self._touch(stream, record)
        return fate if stream.queue.name(text, stream.running.part, fate) else self._apart_fate("queue")

    def _touch(self, stream: Stream, record: Record) -> None:
        """A record of the queue changes what is open: its state is settled here."""
        if stream.running is not None:
            stream.running.part.n_records = stream.n

    def _append(self, part: OpenPart, queued: QueuedText) -> None:
        part.added.append(queued.text)
        part.n_turns += 1
        queued.fate.settle("part_of", part)

    # -- the rest -------------------------------------------------------------------------------------------------

    def _titled(self, stream: Stream, record: Record, act: Titled) -> Fate:
        if act.given or not stream.title_given:
            stream.title = self._redactor.text(act.text)
            stream.title_given = act.given
        return self._apart_fate("meta")

    def _compacted(self, stream: Stream, record: Record, act: Compacted) -> None:
        stream.after_compaction = True
        parent = act.parent or record.parent
        known, found = self._lead(parent, stream) if parent else (False, None)
        lead = found if known and found is not None else stream.running
        if record.uuid and lead is not None:
            self._leads[record.uuid] = lead

    def _skip(self, stream: Stream, record: Record, act: Skip) -> Fate:
        return self._apart_fate(act.reason)

    def _join(self, stream: Stream, part: OpenPart, record: Record) -> None:
        part.n_records = stream.n
        part.byte_end = max(part.byte_end, record.end)
        if record.at is not None:
            if part.started_at is None:
                part.started_at = record.at
                part.tz_assumed = record.tz_assumed
            part.ended_at = max(record.at, part.ended_at or record.at)
        part.cwd = stream.cwd
        part.project = stream.project
        part.branch = stream.branch
        part.title = stream.title
        part.model = stream.model

    def _emit(self, part: OpenPart, stream: Stream, *, is_open: bool) -> None:
        exchange = part.exchange
        if part.number == 0:
            previous = exchange.previous.content if exchange.previous is not None else None
        else:
            previous = exchange.content
        row = part.row(previous)
        for tool in part.tools:
            if tool.answered and stream.calls.get(tool.call_id, (None, None))[1] is tool:
                del stream.calls[tool.call_id]
        part.release()
        exchange.content = row.content_id
        rows = self.exchanges.setdefault(row.exchange_id, [])
        if row not in rows:
            rows.append(row)
        n_records = part.n_records if is_open or part.closed_n is None else part.closed_n
        self.occurrences.append(
            Occurrence(
                self.agent,
                stream.session_id,
                exchange.anchor,
                part.number,
                self.scan_version,
                is_open,
                n_records,
                row.exchange_id,
                self.source,
                part.byte_start,
                part.byte_end,
                stream.parent_session,
                part.project or self._default_project,
                part.cwd,
                part.branch,
                part.title,
                part.model,
                part.started_at,
                part.ended_at,
                part.tz_assumed,
            )
        )
