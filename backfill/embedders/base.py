"""The embedder protocol: texts in, unit fp16 rows out; a row depends on its text alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
