"""The embedder protocol: texts in, unit fp16 rows out; a row depends on its text alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Raised by hand when the same text gets another vector: other rounding, pooling, truncation or prompts.
EMBED_VERSION = 1
# Encoders read a few hundred tokens; of a longer text only this much is tokenized, so that a text of many megabytes
# costs what a page costs. 32,768 characters are 8,000 words of English, far beyond any encoder here.
MAX_READ_CHARS = 32_768


@dataclass(frozen=True, slots=True)
class Prompts:
    """What the model wants before a query and before a passage ("query: ", "passage: "); most want nothing."""

    query: str = ""
    passage: str = ""


def distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The distinct texts in order of first appearance, and for each text the position of its like among them."""
    positions: dict[str, int] = {}
    places = [positions.setdefault(text, len(positions)) for text in texts]
    return list(positions), places


def usable_cores() -> int:
    """Cores that this process may run on; a batch system often grants fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Embedder(Protocol):
    """A sentence encoder with pooling and L2 normalisation."""

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def identity(self) -> dict[str, Any]:
        """What goes into the encoder fingerprint: weights, tokenizer, pooling, prompts, dim, maximum length."""
        ...

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float16]:
        """[N, D] float16 unit rows in the order of `texts`; an empty text gives a zero row."""
        ...

    def truncated(self) -> int:
        """How many texts were longer than the encoder reads and were cut, since it was made."""
        ...

    def cut(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> list[bool]:
        """Which of the texts are longer than the encoder reads; nothing is computed or counted."""
        ...
