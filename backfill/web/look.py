"""The look that all pages share: colours, type, spacing and escaping, for the server and for self-contained reports.

`look.css` holds the tokens (light and dark) and the plain elements; a page that must stand alone takes it inline by
`standalone_page`. Deliberately absent: anything loaded from elsewhere, and a template language; pages are short.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib import resources

from backfill.web.markup import escape, render_code, render_markdown

__all__ = ["escape", "look_css", "render_code", "render_markdown", "standalone_page", "static_file"]


def static_file(name: str) -> bytes:
    """A file of the package's `static` folder."""
    return resources.files("backfill.web").joinpath("static", name).read_bytes()


def look_css() -> str:
    """Tokens and plain elements."""
    return static_file("look.css").decode()


def standalone_page(title: str, body: str, *, css: str = "") -> str:
    """A whole HTML page without any file beside it; its policy allows its own style sheet and nothing else.

    `body` is HTML whose texts went through `escape`, `render_markdown` or `render_code`. The page may be opened from
    disk or sent to someone: no script runs, and nothing is loaded.
    """
    style = look_css() + css
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f'<body>\n<main class="page">\n{body}\n</main>\n</body>\n</html>\n'
    )
