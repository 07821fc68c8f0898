"""The embed stage as pure functions: which texts of an object get a vector, their vectors, and the fingerprint.

Deliberately absent: files, shards and resume, which the run decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from backfill.embedders.base import distinct
from backfill.errors import ConfigError
from backfill.ids import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from backfill.embedders.base import Embedder
    from backfill.types import PalaceObject

PARTS: tuple[str, ...] = ("core", "context", "distilled")
CLAIM_VECTORS = "vectors:claims"
# An encoder stacks what it has before it returns; 16,384 rows of 384 numbers are 12.6 MB.
_CHUNK_TEXTS = 16_384


def object_texts(obj: PalaceObject, parts: Sequence[str]) -> dict[str, str]:
    """The text of each part of an object, in the order of `parts`. Raises ConfigError for an unknown part."""
    return {part: part_text(part, obj.exchange_core, obj.specific_context) for part in parts}


def part_text(part: str, core: str, context: str) -> str:
    """The text of one part. Raises ConfigError for an unknown one."""
    texts = {"core": core, "context": context, "distilled": f"{core}\n{context}"}
    if part not in texts:
        raise ConfigError(f"an object has no part {part!r}", hint=f"parts: {', '.join(PARTS)}")
    return texts[part]


def embed_texts(
    embedder: Embedder, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage"
) -> npt.NDArray[np.float16]:
    """Unit rows [N, D] float16 in the order of `texts`; each distinct text is encoded once, an empty one is zero."""
    import numpy as np

    unique, places = distinct(texts)
    rows = np.zeros((len(unique), embedder.dim), np.float16)
    for start in range(0, len(unique), _CHUNK_TEXTS):
        rows[start : start + _CHUNK_TEXTS] = embedder.encode(unique[start : start + _CHUNK_TEXTS], kind=kind)
    return rows[np.array(places, np.int64)]


def encoder_fingerprint(embedder: Embedder) -> str:
    """32 hex digits over everything that decides a vector; two embedders of one model have the same."""
    return fingerprint({"stage": "embed", **embedder.identity()})
