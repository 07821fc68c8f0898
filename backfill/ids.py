"""Identity: content ids, exchange ids, row bytes and canonical JSON.

Ids are BLAKE2b-128 over length-prefixed fields (8-byte little-endian length, then the bytes), so that no two field
lists share an encoding. Deliberately absent: times, paths, hosts and config; a copy of a history gets the ids of the
original.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from backfill.types import Row, ToolCall

ID_BYTES = 16

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")


def digest_fields(fields: Iterable[bytes], *, size: int = ID_BYTES) -> bytes:
    """BLAKE2b of length-prefixed fields; `size` bytes."""
    h = hashlib.blake2b(digest_size=size)
    for field in fields:
        h.update(len(field).to_bytes(8, "little"))
        h.update(field)
    return h.digest()


def content_id(user_text: str, agent_text: str, part: int, tools: Sequence[ToolCall]) -> bytes:
    """16-byte id of what was said and called, after secret replacement; the key of the distillation cache."""
    fields = [user_text.encode(), agent_text.encode(), str(part).encode()]
    for tool in tools:
        fields.append(tool.name.encode())
        fields.append(tool.args_digest)
    return digest_fields(fields)


def exchange_id(content: bytes, prev_content: bytes | None) -> bytes:
    """16-byte id of a content after another: the same "yes" after two different exchanges stays two."""
    return digest_fields([content, prev_content or b""])


def claim_id(text: str, kind: str, date: int | None, exchange_ids: Sequence[bytes]) -> bytes:
    """16-byte id of a claim: its words, kind, date and provenance."""
    return digest_fields([text.encode(), kind.encode(), str(date).encode(), *sorted(exchange_ids)])


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; bytes become base64."""
    return _sorted_encoder.encode(value)


def args_digest(arguments: Any) -> bytes:
    """16-byte digest of a tool call's arguments: canonical JSON of an object, or the text itself."""
    return text_digest(arguments.encode() if isinstance(arguments, str) else canonical_json(arguments))


def text_digest(data: bytes) -> bytes:
    """`args_digest` of arguments whose canonical JSON, or text, is at hand as UTF-8."""
    return hashlib.blake2b(data, digest_size=ID_BYTES).digest()


def row_bytes(row: Row) -> bytes:
    """Canonical bytes of a row: JSON of its fields in column order. Orders ties and feeds `logical_digest`."""
    return _encoder.encode(row)


def row_hash(row: Row) -> bytes:
    """16-byte hash of the canonical bytes of a row."""
    return hashlib.blake2b(row_bytes(row), digest_size=ID_BYTES).digest()


def fingerprint(parts: dict[str, Any]) -> str:
    """32 hex digits over the canonical JSON of everything that decides a stage's output."""
    return hashlib.blake2b(canonical_json(parts), digest_size=ID_BYTES).hexdigest()
