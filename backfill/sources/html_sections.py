"""The sections of an HTML document, with their byte ranges, by the standard library's parser.

Scripts, styles and templates are dropped; blocks become lines, preformatted text stays as it is. Deliberately absent:
everything a browser would do; nothing is fetched and nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from backfill.sources.textlines import TextLine

_DROPPED = frozenset(("script", "style", "template"))
_PARAGRAPHS = frozenset(("p", "pre", "ul", "ol", "dl", "table", "blockquote", "div", "section", "article"))
_BLOCKS = _PARAGRAPHS | frozenset((
    "address", "aside", "body", "br", "dd", "details", "dt", "fieldset", "figcaption", "figure", "footer", "form",
    "header", "hr", "li", "main", "nav", "summary", "td", "th", "tr",
))  # fmt: skip
_PIECE_CHARS = 1024
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_BEGINS = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.{0,4096}?-->\s*)*<(?:!doctype\s+html|html)\b",
                     re.IGNORECASE | re.DOTALL)  # fmt: skip
_SPACE = re.compile(r"[ \t\r\f\n]+")
_BLANKS = re.compile(r"\n{3,}")


def looks_like_html(head: bytes) -> bool:
    """Whether a file begins as an HTML document."""
    return _BEGINS.match(head) is not None


@dataclass(slots=True)
class Section:
    """A heading (level 0: the section before goes on) and the text after it, which begins at byte `text_start`."""

    level: int
    heading: str
    start: int
    text_start: int
    end: int = 0
    text: str = ""
    pieces: list[str] = field(default_factory=list)


class HtmlSections(HTMLParser):
    """Parses a whole document; `title` is that of its head."""

    def __init__(self, lines: Sequence[TextLine]) -> None:
        super().__init__(convert_charrefs=True)
        self._lines = lines
        self.title = ""
        self.title_start = self.title_end = 0
        self.sections = [Section(0, "", 0, 0)]
        self._dropped = self._pre = 0
        self._size = 0
        self._in_title = False
        self._heading: list[str] | None = None
        self.feed("\n".join(line.text for line in lines))
        self.close()
        self._close_section(lines[-1].end if lines else 0)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens what the tag opens."""
        if tag in _DROPPED:
            self._dropped += 1
        elif tag == "title":
            self._in_title = True
            self.title_start = self._at()
        elif tag in _HEADINGS and not self._dropped:
            self._close_section(self._at())
            self._heading = []
            self.sections.append(Section(int(tag[1]), "", self._at(), self._at()))
        elif tag in _BLOCKS:
            if tag in _PARAGRAPHS and self._heading is None and self._size >= _PIECE_CHARS:
                self._close_section(self._at())
                self.sections.append(Section(0, "", self._at(), self._at()))
            self._pre += tag == "pre"
            self._add("\n- " if tag == "li" else "\t" if tag in ("td", "th") else "\n")

    def handle_endtag(self, tag: str) -> None:
        """Closes what the tag closes."""
        if tag in _DROPPED:
            self._dropped = max(0, self._dropped - 1)
        elif tag == "title":
            self._in_title = False
            self.title = _SPACE.sub(" ", self.title).strip()
            self.title_end = self._at()
        elif tag in _HEADINGS and self._heading is not None:
            section = self.sections[-1]
            section.heading = _SPACE.sub(" ", "".join(self._heading)).strip()
            section.text_start = self._at()
            self._heading = None
        elif tag in _BLOCKS and tag not in ("br", "hr", "li", "td", "th"):
            self._pre = max(0, self._pre - (tag == "pre"))
            self._add("\n\n" if tag in ("p", "pre") else "\n")

    def handle_data(self, data: str) -> None:
        """Text, where it is shown."""
        if self._in_title:
            self.title += data
        elif not self._dropped:
            text = data if self._pre else _SPACE.sub(" ", data)
            self._add(text if self._pre or not self._at_line_start() else text.lstrip())

    def _at_line_start(self) -> bool:
        pieces = self.sections[-1].pieces if self._heading is None else self._heading
        return not pieces or pieces[-1].endswith(("\n", " ", "\t"))

    def _add(self, text: str) -> None:
        (self.sections[-1].pieces if self._heading is None else self._heading).append(text)
        self._size += len(text)

    def _close_section(self, end: int) -> None:
        section = self.sections[-1]
        if self._heading is not None:  # never closed
            section.heading = _SPACE.sub(" ", "".join(self._heading)).strip()
            self._heading = None
            section.text_start = end
        lines = "".join(section.pieces).split("\n")
        section.text = _BLANKS.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip()
        section.pieces = []
        self._size = 0
        section.end = end

    def _at(self) -> int:
        """The byte offset of the tag that is being read."""
        number, column = self.getpos()
        if number > len(self._lines):
            return self._lines[-1].end if self._lines else 0
        line = self._lines[number - 1]
        return min(line.start + len(line.text[:column].encode()), line.end)
