"""Writing one BM25 field of any number of texts in bounded memory: blocks of texts, each sorted alone, then merged.

Blocks are runs of documents in order, so a term's postings are those of the blocks one after another, and merging
needs no sorting but that of vocabularies. The file is that of `field.build_field` over all texts, byte for byte.
Blocks lie beside the file while it is written. Memory: about 100 MB for a block, 4 bytes for each term of each block,
30 for each term in all, 8 for each document; what is mapped from the blocks and the result can be dropped at will.
"""

from __future__ import annotations

import heapq
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.arrays import open_arrays, write_arrays
from backfill.indexes.field import build_field, kind_for, narrowed

# English and code have a token for each 4 to 6 characters, CJK one for each: 0.7 to 4 million tokens of 40 bytes.
BLOCK_CHARS = 4 << 20
# Each is an open file while it is merged, of which a process may have 1,024; merged, they are one block again.
_BLOCKS_AT_ONCE = 256
_READ_TERMS = 4096

Array = npt.NDArray[Any]
Block = Mapping[str, Array]


def write_field(texts: Iterable[str], path: Path) -> int:
    """Writes the field over texts in the order of their rows; returns how many. Not fsynced.

    Raises OSError, and OverflowError above 2^31 - 1 tokens of one text.
    """
    rest = iter(texts)
    first = build_field(_run(rest))
    following = next(rest, None)
    if following is None:
        write_arrays(path, first)
        return len(first["lengths"])
    # On NFS a file that was mapped a moment ago may stand in the way of its folder, which goes with the caller's then.
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        paths = [folder / "0"]
        write_arrays(paths[0], first)
        n_docs = len(first["lengths"])
        del first
        for number in count(1):
            if following is None:
                break
            arrays = build_field(_run(chain([following], rest)))
            paths.append(folder / str(number))
            write_arrays(paths[-1], arrays)
            n_docs += len(arrays["lengths"])
            del arrays
            following = next(rest, None)
            if len(paths) == _BLOCKS_AT_ONCE and following is not None:
                paths = [_merge(paths, folder, folder / f"to-{number}")]
        _merge(paths, folder, path)
    return n_docs


def join_fields(blocks: Sequence[Block], path: Path) -> None:
    """Writes one field over the documents of all blocks, one after another; leaves files beside it. Not fsynced.

    Raises OSError, and ValueError or IndexError where a block's arrays contradict each other.
    """
    write_arrays(path, _merged(blocks, path.parent))


def _merge(paths: Sequence[Path], folder: Path, out: Path) -> Path:
    """Writes one field over the documents of all blocks, and removes these; returns `out`."""
    write_arrays(out, _merged([open_arrays(path) for path in paths], folder))
    for path in paths:
        path.unlink()
    return out


def _run(texts: Iterator[str]) -> Iterator[str]:
    """Texts up to and with the one that passes BLOCK_CHARS characters."""
    n_chars = 0
    for text in texts:
        yield text
        n_chars += len(text)
        if n_chars >= BLOCK_CHARS:
            return


def _merged(blocks: Sequence[Block], folder: Path) -> dict[str, Array]:
    """The arrays of one field over the documents of all blocks; the large ones are mapped from files in `folder`."""
    lengths, numbers = _merge_vocabularies(blocks, folder / "vocabulary")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.frombuffer(lengths, np.int32), out=offsets[1:])
    sizes = np.zeros(len(lengths), np.int64)
    for block, number in zip(blocks, numbers, strict=True):
        sizes[number] += np.diff(block["indptr"])
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    n_docs = sum(len(block["lengths"]) for block in blocks)
    documents = _mapped(folder / "documents", kind_for("documents", n_docs - 1), int(indptr[-1]))
    widest = max((block["counts"].dtype for block in blocks), key=lambda kind: kind.itemsize)
    counts = _mapped(folder / "counts", widest, int(indptr[-1]))
    free = indptr[:-1].copy()
    n_before = 0
    for block, number in zip(blocks, numbers, strict=True):
        here = np.diff(block["indptr"])
        places = np.repeat(free[number] - block["indptr"][:-1], here) + np.arange(len(block["documents"]))
        documents[places] = block["documents"].astype(np.int32) + n_before
        counts[places] = block["counts"]
        free[number] += here
        n_before += len(block["lengths"])
    return narrowed(
        {
            "vocabulary": np.memmap(folder / "vocabulary", np.uint8, "r") if offsets[-1] else np.empty(0, np.uint8),
            "term_offsets": offsets,
            "indptr": indptr,
            "documents": documents,
            "counts": counts,
            "lengths": np.concatenate([block["lengths"] for block in blocks]),
        }
    )


def _merge_vocabularies(blocks: Sequence[Block], path: Path) -> tuple[array[int], list[Array]]:
    """Writes the distinct terms in a row; returns the length of each, and for each block [V] i4 its terms' numbers."""
    lengths = array("i")
    numbers = [array("i") for _ in blocks]
    before: bytes | None = None
    with path.open("wb") as file:
        for term, number in heapq.merge(*(_terms(block, number) for number, block in enumerate(blocks))):
            if term != before:
                file.write(term)
                lengths.append(len(term))
                before = term
            numbers[number].append(len(lengths) - 1)
    return lengths, [np.frombuffer(found, np.int32) if found else np.empty(0, np.int32) for found in numbers]


def _terms(block: Block, number: int) -> Iterator[tuple[bytes, int]]:
    offsets, vocabulary = block["term_offsets"], block["vocabulary"]
    for start in range(0, len(offsets) - 1, _READ_TERMS):
        ends = offsets[start : start + _READ_TERMS + 1].tolist()
        data = vocabulary[ends[0] : ends[-1]].tobytes()
        for low, high in pairwise(ends):
            yield data[low - ends[0] : high - ends[0]], number


def _mapped(path: Path, kind: np.dtype[Any], n: int) -> Array:
    return np.memmap(path, kind, "w+", shape=(n,)) if n else np.empty(0, kind)
