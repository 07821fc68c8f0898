"""Errors and encoded JSON of the API: one shape for every refusal, and nothing of the machine in it."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

JSON = "application/json"


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong: `kind` for programs, `message` and `hint` for people."""

    kind: str
    message: str
    hint: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer that is not 200."""

    error: ErrorBody


class ApiError(Exception):
    """A refusal with its HTTP status."""

    def __init__(self, status: int, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.hint = hint

    def body(self) -> bytes:
        """The refusal as JSON."""
        return encode(ErrorAnswer(ErrorBody(self.kind, _sound(str(self)), _sound(self.hint))))


def encode(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return msgspec.json.encode(value)


def error_response(error: ApiError) -> Response:
    """The refusal as a response; 405 names the methods that are answered."""
    headers = {"cache-control": "no-store"}
    if error.status == 405:
        headers["allow"] = "GET, HEAD"
    return Response(error.body(), error.status, headers, JSON)


def _sound(text: str) -> str:
    # A lone surrogate, from broken bytes in an address, has no UTF-8.
    return text.encode("utf-8", "replace").decode()
