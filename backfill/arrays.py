"""One file of named numpy arrays in the safetensors layout, opened by memory mapping.

Layout: header length (8 bytes, little-endian), JSON header `{name: {"data_offsets", "dtype", "shape"}}` padded with
spaces, data. The data section starts at a multiple of 64 bytes; arrays stand in it by falling item size, then by
name, without holes, so that each is aligned to its items and the official `safetensors` reader takes the file. The
header is canonical: equal arrays give equal bytes, and a file whose header is not exactly the one this module would
write is refused. Deliberately absent: free metadata, compression, and copies of the data.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from backfill.errors import BundleError
from backfill.ids import canonical_json

ALIGN_BYTES = 64
# 1,024 arrays with names of 128 bytes and 8 dimensions of 20 digits come to about 0.4 MB of header.
MAX_HEADER_BYTES = 1 << 20
MAX_ARRAYS = 1024
MAX_DIMS = 8
MAX_NAME_BYTES = 128
# numpy cannot count more bytes than this in one array.
MAX_ARRAY_BYTES = (1 << 63) - 1

_DTYPES = {
    "BOOL": "|b1",
    "I8": "|i1",
    "U8": "|u1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "I64": "<i8",
    "U64": "<u8",
    "F64": "<f8",
}
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}

Array = npt.NDArray[Any]


class _Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    data_offsets: tuple[int, int]
    dtype: str
    shape: list[int]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> int:
    """Writes the arrays to `path` and returns the bytes written; equal arrays give equal bytes.

    dtypes: bool, i1 to i8, u1 to u8, f2, f4, f8, any byte order (little-endian is stored). The caller does fsync and
    renames. Raises ValueError for a name or dtype that the format has no room for.
    """
    ready = {name: _little_endian(name, array) for name, array in arrays.items()}
    header = _header({name: (_CODES[a.dtype], list(a.shape)) for name, a in ready.items()})
    if len(ready) > MAX_ARRAYS or len(header) > MAX_HEADER_BYTES:
        raise ValueError(f"{len(ready)} arrays do not fit one file (at most {MAX_ARRAYS})")
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name in _data_order({name: _CODES[a.dtype] for name, a in ready.items()}):
            file.write(ready[name].data if ready[name].size else b"")
        return file.tell()


def open_arrays(path: Path) -> Mapping[str, Array]:
    """Read-only arrays that map the file at `path`; nothing of the data is read or copied.

    The header is untrusted: its size is bounded before it is read, and dtypes, shapes and offsets must be the
    canonical ones and cover the file exactly. Raises BundleError.
    """
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, 2)
            file.seek(0)
            header_bytes = int.from_bytes(file.read(8), "little")
            if n_bytes < 8 or header_bytes > MAX_HEADER_BYTES or 8 + header_bytes > n_bytes:
                raise BundleError(f"{path.name}: the header does not fit the file ({n_bytes} bytes)")
            header = file.read(header_bytes)
            entries = _checked_entries(path.name, header, n_bytes - 8 - header_bytes)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BundleError(f"cannot read {path.name}: {error.strerror}") from error
    start = 8 + header_bytes
    return MappingProxyType({name: _view(data, start, entry) for name, entry in entries.items()})


def release(array: Array) -> None:
    """Lets go of the pages of a mapped file that were read; they come back from the file when they are needed.

    Touching a page maps its neighbours too, so a few searches make all of a file count as this process's memory.
    """
    base = _mapped(array)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def file_offset(array: Array) -> int:
    """Where the data of an array of `open_arrays` begins in its file. Raises ValueError for another array."""
    base = _mapped(array)
    if base is None:
        raise ValueError("the array maps no file")
    return int(array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data)


def _mapped(array: Array) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def _view(data: mmap.mmap, start: int, entry: _Entry) -> Array:
    dtype, count = np.dtype(_DTYPES[entry.dtype]), math.prod(entry.shape)
    offset = start + entry.data_offsets[0]
    flat = np.frombuffer(data, dtype, count, offset) if count else np.empty(0, dtype)
    return flat.reshape(entry.shape)


def _checked_entries(name: str, header: bytes, data_bytes: int) -> dict[str, _Entry]:
    try:
        entries = msgspec.json.decode(header, type=dict[str, _Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{name}: the header is not a list of arrays ({error})") from error
    if len(entries) > MAX_ARRAYS:
        raise BundleError(f"{name}: {len(entries)} arrays in one file (at most {MAX_ARRAYS})")
    for key, entry in entries.items():
        if entry.dtype not in _DTYPES:
            raise BundleError(f"{name}: array {key[:40]!r} has the unknown dtype {entry.dtype[:20]!r}")
        if len(entry.shape) > MAX_DIMS or any(n < 0 for n in entry.shape) or entry.n_bytes > MAX_ARRAY_BYTES:
            raise BundleError(f"{name}: array {key[:40]!r} has an impossible shape")
    if sum(entry.n_bytes for entry in entries.values()) != data_bytes:
        raise BundleError(f"{name}: the arrays do not cover the {data_bytes} bytes of data exactly")
    try:
        canonical = _header({key: (entry.dtype, entry.shape) for key, entry in entries.items()})
    except ValueError as error:
        raise BundleError(f"{name}: {error}") from error
    if header != canonical:
        raise BundleError(f"{name}: offsets overlap, leave holes or are not in canonical order")
    return entries


def _header(layout: Mapping[str, tuple[str, list[int]]]) -> bytes:
    """The canonical header of `{name: (dtype code, shape)}`, padded so that the data starts aligned."""
    tree: dict[str, Any] = {}
    offset = 0
    for name in _data_order({name: code for name, (code, _) in layout.items()}):
        _check_name(name)
        code, shape = layout[name]
        end = offset + math.prod(shape) * np.dtype(_DTYPES[code]).itemsize
        tree[name] = {"data_offsets": [offset, end], "dtype": code, "shape": shape}
        offset = end
    header = canonical_json(tree)
    return header + b" " * (-(8 + len(header)) % ALIGN_BYTES)


def _data_order(codes: Mapping[str, str]) -> list[str]:
    return sorted(codes, key=lambda name: (-np.dtype(_DTYPES[codes[name]]).itemsize, name))


def _check_name(name: str) -> None:
    # "__metadata__" means something else to safetensors.
    if not name.isascii() or not name.isprintable() or not 0 < len(name) <= MAX_NAME_BYTES or name == "__metadata__":
        raise ValueError(f"{name[:40]!r} cannot name an array")


def _little_endian(name: str, array: Array) -> Array:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _CODES or array.ndim > MAX_DIMS:
        raise ValueError(f"array {name!r}: {array.dtype} with {array.ndim} dimensions cannot be stored")
    return np.asarray(array, dtype=dtype, order="C")
