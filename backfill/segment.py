"""Cuts a stream of records into exchanges, occurrences and ledger rows.

`Segmenter.feed` takes the records of one source unit in file order, `finish` gives the rows. The rules are those of
the design's "What opens an exchange"; every decision depends on the records up to there only, so that a file read
again after it has grown gives the same exchanges, with greater `n_records` wherever one changed. Deliberately absent:
anything about formats (`sources`) and about other files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backfill.assemble import Caps, OpenExchange, OpenPart
from backfill.emit import Emitted
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
from backfill.steering import QueuedText
from backfill.streams import Links, Opener, Stream

SEGMENT_VERSION = 1
OWN_MARKER = "backfill-distill/"
# What a segmenter is made with, or yields.
_FIXED = frozenset(("exchanges", "occurrences", "_acts", "_caps", "_emitted", "_redactor", "_split_bytes"))


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """`split_tokens` is the visible size after which a part ends; `max_tool_bytes` caps one tool result."""

    split_tokens: int = 1500
    max_tool_bytes: int = 4096


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
        self.ledger = LedgerBuilder(source)
        self._emitted = Emitted(agent, source, scan_version, default_project)
        self.exchanges = self._emitted.exchanges
        self.occurrences = self._emitted.occurrences
        self._redactor = redactor
        self._split_bytes = 4 * settings.split_tokens
        self._caps = Caps(settings.max_tool_bytes, settings.max_tool_bytes // 4)
        self._streams: dict[str, Stream] = {}
        self._links = Links()
        self._apart: dict[tuple[Any, str], Fate] = {}
        self._skipped: dict[str, Fate] = {}  # by reason, one for all records skipped with it
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
        }

    def feed(self, record: Record) -> None:
        """Takes the next record of the file."""
        self.ledger.add(record.end, self._fate(record), scattered=record.scattered)

    def finish(self) -> None:
        """Ends the unit: what is still open becomes rows as it stands."""
        for stream in self._streams.values():
            self._settle(stream)
            if stream.running is not None:
                part = stream.running.part
                stream.sink(part, waiting=True)
                self._emitted.take(part, stream, is_open=True)

    def sessions(self) -> int:
        """Sessions with at least one exchange."""
        return sum(stream.running is not None for stream in self._streams.values())

    def state(self) -> dict[str, Any]:
        """What has been read so far decides by this alone; rows that are complete are not in it."""
        for stream in self._streams.values():
            stream.rest()
        return {name: value for name, value in vars(self).items() if name not in _FIXED}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a state of another segmenter of the same unit."""
        for name, value in state.items():
            setattr(self, name, value)

    def silent(self) -> list[str]:
        """Sessions whose records opened no exchange, without those of the distiller."""
        return [s.session_id for s in self._streams.values() if s.running is None and not s.own]

    # -- one record ---------------------------------------------------------------------------------------------

    def _fate(self, record: Record) -> Fate:
        session = record.session
        if session == "":
            return self._sessionless(record)
        stream = self._streams.get(session)
        if stream is None:
            stream = self._streams[session] = Stream(session, record.parent_session)
        stream.n += record.weight
        stream.records += 1
        uuid, block = record.uuid, record.block
        original = self._links.fate(uuid) if uuid else None
        if original is None and block:
            original = self._blocks.get(block)
        if original is not None:
            return Fate("duplicate", original=original)
        if record.cwd != stream.noticed_cwd or record.branch != stream.noticed_branch or record.model:
            stream.notice(record, self._redactor)
        fate = self._acted(stream, record)
        if uuid:
            self._links.remember(record, stream, fate)
        if block:
            self._blocks[block] = fate
        return fate

    def _acted(self, stream: Stream, record: Record) -> Fate:
        fate: Fate | None = None
        if not stream.own:
            for act in record.acts:
                if isinstance(act, Skip):
                    fate = fate or self._skipped.get(act.reason) or self._apart_fate(act.reason)
                else:
                    fate = self._acts[type(act)](stream, record, act) or fate
        if stream.own:
            return self._apart_fate("own_session")
        return fate or self._apart_fate("empty")

    def _sessionless(self, record: Record) -> Fate:
        for act in record.acts:
            if isinstance(act, (Quarantine, Skip)):
                return self._apart_fate(act.reason, "skipped" if isinstance(act, Skip) else "quarantined")
            if isinstance(act, Pending):
                return self._apart_fate("", "pending")
        return self._apart_fate("empty")

    def _apart_fate(self, reason: str, state: Any = "skipped") -> Fate:
        fate = self._apart.get((state, reason))
        if fate is None:
            fate = self._apart[state, reason] = Fate(state, reason)
            if state == "skipped":
                self._skipped[reason] = fate
        return fate

    # -- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, stream: Stream, record: Record, act: Prompt) -> Fate | None:
        text = self._redactor.text(act.text)
        if text.startswith(OWN_MARKER):
            stream.own = True
            return None
        stream.opener = None  # unanswered: its fate says so already
        if act.unanswered:
            stream.opener = Opener(text, record, stream.records, Fate("skipped", act.unanswered))
            return stream.opener.fate
        part = self._prompted(stream, record, stream.records, text)
        self._count_once(stream, part, text)
        return part.fate

    def _prompted(self, stream: Stream, record: Record, ordinal: int, text: str) -> OpenPart:
        """The part that a prompt opens, or the one that it continues because nobody has answered yet."""
        running = stream.running
        if running is not None and not running.has_agent and not record.forks:
            running.add_prompt(text)
            part = running.part
        else:
            part = self._open(stream, record, ordinal, text)
        part.n_turns += 1
        stream.join(part, record)
        return part

    def _open(self, stream: Stream, record: Record, ordinal: int, text: str) -> OpenPart:
        """Opens an exchange at `record` and closes the running one here."""
        anchor = record.uuid or str(ordinal)
        previous = self._links.previous(stream, record)
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
            stream.sink(closed.part)
            self._emitted.take(closed.part, stream, is_open=False)

    # -- the agent ------------------------------------------------------------------------------------------------

    def _agent(self, stream: Stream, record: Record) -> OpenPart | None:
        """The part that a record of the agent joins, or None where no exchange is running."""
        turn = record.turn or f"{record.start}"
        opener = stream.opener
        if opener is not None and (stream.running is None or turn not in stream.running.turns):
            stream.opener = None
            opener.fate.settle("part_of", self._prompted(stream, opener.record, opener.ordinal, opener.text))
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
        stream.join(exchange.part, record)
        return exchange.part

    def _next_part(self, stream: Stream, exchange: OpenExchange, record: Record) -> None:
        closed = exchange.part
        closed.closed_n = stream.n
        stream.sink(closed)
        self._emitted.take(closed, stream, is_open=False)
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
        stream.tool_called(part, act).call(act.name, act.arguments, stream.cwd, self._caps, self._redactor)
        return part.fate

    def _tool_result(self, stream: Stream, record: Record, act: ToolResult) -> Fate:
        if stream.running is None:
            return self._apart_fate("no_prompt")
        part = stream.running.part
        stream.tool_answered(part, act).result(act.text, self._caps, self._redactor)
        stream.join(part, record)
        return part.fate

    # -- the queue and the rest -----------------------------------------------------------------------------------

    def _queued(self, stream: Stream, record: Record, act: Queued) -> Fate:
        queued = QueuedText(self._redactor.text(act.text), Fate("skipped", "queue"))
        stream.queue.waiting.append(queued)
        stream.touch()
        return queued.fate

    def _unqueued(self, stream: Stream, record: Record, act: Unqueued) -> Fate:
        if stream.running is not None:  # before the first exchange texts go on waiting for it
            stream.queue.leave(stream.running.part, everything=act.everything, sure=act.sure)
            stream.touch()
        return self._apart_fate("queue")

    def _steered(self, stream: Stream, record: Record, act: Steered) -> Fate:
        fate = Fate("skipped", "queue")
        running = stream.running.part if stream.running is not None else None
        stream.touch()
        known = not stream.queue.name(self._redactor.text(act.text), running, fate)
        return self._apart_fate("queue") if known and running is not None else fate

    def _titled(self, stream: Stream, record: Record, act: Titled) -> Fate:
        if act.given or not stream.title_given:
            stream.title = self._redactor.text(act.text)
            stream.title_given = act.given
        return self._apart_fate("meta")

    def _compacted(self, stream: Stream, record: Record, act: Compacted) -> None:
        self._links.compacted(stream, record, act.parent)
