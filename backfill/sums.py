"""What a merge needs of a segment that it does not touch: its share of the logical digest, and keys of its rows.

Derived from the segment's rows and documents alone. Light: shared by `compose`, which writes it, and `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill.embed import object_texts
from backfill.superseded import subject_keys
from backfill.union import text_keys, visible_sum

if TYPE_CHECKING:
    import numpy.typing as npt

SEGMENT_TABLES = ("exchanges", "occurrences", "objects", "claims")


def segment_sums(
    rows: Mapping[str, Sequence[Any]], docs: Mapping[str, npt.NDArray[Any]], parts: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a segment's `sums` file. `rows` are its rows by table, `parts` the parts that have vectors.

    Rows are taken one at a time, so they may lie in a file.

    `visible` [1024] u2 is the sum of its visible rows; `text-<part>` and `text-claims` [N] u8 are the first eight bytes
    of the text hashes of its vectors; `claim-subject` and `claim-values` [C, 16] u1 hash (kind, subject) and the values
    of each claim, zero for one that replaces nothing and is not replaced.
    """
    import numpy as np

    shown = docs["object_row"][docs["object_row"] >= 0]
    visible = {
        "exchanges": (rows["exchanges"][i] for i in docs["exchange_row"]),
        "occurrences": (rows["occurrences"][i] for i in docs["occ_row"]),
        "objects": (rows["objects"][i] for i in shown),
        "claims": (rows["claims"][i] for i in docs["claim_row"]),
    }
    keys = bytearray()
    for row in rows["claims"]:
        keys += b"".join(subject_keys(row))
    pairs = np.frombuffer(bytes(keys), np.uint8).reshape(len(rows["claims"]), 32)
    texts = {part: _part_texts(rows["objects"], part) for part in parts}
    if parts:
        texts["claims"] = (row.text for row in rows["claims"])
    return {
        "visible": visible_sum(visible),
        "claim-subject": pairs[:, :16],
        "claim-values": pairs[:, 16:],
        **{f"text-{part}": text_keys(found) for part, found in texts.items()},
    }


def _part_texts(objects: Sequence[Any], part: str) -> Iterator[str]:
    return (object_texts(row, (part,))[part] for row in objects)
