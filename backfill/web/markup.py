"""Markdown and code of transcripts as HTML that can do nothing: no raw HTML, no images, no schemes but http and mailto.

Transcripts are untrusted. Markdown is read with HTML switched off, so that every character of it is escaped; images
become their text, since loading one would tell its server who reads; a link that is not plainly http, https or mailto
stays the text it was. Code is coloured by classes alone. Both have limits beyond which text is shown as it is, since
a parser's time may grow faster than its input. Deliberately absent: a sanitiser; nothing unsafe is made.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

from backfill.commands.printing import clean

# Hostile paragraphs of this size take the inline parser up to a second, ten times as much six.
MAX_MARKDOWN_CHARS = 20_000
MAX_CODE_CHARS = 20_000
# A line of ten thousand brackets costs the inline parser seconds; prose and code have no such lines.
MAX_LINE_CHARS = 4_000
# Some lexers' time grows with the square of a line and worse: C needs 17 s for six lines of 3,900 spaces.
MAX_CODE_LINE_CHARS = 500
MAX_COLOUR_S = 0.1

# Lexers that were looked at; a hostile block cannot pick one with a regular expression that backtracks for minutes.
LANGUAGES = frozenset(
    (
        "bash", "c", "cpp", "csharp", "css", "diff", "docker", "go", "html", "ini", "java", "javascript", "json",
        "kotlin", "lua", "markdown", "php", "python", "ruby", "rust", "scss", "sql", "swift", "toml", "tsx",
        "typescript", "xml", "yaml",
    )
)  # fmt: skip
_ALIASES = {
    "sh": "bash", "shell": "bash", "zsh": "bash", "console": "bash", "c++": "cpp", "cs": "csharp", "kt": "kotlin",
    "dockerfile": "docker", "golang": "go", "js": "javascript", "jsx": "javascript", "mjs": "javascript",
    "jsonc": "json", "jsonl": "json", "md": "markdown", "patch": "diff", "py": "python", "python3": "python",
    "rb": "ruby", "rs": "rust", "ts": "typescript", "yml": "yaml",
}  # fmt: skip
_SCHEME = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)


def escape(text: str) -> str:
    """The text for use in HTML, in elements and in quoted attributes; without terminal escapes and bidi marks."""
    return html.escape(clean(text), quote=True)


def render_markdown(text: str) -> str:
    """Markdown as HTML. Beyond 20,000 characters, or with a line beyond 4,000, it is shown as it is written."""
    text = clean(text)
    if len(text) > MAX_MARKDOWN_CHARS or _longest_line(text) > MAX_LINE_CHARS:
        return f'<pre class="plain">{html.escape(text)}</pre>'
    rendered: str = _parser().render(text)
    return rendered


def render_code(text: str, language: str = "") -> str:
    """Code as a block, coloured where the language is known and the code is not too long."""
    return _block(clean(text), language)


def _block(text: str, language: str) -> str:
    name = language.strip().lower().split(" ")[0]
    name = _ALIASES.get(name, name)
    known = name in LANGUAGES
    label = f' data-language="{name}"' if known else ""
    inner = _coloured(text, name) if known and len(text) <= MAX_CODE_CHARS else html.escape(text)
    return f'<pre class="code"{label}><code>{inner}</code></pre>\n'


def _coloured(text: str, name: str) -> str:
    """Spans with the short classes of Pygments. What is left when the time is over follows without colour."""
    if _longest_line(text) > MAX_CODE_LINE_CHARS:
        return html.escape(text)
    ends = time.perf_counter() + MAX_COLOUR_S
    out: list[str] = []
    done = 0
    for kind, value in get_lexer_by_name(name, stripnl=False, ensurenl=False).get_tokens(text):
        short = STANDARD_TYPES.get(kind, "")
        out.append(f'<span class="k-{short}">{html.escape(value)}</span>' if short else html.escape(value))
        done += len(value)
        if time.perf_counter() > ends:
            break
    return "".join(out) + html.escape(text[done:])


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")))


class _Renderer(RendererHTML):
    """Images as text, links that do not tell where the reader came from, code by `_block`, no style attributes."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        alt = self.renderInlineAsText(token.children or [], options, env) or "image"
        return f'<span class="image">[{html.escape(alt)}: {html.escape(str(token.attrGet("src") or ""))}]</span>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        target = html.escape(str(tokens[idx].attrGet("href") or ""))
        return f'<a href="{target}" title="{target}" rel="noopener noreferrer nofollow" target="_blank">'

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _block(tokens[idx].content, tokens[idx].info)

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _block(tokens[idx].content, "")

    @staticmethod
    def renderAttrs(token: Token) -> str:  # noqa: N802 - the name is markdown-it's
        # Table cells carry their alignment as a style, which the page's policy refuses.
        token.attrs.pop("style", None)
        return RendererHTML.renderAttrs(token)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    options: dict[str, Any] = {"html": False, "breaks": True, "linkify": False, "maxNesting": 20}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: bool(_SCHEME.match(url))  # type: ignore[method-assign]
    return parser
