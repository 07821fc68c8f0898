"""Whom a bundle's encoder is trusted by: the package, this user's own runs, or a word on the command line.

An encoder is a program that runs on the reader's machine, so one that came in a stranger's bundle is loaded only when
its SHA-256 ships with the package (`data/trusted_encoders.json`), when this user's own `run` recorded it, or when the
caller says so. Deliberately absent: signatures; and any trust by name or by place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backfill.errors import BundleError

if TYPE_CHECKING:
    from backfill.bundle import EncoderInfo
    from backfill.embedders.base import Embedder

# Not importlib.resources, whose import takes longer than all of this module's work.
SHIPPED = Path(__file__).with_name("data") / "trusted_encoders.json"
MAX_ENCODER_JSON_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20
MAX_SEGMENT_BYTES = 256 << 20  # four million segments


def encoder_digest(directory: Path) -> str:
    """SHA-256 (hex) over the encoder's files: that of `encoder.json`, which holds the SHA-256 of each of the others.

    `OnnxEmbedder` compares the files with `encoder.json` before it loads one, so this digest vouches for all of them.
    """
    path = directory / "encoder.json"
    try:
        if path.stat().st_size > MAX_ENCODER_JSON_BYTES:
            raise BundleError(f"{path} is larger than {MAX_ENCODER_JSON_BYTES:,} bytes")
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BundleError(f"the encoder has no readable {path.name}: {error.strerror}") from error


def record_path() -> Path:
    """This user's record of encoders that own runs exported."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "backfill" / "encoders.json"


def record_encoder(sha256: str) -> None:
    """Adds an encoder to this user's record; a run calls it for the encoder that it exported itself."""
    path = record_path()
    known = _digests(path)
    if sha256 in known:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    attempt = path.with_name(f"{path.name}.{os.getpid()}")
    attempt.write_bytes(msgspec.json.encode(sorted({*known, sha256})))
    attempt.replace(path)


def is_trusted(sha256: str) -> bool:
    """Whether the package or this user's own runs vouch for the encoder."""
    shipped = msgspec.json.decode(SHIPPED.read_bytes(), type=frozenset[str])
    return sha256 in shipped or sha256 in _digests(record_path())


def load_encoder(
    bundle: Path, info: EncoderInfo | None, *, trust: bool, threads: int = 0
) -> tuple[Embedder | None, str]:
    """The encoder of a bundle, or None and why there is none; `threads` as OnnxEmbedder has them.

    Raises BundleError when it is not what it says.
    """
    if info is None:
        return None, "this bundle carries no encoder"
    directory = bundle / info.path
    if Path(info.path).is_absolute() or ".." in Path(info.path).parts:
        raise BundleError("the manifest names an encoder outside the bundle")
    if encoder_digest(directory) != info.sha256:
        raise BundleError("the bundle's encoder is not the one that its manifest names")
    if not (trust or is_trusted(info.sha256)):
        return None, (
            f"the bundle's encoder (SHA-256 {info.sha256[:12]}...) is not known here, so vectors are off; "
            "--trust-encoder loads it"
        )
    from backfill.embedders.onnx import OnnxEmbedder

    encoder = OnnxEmbedder(directory, threads)
    if encoder.dim != info.dim:
        raise BundleError(f"the encoder gives {encoder.dim} dimensions, the manifest says {info.dim}")
    return encoder, ""


def segment_digest(files: Mapping[str, str]) -> str:
    """SHA-256 (hex) over the files of a segment: SHA-256 by role."""
    return hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()


def known_segments() -> frozenset[str]:
    """Digests of the segments that this user's own commands wrote: what is derived in them may be taken over."""
    path = record_path().with_name("segments.txt")
    try:
        if path.stat().st_size > MAX_SEGMENT_BYTES:
            return frozenset()
        return frozenset(path.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return frozenset()


def record_segments(digests: Iterable[str]) -> None:
    """Adds segments to that record; one that cannot be written costs a later merge time, nothing else."""
    fresh = sorted(set(digests) - known_segments())
    if not fresh:
        return
    path = record_path().with_name("segments.txt")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="ascii") as file:
            file.write("".join(f"{digest}\n" for digest in fresh))


def _digests(path: Path) -> frozenset[str]:
    """A damaged record trusts nothing: it is as good as none."""
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            return frozenset()
        return msgspec.json.decode(path.read_bytes(), type=frozenset[str])
    except (OSError, msgspec.MsgspecError):
        return frozenset()
