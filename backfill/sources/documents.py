"""Documents that the config names: Markdown notes, design docs, minutes, plain text and HTML, cut at their headings.

The heading path stands for the prompt and the section's text for what the agent said; text before the first heading has
no prompt. A section is read in pieces of whole paragraphs, so that a long one can be cut into parts. The session is the
source path, the anchor the ordinal of the heading. Deliberately absent: times; a file's own are those of its last copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from backfill.records import Act, AgentText, Prompt, Quarantine, Record, Skip, Titled
from backfill.sources.base import Head, Unit
from backfill.sources.html_sections import HtmlSections, looks_like_html
from backfill.sources.textlines import TextLine, joined, text_lines

MAX_HTML_BYTES = 16 << 20
_PIECE_BYTES = 1024
_SEPARATOR = " > "
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FRONT_TITLE = re.compile(r"""^title:[ \t]*["']?(.*?)["']?[ \t]*$""", re.MULTILINE)
_MAX_FRONT_LINES = 60


class DocumentReader:
    """Reads documents; never claims a unit by itself: `scan.documents` names them."""

    name = "document"
    version = 1

    def claims(self, head: Head) -> bool:
        """Any text, once the config has named the file."""
        return b"\0" not in head.raw and bool(head.raw.strip())

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per heading and per piece of a section."""
        sections = _Sections(unit.source)
        if looks_like_html(unit.head):
            yield from _html(unit, sections)
        else:
            yield from _markdown(unit, sections)
        yield from sections.finish()


def is_named(source: str, globs: Sequence[str]) -> bool:
    """Whether one of the globs matches a unit's POSIX path: `*` within a folder, `**/` over any number of them."""
    return any(_glob(glob).fullmatch(source) for glob in globs)


@lru_cache(maxsize=256)
def _glob(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meant.get(part) or re.escape(part) for part in parts), re.DOTALL)


class _Sections:
    """Turns headings and pieces of text into records."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._path: list[tuple[int, str]] = []
        self._waiting: Record | None = None  # a heading that has no text yet
        self._begun = self._titled = False

    def title(self, text: str, start: int, end: int) -> Iterator[Record]:
        """A title that the document's own header gives."""
        self._titled = bool(text)
        yield self._record(start, end, [Titled(text)] if text else [Skip("meta")])

    def heading(self, level: int, text: str, start: int, end: int) -> Iterator[Record]:
        """A heading; one that only holds deeper ones is said in their paths."""
        holds = bool(self._path) and level > self._path[-1][0]
        yield from self._heading_done([Skip("heading")] if holds else None)
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text))
        path = _SEPARATOR.join(name for _, name in self._path if name)
        acts: list[Act] = [Prompt(path)]
        if not self._titled and text:
            self._titled = True
            acts.insert(0, Titled(text))
        self._waiting = self._record(start, end, acts)

    def text(self, text: str, start: int, end: int) -> Iterator[Record]:
        """A piece of the section's text."""
        begins = self._waiting is None and not self._begun
        yield from self._heading_done(None)
        self._begun = True
        yield self._record(
            start, end, [Prompt("", unanswered="empty"), AgentText(text)] if begins else [AgentText(text)]
        )

    def finish(self) -> Iterator[Record]:
        """The last heading, if nothing follows it."""
        yield from self._heading_done(None)

    def _heading_done(self, instead: list[Act] | None) -> Iterator[Record]:
        if self._waiting is not None:
            if instead:
                titles = [act for act in self._waiting.acts if isinstance(act, Titled)]
                self._waiting.acts = [*instead, *titles]
            yield self._waiting
            self._waiting, self._begun = None, True

    def _record(self, start: int, end: int, acts: list[Act]) -> Record:
        return Record(start, end, acts, self._session, weight=end - start, forks=True)


def _markdown(unit: Unit, sections: _Sections) -> Iterator[Record]:
    """Headings of Markdown (`#` and underlined) outside code fences; plain text is Markdown without any."""
    held: list[TextLine] = []
    size = 0
    fence = ""
    first = True
    for line in text_lines(unit):
        if first and line.text.rstrip() == "---":
            held, first, fence = [line], False, "---"
            continue
        first = first and not line.text.strip()
        if fence == "---":
            held.append(line)
            if line.text.rstrip() in ("---", "..."):
                title = _FRONT_TITLE.search("\n".join(h.text for h in held))
                yield from sections.title(title[1] if title else "", held[0].start, line.end)
                held, fence = [], ""
            elif len(held) > _MAX_FRONT_LINES:
                fence = ""
                size = sum(len(h.text) for h in held)
            continue
        mark = _FENCE.fullmatch(line.text)
        if mark and fence:
            fence = "" if mark[1].startswith(fence) and not mark[2].strip() else fence
        elif mark and "`" not in mark[2]:
            fence = mark[1]
        atx = None if fence or mark else _ATX.fullmatch(line.text)
        under = None if fence or mark else _SETEXT.fullmatch(line.text)
        if atx:
            yield from _piece(held, sections)
            yield from sections.heading(len(atx[1]), (atx[2] or "").strip(), line.start, line.end)
            held, size = [], 0
        elif under and _is_title(held):
            title_line = held.pop()
            yield from _piece(held, sections)
            level = 1 if under[1][0] == "=" else 2
            yield from sections.heading(level, title_line.text.strip(), title_line.start, line.end)
            held, size = [], 0
        elif not fence and not line.text.strip() and size >= _PIECE_BYTES:
            yield from _piece([*held, line], sections)
            held, size = [], 0
        else:
            held.append(line)
            size += len(line.text)
    yield from _piece(held, sections)


def _is_title(held: list[TextLine]) -> bool:
    """Whether the last line is a paragraph of one line, which an underline makes a heading."""
    if not held or not held[-1].text.strip() or held[-1].text.lstrip().startswith((">", "-", "*", "|", "<")):
        return False
    return len(held) == 1 or not held[-2].text.strip()


def _piece(held: list[TextLine], sections: _Sections) -> Iterator[Record]:
    text = joined([line.text for line in held])
    if text.strip():
        yield from sections.text(text, held[0].start, held[-1].end)


def _html(unit: Unit, sections: _Sections) -> Iterator[Record]:
    if unit.size_bytes > MAX_HTML_BYTES:
        while unit.read(1 << 20):
            pass
        yield Record(0, unit.bytes_read, [Quarantine("too_large")])
        return
    parser = HtmlSections(list(text_lines(unit)))
    if parser.title:
        yield from sections.title(parser.title, parser.title_start, parser.title_end)
    for section in parser.sections:
        if section.level:
            yield from sections.heading(section.level, section.heading, section.start, section.text_start)
        if section.text:
            yield from sections.text(section.text, section.text_start, section.end)
