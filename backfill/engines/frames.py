"""Messages between a run and its engine process, and their framing.

A frame is a 4-byte little-endian length and a msgpack message. The parent writes `Start`, then `Ask`s, then `Stop`;
the child answers `Ready` or `Refused`, then one `Done` an ask, in any order, and `Beat`s. Deliberately absent:
pickle, and anything that one side could make the other run.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

HEADER_BYTES = 4
MAX_FRAME_BYTES = 64 << 20


class Start(msgspec.Struct, tag="start"):
    """Loads the model. `model` is a local directory or a hub name; `environment` was set by the parent already."""

    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    enforce_eager: bool
    structured_backend: str
    enable_thinking: bool
    temperature: float
    frequency_penalty: float
    seed: int
    prompt_lookup_tokens: int = 0


class Ask(msgspec.Struct, tag="ask"):
    """One request; see `backfill.engines.base.Request`."""

    key: int
    system: str
    user: str
    schema: str
    max_tokens: int


class Stop(msgspec.Struct, tag="stop"):
    """Ends the child; so does the end of its standard input."""


class Ready(msgspec.Struct, tag="ready"):
    """The model is loaded; what runs it, for the record (not for the fingerprint).

    `mask_memo` says whether token masks of outlines are remembered.
    """

    device: str
    dtype: str
    structured_backend: str
    versions: dict[str, str]
    load_s: float
    mask_memo: bool = False


class Refused(msgspec.Struct, tag="refused"):
    """The model does not load: `kind` is model (a person must act) or engine."""

    kind: str
    message: str


class Done(msgspec.Struct, tag="done"):
    """One answer; see `backfill.engines.base.Answer`."""

    key: int
    text: str
    finish_reason: str
    error: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0


class Beat(msgspec.Struct, tag="beat"):
    """The child has made `steps` engine steps so far and is alive."""

    steps: int


ToChild: TypeAlias = Start | Ask | Stop
ToParent: TypeAlias = Ready | Refused | Done | Beat

_encoder = msgspec.msgpack.Encoder()


def pack(message: ToChild | ToParent) -> bytes:
    """A message as one frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


def split(buffer: bytearray) -> list[bytes]:
    """Takes the whole frames out of the front of `buffer`. Raises ValueError on a length that no message has."""
    bodies: list[bytes] = []
    at = 0
    while len(buffer) - at >= HEADER_BYTES:
        size = int.from_bytes(buffer[at : at + HEADER_BYTES], "little")
        if size > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {size} bytes")
        if len(buffer) - at - HEADER_BYTES < size:
            break
        at += HEADER_BYTES
        bodies.append(bytes(buffer[at : at + size]))
        at += size
    del buffer[:at]
    return bodies
