"""Messages between the server and its search processes, and their framing.

A frame is a 4-byte little-endian length and a msgpack message. The server asks one thing at a time (`Open`, `Search`)
and the process answers it once (`Found`, `Failed`); before that it may ask back for vectors (`Encode`), because the
server alone holds the encoder. Deliberately absent: pickle, and a hit's text as anything but the finished answer.
"""

from __future__ import annotations

from typing import IO, TypeAlias, TypeVar

import msgspec

HEADER_BYTES = 4
# The largest answer, a pack of 200,000 tokens, is below 2 MB; a query has at most 2,000 characters.
MAX_FRAME_BYTES = 64 << 20


class Query(msgspec.Struct, frozen=True):
    """What the server knows of a query: its words and their vector [D] float16, empty where none was wanted.

    `no_encoder` says why the server has no encoder; empty where it has one.
    """

    words: str = ""
    vector: bytes = b""
    no_encoder: str = ""


class Open(msgspec.Struct, tag="open", frozen=True):
    """Opens the state of this digest beside the one in use, and searches it for `text`: later searches find it warm."""

    digest: str
    text: str
    query: Query


class Search(msgspec.Struct, tag="search", frozen=True):
    """Asks the endpoint at `path` with parameters in JSON; `digest` names the state of the bundle."""

    digest: str
    path: str
    params: bytes
    query: Query


class Vectors(msgspec.Struct, tag="vectors", frozen=True):
    """The answer to `Encode`: [N, D] float16, a row a text."""

    rows: bytes


class Found(msgspec.Struct, tag="found", frozen=True):
    """A finished answer: HTTP status and JSON."""

    status: int
    body: bytes


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The state is not there any more, or a part of it cannot be read."""

    message: str


class Encode(msgspec.Struct, tag="encode", frozen=True):
    """Asks for the vectors of texts."""

    texts: list[str]


ToProcess: TypeAlias = Open | Search | Vectors
ToServer: TypeAlias = Found | Failed | Encode
T = TypeVar("T", ToProcess, ToServer)

_encoder = msgspec.msgpack.Encoder()
TO_PROCESS: msgspec.msgpack.Decoder[ToProcess] = msgspec.msgpack.Decoder(ToProcess)
TO_SERVER: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)


class PipeClosed(Exception):
    """The other side is gone."""


def send(pipe: IO[bytes], message: ToProcess | ToServer) -> None:
    """Writes one frame. Raises PipeClosed."""
    body = _encoder.encode(message)
    try:
        pipe.write(len(body).to_bytes(HEADER_BYTES, "little") + body)
        pipe.flush()
    except (OSError, ValueError) as error:
        raise PipeClosed("the pipe is closed") from error


def receive(pipe: IO[bytes], decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Reads one frame. Raises PipeClosed at the end, and for what is no message."""
    try:
        head = pipe.read(HEADER_BYTES)
        size = int.from_bytes(head, "little")
        if len(head) < HEADER_BYTES or size > MAX_FRAME_BYTES:
            raise PipeClosed("the pipe is closed")
        return decoder.decode(pipe.read(size))
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise PipeClosed("the pipe broke in the middle of a message") from error
