"""How many bytes have been read, for whoever shows it: a file of hundreds of megabytes is one step otherwise.

A display wraps the reading in `metered`, readers say what they read by `advance`; without a display that does nothing.
Deliberately absent: the display (`progress`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

Meter: TypeAlias = Callable[[int], None]
"""Takes the number of bytes that were read since it was called last."""

_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes."""
        ...


class MeteredFile:
    """An open file whose reads are counted."""

    def __init__(self, file: Readable) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes."""
        data = self._file.read(size)
        advance(len(data))
        return data


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """What is read in this context while the block runs goes to `meter`."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


def set_meter(meter: Meter) -> None:
    """As `metered`, for the rest of a process of a pool."""
    _METER.set(meter)


def advance(n_bytes: int) -> None:
    """Says that so many more bytes have been read."""
    meter = _METER.get()
    if meter is not None:
        meter(n_bytes)
