"""The page's own files, read once, with an ETag each."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backfill.web.answers import JSON, encode
from backfill.web.look import static_file
from backfill.web.openapi import document

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {"/": "app.html", "/docs": "docs.html"}
FILES = (
    "look.css", "app.css", "docs.css", "app.js", "parts.js", "search.js", "palace.js", "exchange.js", "timeline.js",
    "claims.js", "docs.js", "icon.svg", "theme.js",
)  # fmt: skip


def static_routes() -> list[Route]:
    """The two pages, their files, and the OpenAPI document."""
    served = {path: (static_file(name), _TYPES["html"]) for path, name in PAGES.items()}
    served |= {f"/static/{name}": (static_file(name), _TYPES[name.rsplit(".", 1)[1]]) for name in FILES}
    served["/openapi.json"] = (encode(document()), JSON)
    return [Route(path, _handler(body, kind), methods=["GET"]) for path, (body, kind) in served.items()]


def _handler(body: bytes, kind: str):  # type: ignore[no-untyped-def]  # starlette has no public name for it
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"etag": etag, "cache-control": "no-cache"}

    async def handle(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return handle
