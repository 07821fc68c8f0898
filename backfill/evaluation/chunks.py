"""Cuts verbatim text into pieces that an encoder reads whole, at ends of sentences and lines."""

from __future__ import annotations

from backfill.text import sentence_spans

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
