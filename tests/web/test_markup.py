"""Transcripts as HTML: nothing in it may run, load, or leave its place, and no text takes long."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.web.look import escape, standalone_page
from backfill.web.markup import LANGUAGES, MAX_MARKDOWN_CHARS, render_code, render_markdown
from tests.web.web_bundles import HOSTILE

TAGS = frozenset(
    (
        "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
        "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
    )
)  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title", "rel", "target"},
    "pre": {"class", "data-language"},
    "span": {"class"},
    "ol": {"start"},
}


class Strict(HTMLParser):
    """Collects what is outside the list of harmless elements and attributes."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.bad: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.bad.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, set()):
                self.bad.append(f"{tag} {name}={value}")
            if name == "href":
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.bad.append("<!--")

    def handle_decl(self, decl: str) -> None:
        self.bad.append("<!")


def test_hostile_markup_becomes_text():
    parsed = Strict(render_markdown(HOSTILE))
    assert parsed.bad == []
    assert parsed.links == ["https://example.org/a?b=1&c=%222%22"]
    for shown in (
        "<script>document.title",
        "onerror=",
        "<iframe srcdoc=",
        "javascript:",
        "data:text/html",
        "vbscript:x",
    ):
        assert shown in parsed.text
    assert "\x1b" not in parsed.text
    assert "\u202e" not in parsed.text


PIECES = st.sampled_from(
    ["<script>", "</code></pre>", "[a](javascript:x)", "[a](//evil)", "![x](http://e/x.png)", "```html\n", "\n", "\n\n",
     "`", "<!--", "&lt;b&gt;", '" onload="', "| a | b |\n|:-|-:|\n", "> ", "* ", "    ", '<http://a.b/"x>', "](", "[x]",
     "[x]: javascript:y\n", "\x00", "\u202e", "<svg/onload=1>", "&#106;avascript:", "[a](&#106;avascript:x)",
     "[a](java\tscript:x)", "~~", "**"]
)  # fmt: skip


@given(st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=30).map("".join))
@settings(max_examples=150, deadline=None)
def test_no_text_makes_anything_but_harmless_elements(text: str):
    for html in (render_markdown(text), render_code(text, "html"), render_code(text, text)):
        parsed = Strict(html)
        assert parsed.bad == []
        assert all(link.lower().startswith(("http://", "https://", "mailto:")) for link in parsed.links)


def test_markdown_is_shown_as_markdown():
    html = render_markdown("# Plan\n\n* `a.py`\n\n```py\ndef f(): return 1\n```\n\n| a |\n|:-:|\n| 1 |\n\nline\nbreak")
    assert "<h1>Plan</h1>" in html
    assert '<pre class="code" data-language="python">' in html
    assert '<span class="k-k">def</span>' in html
    assert "<td>1</td>" in html
    assert "<br" in html


def test_code_keeps_every_character():
    text = "if a < b:\n\treturn '\\u0041'\n\n"
    for language in sorted(LANGUAGES):
        assert Strict(render_code(text, language)).text == text + "\n"


def test_what_is_too_long_is_shown_as_it_is():
    text = "*a* " * MAX_MARKDOWN_CHARS
    html = render_markdown(text)
    assert html.startswith('<pre class="plain">')
    assert Strict(html).text == text


@pytest.mark.parametrize("piece", ["[", "[a](", "![[]()", "a*b_c`d[", "> ", "~~a", "<"])
def test_hostile_repetition_takes_seconds_at_most(piece: str):
    text = "\n".join([(piece * 4000)[:3900]] * 6)[:MAX_MARKDOWN_CHARS]
    began = time.process_time()
    render_markdown(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("language", ["c", "markdown", "javascript", "php", "yaml"])
def test_colouring_stops_when_its_time_is_over(language: str):
    """C took 17 s for lines like these, and Make 16, before lines and time had a limit."""
    for line in (" " * 3900 + "x", " " * 480 + "x", "(" * 480, "a" * 480 + "!", "`${" * 160):
        began = time.process_time()
        render_code((line + "\n") * 41, language)
        assert time.process_time() - began < 3


def test_a_report_stands_alone():
    page = standalone_page("<b>report</b>", f"<p>{escape('<script>alert(1)</script>')}</p>", css=".x { color: red }")
    assert "<title>&lt;b&gt;report&lt;/b&gt;</title>" in page
    assert "<script" not in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "--accent" in page
    assert "default-src 'none'; style-src 'sha256-" in page
