"""Who may ask: only pages that this server gave, in a browser that really asked for this server.

A page from elsewhere, opened in the same browser, can send requests to 127.0.0.1. It cannot read the answers, because
no cross-origin header allows it, unless its own host name was made to resolve to 127.0.0.1 (DNS rebinding); then the
Host header gives it away. So Host must be this machine's own name with our port, an Origin must be ours, and what the
browser itself marks as cross-site gets nothing. Every answer carries the headers that keep it in its place.
Deliberately absent: users and passwords; who has an account on this machine can open the port.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill.web.answers import ApiError, error_response

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
MAX_URL_BYTES = 16 << 10
METHODS = ("GET", "HEAD")

# `trusted-types` makes the one place in app.js that takes rendered HTML the only one that can.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types backfill"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """ASGI middleware around the whole application. `port` is the one that the server listens on."""

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        self._hosts = frozenset(local_hosts(port))
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_RAW_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        answer = self._app if refusal is None else error_response(refusal)
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self._hosts:
            return ApiError(403, "forbidden", "this server answers only under its own local name", "open the address "
                            "that backfill serve printed")  # fmt: skip
        if any(origin.lower() not in self._origins for origin in headers.getlist("origin")):
            return ApiError(403, "forbidden", "requests from other web sites are refused")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _opens_page(scope, headers):
            return ApiError(403, "forbidden", "requests from other web sites are refused")
        if scope["method"] not in METHODS:
            return ApiError(405, "method_not_allowed", f"only {' and '.join(METHODS)} are answered")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            return ApiError(414, "too_long", f"the address is longer than {MAX_URL_BYTES:,} bytes")
        return None


def local_hosts(port: int) -> Iterable[str]:
    """The values of a Host header that mean this server; browsers leave port 80 out."""
    for name in LOCAL_NAMES:
        yield f"{name}:{port}"
        if port == 80:
            yield name


def _opens_page(scope: Scope, headers: Headers) -> bool:
    """A link on another site, clicked by the reader: it shows the page to the reader alone, and may do that."""
    navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return navigates and not str(scope["path"]).startswith("/api/")
