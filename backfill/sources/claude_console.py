"""Copies of Claude Code's terminal: `> ` a prompt, `⏺` an answer or a tool, `⎿` a tool's result, `✻` a thought.

People paste them into Markdown and text files. The welcome box begins a session; `#k` counts them from 0. The terminal
wrapped and cut the lines, so text is lost before we see it; wrapped lines stay as they stand, less their indentation.
There are no ids and no times: the anchor is the ordinal. Deliberately absent: copies of other agents' terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from backfill.records import Act, AgentText, Pending, Prompt, Record, Skip, Thinking, ToolResult, ToolUse
from backfill.sources.base import Head, Unit
from backfill.sources.textlines import TextLine, joined, text_lines
from backfill.sources.typed import user_acts

_PROMPT, _DOT, _RESULT, _STAR = "> ", "⏺", "⎿", "✻"
_WELCOME = re.compile(r"│ ✻ Welcome to Claude Code\b")
_CWD = re.compile(r"│\s+cwd: (\S.*?)\s*│")
_TOOL = re.compile(r"(?:[A-Z][A-Za-z]+|mcp__\w+|[\w-]+:\w+ \(MCP\))\(")
_TOOL_NAMES = frozenset(("Update Todos", "Read Todos"))
_BOX = ("╭", "│", "╰")
_STATUS = re.compile(r"[·✢✳✶✽✻*] \S+… ?\(|\s*(?:※ Tip:|✔ Loaded|\? for shortcuts|◯ IDE)")
_COMMAND = re.compile(r"/[a-z][\w-]*(?:\s|\Z)")
_MIN_MARKS = 3
_KINDS = {_PROMPT: "prompt", _DOT: "agent", _RESULT: "result", _STAR: "thought"}


class ClaudeConsoleReader:
    """Reads copies of Claude Code's terminal."""

    name = "claude_console"
    version = 1

    def claims(self, head: Head) -> bool:
        """By several lines with the terminal's own marks: a prompt, an answer, and a result or a welcome box."""
        body = head.raw
        dot = _DOT.encode()
        if b"\n" + dot not in body and not body.startswith(dot):
            return False  # before any pattern is tried on a unit of another format
        prompts = len(re.findall(rb"^> \S", body, re.MULTILINE))
        dots = len(re.findall("^⏺ ?\\S".encode(), body, re.MULTILINE))
        results = len(re.findall("^ +⎿".encode(), body, re.MULTILINE))
        welcome = _WELCOME.search(body[:8192].decode("utf-8", "replace")) is not None
        return bool(prompts and dots) and (welcome or dots + results >= _MIN_MARKS)

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per marked block."""
        yield from _Pass(unit).records()


class _Pass:
    """One reading: the block that is being collected."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._session_n = -1
        self._cwd = ""
        self._kind = ""
        self._lines: list[str] = []
        self._start = self._end = 0
        self._call = ""

    def records(self) -> Iterator[Record]:
        for line in text_lines(self._unit):
            if not line.closed and line.text.lstrip()[:1] in tuple(">⏺⎿✻╭│╰\ufffd"):
                yield from self._flush()
                yield Record(line.start, line.end, [Pending()])  # may turn out as any other mark
                continue
            kind, text = self._sort(line)
            if kind != self._kind or text is None:
                yield from self._flush()
                self._kind, self._start = kind, line.start
            self._lines.append(line.text if text is None else text)
            self._end = line.end
        yield from self._flush()

    def _sort(self, line: TextLine) -> tuple[str, str | None]:
        """(kind, None) of a line with a mark, which begins a block; (kind of the block, text) of one that goes on."""
        text = line.text
        mark = text.lstrip()[:1]
        if text.startswith(_BOX):
            if _WELCOME.match(text) and self._kind != "box":
                return "box", None
            return "box", text
        if text.startswith(_PROMPT) and text.removeprefix(_PROMPT).strip():
            return "prompt", None
        if text.startswith((_DOT, _STAR)) or (mark == _RESULT and text.startswith(" ")):
            return ("status", text) if _STATUS.match(text) else (_KINDS[mark], None)
        if _STATUS.match(text) and self._kind in ("", "box", "status"):
            return "status", text
        if self._kind in ("box", "status") and text.strip():
            return "status", text
        return self._kind or "status", text

    def _flush(self) -> Iterator[Record]:
        lines, self._lines = self._lines, []
        if not lines:
            return
        kind, self._kind = self._kind, ""
        acts = self._acts(kind, lines)
        session = f"{self._unit.source}#{max(self._session_n, 0)}"
        yield Record(self._start, self._end, acts, session, cwd=self._cwd, weight=self._end - self._start)

    def _acts(self, kind: str, lines: list[str]) -> list[Act]:
        if kind == "box":
            return self._box_acts(lines)
        if kind == "status":
            return [Skip("status" if any(line.strip() for line in lines) else "empty")]
        text = _dedented(lines)
        if kind == "prompt":
            self._call = ""
            acts = user_acts(text)
            return [Prompt(act.text, "command") if isinstance(act, Prompt) and _COMMAND.match(text) else act
                    for act in acts]  # fmt: skip
        if kind == "thought":
            return [Thinking(text.removeprefix("Thinking…").strip())]
        if kind == "result":
            return [ToolResult(self._call, text)]
        return [self._answer(text)]

    def _box_acts(self, lines: list[str]) -> list[Act]:
        if any(_WELCOME.match(line) for line in lines):
            self._session_n += 1
            cwd = next((found[1] for found in map(_CWD.match, lines) if found), "")
            self._cwd = cwd or self._cwd
        return [Skip("meta")]

    def _answer(self, text: str) -> Act:
        """What follows a dot: a tool with its arguments in brackets, or what the agent said."""
        first = text.partition("\n")[0]
        if not _TOOL.match(first) and first.rstrip("… ") not in _TOOL_NAMES:
            return AgentText(text)
        name, _, rest = text.partition("(")
        rest = rest.rstrip("…").rstrip()
        argument = rest.removesuffix(")")
        self._call = f"{self._start}"
        key = {"Bash": "command", "Read": "file_path", "Update": "file_path", "Write": "file_path"}.get(name)
        tool = {"Update": "Edit"}.get(name, name.strip())
        return ToolUse(self._call, tool, {key or "description": argument} if argument else {})


def _dedented(lines: list[str]) -> str:
    """A block's text without its mark and the two spaces below it."""
    first = lines[0].lstrip()
    first = first[2:] if first.startswith(_PROMPT) else first[1:].lstrip()
    return joined([first, *(line.removeprefix("  ") for line in lines[1:])])
