"""Aider's chat history: `.aider.chat.history.md`, one Markdown file that is appended for ever.

`# aider chat started at TIME` begins a session (local time without a zone), `#### ` and two trailing spaces a line of a
prompt, `> ` and two trailing spaces a line of the console; all else is the answer. Answers hold headings and quotes of
their own, which lack the trailing spaces. Published transcripts lost these: until a line with them came, and inside
`<div class="chat-transcript">`, a blank line before is enough. The format has no ids: a session is the source path and
`#k`, k counting its headers. Deliberately absent: `.aider.input.history` and `.aider.llm.history`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from backfill.records import Act, AgentText, Pending, Prompt, Record, Skip, ToolResult, ToolUse
from backfill.sources.base import Head, LineByLine, Unit, parse_time
from backfill.sources.textlines import TextLine, joined, text_lines

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_STARTED_BEGINS = "# aider chat started at "
_WEBSITE = re.compile(rb'^<div class="chat-transcript"', re.MULTILINE)
_HEADER = re.compile(rb"^# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$", re.MULTILINE)
_PROMPT_LINE = re.compile(rb"^#### \S", re.MULTILINE)
_WEBSITE_END = re.compile(r"(?:\n?[ \t]*(?:</div>|<br ?/?>)[ \t]*)+\Z")
_APPLIED = re.compile(r"Applied edit to (\S.*)")
_MODEL = re.compile(r"(?:Main model|Model): (\S+)")
_COMMAND = re.compile(r"[/!][a-z][\w-]*(?:\s|\Z)")
_BLANK_PROMPT = "<blank>"
_SPACES = "  "
_MARKS = frozenset("#><")
_SAID, _TYPED, _CONSOLE = "said", "typed", "console"


class AiderReader(LineByLine):
    """Reads Aider's chat histories and the transcripts published from them."""

    name = "aider"
    version = 2

    @property
    def state_classes(self) -> tuple[type[Any], ...]:
        """See `LineByLine`."""
        return (_Pass,)

    def claims(self, head: Head) -> bool:
        """By a session header, or the website's transcript block with a prompt in it."""
        body = head.raw
        if body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
            return False
        if _HEADER.search(body):
            return True
        website = _WEBSITE.search(body)
        return website is not None and _PROMPT_LINE.search(body, website.end()) is not None

    def begin(self, unit: Unit) -> _Pass:
        """See `LineByLine`."""
        return _Pass(unit)

    def go_on(self, state: _Pass, unit: Unit) -> Iterator[Record]:
        """One record per prompt, answer, console block and session header, but for the block that goes on."""
        return state.records(unit)

    def end(self, state: _Pass) -> Iterator[Record]:
        """The last block."""
        return state.flush()


class _Pass:
    """One reading: the block that is being collected, and how strictly lines are told apart so far."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session_n = 0
        self._at: tuple[int | None, bool] = (None, False)
        self._model = ""
        self._kind = ""
        self._lines: list[str] = []
        self._start = self._end = 0
        self._blank_before = True
        self._strict = self._website = self._wrapped = False

    def records(self, unit: Unit) -> Iterator[Record]:
        """The records that the lines from where the unit has been read to complete."""
        for line in text_lines(unit):
            if self._kind == _SAID and line.text[:1] not in _MARKS and not self._wrapped:
                self._lines.append(line.text)  # nearly every line
                self._end, self._blank_before = line.end, not line.text.strip()
                continue
            if not line.closed and self._may_be_mark(line.text):
                yield from self.flush()  # a mark that is still being written may turn out as any other
                yield Record(line.start, line.end, [Pending()])
                continue
            started = self._blank_before and line.closed and line.text[:1] == "#" and _STARTED.fullmatch(line.text)
            if started:
                yield from self.flush()
                self._session_n += 1
                self._wrapped = False
                self._at, self._model = parse_time(started[1], self._unit.assume_tz), ""
                yield self._record(line.start, line.end, [Skip("meta")])
                self._blank_before = True
                continue
            yield from self._take(line)

    def _may_be_mark(self, text: str) -> bool:
        return (self._strict and text[:1] in "#>") or _STARTED_BEGINS.startswith(text[: len(_STARTED_BEGINS)])

    def _take(self, line: TextLine) -> Iterator[Record]:
        kind, text = self._sort(line)
        if kind != self._kind:
            yield from self.flush()
            self._kind, self._start = kind, line.start
        self._lines.append(text)
        self._end = line.end
        self._blank_before = not line.text.strip()
        if line.text.startswith('<div class="chat-transcript"'):
            self._website = self._blank_before = True

    def _sort(self, line: TextLine) -> tuple[str, str]:
        """(kind, content) of a line."""
        text = line.text
        mark, kind = ("#### ", _TYPED) if text.startswith("#### ") else ("> ", _CONSOLE)
        spaced = text.endswith(_SPACES) and line.closed
        if text.startswith(mark):
            goes_on = self._blank_before or self._kind == kind
            if spaced and (goes_on or self._kind != _SAID or kind == _CONSOLE):
                self._strict, self._wrapped = True, False
                return kind, text[len(mark) :].removesuffix(_SPACES)
            if goes_on and (self._website or not self._strict):
                return kind, text[len(mark) :].rstrip()
            if kind == _CONSOLE and self._strict and self._wraps(text):
                self._wrapped = True
                return kind, text[len(mark) :]
        if self._wrapped:
            self._wrapped = not (spaced and text.strip())
            return _CONSOLE, text.removesuffix(_SPACES)
        if not text.strip() and self._kind == _CONSOLE:
            return _CONSOLE, ""
        return _SAID, text

    def _wraps(self, text: str) -> bool:
        """Whether a line of the console begins a message of several: only its last line has the trailing spaces."""
        return text.startswith("> Tokens: ") or (self._kind != _SAID and not self._blank_before)

    def flush(self) -> Iterator[Record]:
        """The block that ends here as a record; none for one of blank lines, whose bytes go to the next."""
        text = joined(self._lines)
        if self._lines and text:
            yield self._record(self._start, self._end, self._acts(text))
        self._kind, self._lines = "", []

    def _acts(self, text: str) -> list[Act]:
        if self._kind == _TYPED:
            typed = text.strip()
            if not typed or typed == _BLANK_PROMPT:
                return [Skip("empty")]
            return [Prompt(typed, unanswered="command" if _COMMAND.match(typed) else "")]
        if self._kind == _CONSOLE:
            model = _MODEL.search(text)
            if model:
                self._model = model[1]
            return _console_acts(text)
        said = _WEBSITE_END.sub("", text) if self._website else text
        return [AgentText(said)] if said.strip() else [Skip("markup")]

    def _record(self, start: int, end: int, acts: list[Act]) -> Record:
        at, assumed = self._at
        session = f"{self._unit.source}#{self._session_n}"
        return Record(start, end, acts, session, at=at, tz_assumed=assumed, model=self._model, weight=end - start)


def _console_acts(text: str) -> list[Act]:
    """A call for every edit that the console reports, and its text as a result.

    The calls stand first: where one shows that the agent answered a command, the text belongs to that exchange.
    """
    edited = dict.fromkeys(_APPLIED.findall(text))
    return [*(ToolUse("", "edit", {"file_path": path.strip()}) for path in edited), ToolResult("", text)]
