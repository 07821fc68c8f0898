"""`encoder.json`: what an exported encoder is, and the checksums that its other files must have.

Files of an encoder: model.onnx, vocab.txt (WordPiece) or tokenizer.json (any other tokenizer, which then wants the
package `tokenizers`), probe.json and encoder.json. The SHA-256 of encoder.json vouches
for what is executed; the probe, which differs between processors, is vouched for by the bundle's manifest.
Deliberately absent: trust; the bundle decides whether an encoder may be loaded at all.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.errors import BundleError
from backfill.ids import canonical_json

T = TypeVar("T", bound=msgspec.Struct)

CARD_NAME = "encoder.json"
CARD_FORMAT = 1
MODEL_NAME = "model.onnx"
VOCABULARY_NAME = "vocab.txt"
TOKENIZER_NAME = "tokenizer.json"
# Values of EncoderCard.tokenizer.
WORDPIECE, FAST_TOKENIZER = "wordpiece", "tokenizers"
PROBE_NAME = "probe.json"
# A protobuf message, and so an ONNX model without external data, ends at 2 GiB.
MAX_FILE_BYTES = 2 << 30
MAX_CARD_BYTES = 1 << 20
MAX_DIM = 1 << 16
MAX_TOKENS = 1 << 17


class EncoderCard(msgspec.Struct, frozen=True):
    """The contents of encoder.json. `files` maps names to SHA-256 (hex), `source` is the identity of the embedder."""

    format: int
    dim: int
    max_tokens: int
    pooling: str
    prompts: dict[str, str]
    tokenizer: str
    lowercase: bool
    special_tokens: list[str]
    probe_cosine_min: float
    files: dict[str, str]
    source: dict[str, Any]


class Probe(msgspec.Struct, frozen=True):
    """A query text and the vector that the source model gave it: `vector` is little-endian float16 in hex."""

    text: str
    vector: str

    def row(self) -> npt.NDArray[np.float16]:
        """The vector [D]."""
        return np.frombuffer(bytes.fromhex(self.vector), "<f2")


def write_json(path: Path, value: msgspec.Struct) -> str:
    """Writes canonical JSON and returns its SHA-256 (hex)."""
    data = canonical_json(value)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def read_card(directory: Path) -> EncoderCard:
    """The card of an encoder's folder. Raises BundleError where it is missing, too large or not sensible."""
    card = _read_json(directory / CARD_NAME, EncoderCard)
    if card.format != CARD_FORMAT:
        raise BundleError(
            f"the encoder has the format {card.format}, this version reads {CARD_FORMAT}",
            hint="export the encoder again with `backfill merge --reembed`",
        )
    if not 0 < card.dim <= MAX_DIM or not 2 < card.max_tokens <= MAX_TOKENS:
        raise BundleError(f"the encoder claims {card.dim} dimensions and {card.max_tokens} tokens")
    return card


def read_probe(directory: Path) -> Probe:
    """The probe of an encoder's folder. Raises BundleError."""
    return _read_json(directory / PROBE_NAME, Probe)


def checked_bytes(directory: Path, card: EncoderCard, name: str) -> bytes:
    """The bytes of a file that the card names, once its SHA-256 is right. Raises BundleError."""
    path = directory / name
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BundleError(f"the encoder's {name} is larger than {MAX_FILE_BYTES:,} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"the encoder lacks {name}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != card.files.get(name):
        raise BundleError(f"the encoder's {name} is not the file that {CARD_NAME} names")
    return data


def _read_json(path: Path, kind: type[T]) -> T:
    try:
        if path.stat().st_size > MAX_CARD_BYTES:
            raise BundleError(f"the encoder's {path.name} is larger than {MAX_CARD_BYTES:,} bytes")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise BundleError(f"the encoder lacks {path.name}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"the encoder's {path.name} cannot be read ({error})") from error
