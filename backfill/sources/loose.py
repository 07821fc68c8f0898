"""What small readers share: lenient decoding of a struct, and values that may have any type.

Deliberately absent: anything about one format.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def loosely(shape: type[S]) -> Callable[[Any], S | None]:
    """Builds a `shape` of any JSON value: fields of an unexpected type keep their default; None for no object."""
    fields = msgspec.structs.fields(shape)

    def build(value: Any) -> S | None:
        if not isinstance(value, dict):
            return None
        built = shape()
        for field in fields:
            if field.encode_name in value:
                try:
                    setattr(built, field.name, msgspec.convert(value[field.encode_name], field.type))
                except (msgspec.ValidationError, RecursionError):
                    continue
        return built

    return build


def string(value: Any) -> str:
    """The value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def one_of(value: Any, known: Container[str]) -> bool:
    """Whether the value is one of the known words; any JSON value may be asked about."""
    return isinstance(value, str) and value in known


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an array; none for anything else."""
    return [item for item in sequence(value) if isinstance(item, dict)]


def words(content: Any) -> str:
    """The text of message content: a string, or the `text` of its blocks; images and links are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(text for text in (string(block.get("text")) for block in objects(content)) if text)


def readable(value: Any) -> str:
    """Text as it is, text blocks joined, other JSON as JSON: what a tool gave back."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    blocks = [value] if isinstance(value, dict) else objects(value)
    texts = [text for text in (string(block.get("text")) for block in blocks) if text]
    if texts:
        return "\n".join(texts)
    if any(block.get("type") in ("image", "input_image", "image_url", "media") for block in blocks):
        return ""
    try:
        return msgspec.json.encode(value).decode() if value else ""
    except (RecursionError, TypeError):
        return ""
