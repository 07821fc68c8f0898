"""Cuts verbatim text into pieces that an encoder reads whole, at ends of sentences and lines."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from backfill.text import sentence_spans
from backfill.union import text_hash

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from backfill.types import Exchange

# Raised by hand when an exchange is cut into other pieces.
CHUNK_VERSION = 1
VERBATIM_VECTORS, VERBATIM_ROWS = "vectors:verbatim", "vectors:verbatim:rows"
# MiniLM reads 256 tokens; English has about 4 characters a token and code about 3, so 700 characters are 175 to 235.
CHUNK_CHARS = 700
# Of a text of megabytes this many pieces are read: 512 x 700 characters, 90 pages.
MAX_CHUNKS = 512


def chunks_of(text: str, limit_chars: int = CHUNK_CHARS) -> list[str]:
    """Runs of whole sentences of up to `limit_chars`; a longer sentence is cut at that length. At least one piece.

    A text within the limit stays as it is, so that its vector is the one it has uncut.
    """
    if len(text) <= limit_chars:
        return [text]
    pieces: list[str] = []
    start = end = 0
    for low, high in sentence_spans(text[: MAX_CHUNKS * limit_chars]):
        if high - start > limit_chars and end > start:
            pieces.append(text[start:end])
            start = low
        while high - start > limit_chars:
            pieces.append(text[start : start + limit_chars])
            start += limit_chars
        end = high
    if end > start:
        pieces.append(text[start:end])
    return [piece for piece in pieces if piece.strip()][:MAX_CHUNKS] or [text[:limit_chars]]


def verbatim_chunks(row: Exchange) -> list[str]:
    """The pieces of an exchange's own words; the best of their vectors stands for it."""
    return chunks_of(f"{row.user_text}\n{row.agent_text}")


def keys_of(texts: Sequence[str]) -> npt.NDArray[np.uint8]:
    """[N, 16] u1: the hash of each text, by which vectors of verbatim text are found."""
    import numpy as np

    return np.frombuffer(b"".join(map(text_hash, texts)), np.uint8).reshape(len(texts), 16)


def verbatim_places(
    exchanges: Iterable[Exchange], has_vector: Callable[[bytes], bool]
) -> dict[str, npt.NDArray[np.generic]]:
    """What the verbatim vectors of a segment belong to: `exchange_row` [M] i4 and `key` [M, 16] u1, in their order.

    `has_vector` tells of the hash of a text. An exchange of which a piece has no vector has none at all: it was read by
    a run that made none.
    """
    import numpy as np

    rows, keys = array("i"), bytearray()
    for number, exchange in enumerate(exchanges):
        found = [text_hash(text) for text in verbatim_chunks(exchange)]
        if all(map(has_vector, found)):
            keys += b"".join(found)
            rows.extend([number] * len(found))
    return {
        "exchange_row": np.array(rows, "<i4"),
        "key": np.frombuffer(bytes(keys), np.uint8).reshape(-1, 16),
    }
