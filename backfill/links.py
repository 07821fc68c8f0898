"""Numbers that link documents to sessions and claims to documents, as a segment's `docs` arrays hold them.

Made when a bundle is composed, so that a search reads them as they lie; made from the tables where an older bundle
lacks them. Deliberately absent: links over segments, which are by id (`claim_index`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.ids import ID_BYTES, digest_fields


def session_number(agent: str, session_id: str) -> int:
    """64 bits that tell one session from another in all segments: BLAKE2b of both names, little-endian."""
    return int.from_bytes(digest_fields([agent.encode(), session_id.encode()], size=8), "little")


def session_numbers(places: Iterable[tuple[str, str]]) -> npt.NDArray[np.uint64]:
    """[D] the number of the session of each document's best occurrence, given as (agent, session_id)."""
    pairs = list(places)
    numbers = {pair: session_number(*pair) for pair in set(pairs)}
    return np.array([numbers[pair] for pair in pairs], dtype="<u8")


def claim_links(cells: Iterable[Sequence[bytes]], docs: Mapping[bytes, int]) -> dict[str, npt.NDArray[Any]]:
    """What the claims of a segment were distilled from; `cells` are the exchange ids of each visible claim.

    claim_doc [L] i4 for claim c is claim_doc[claim_indptr[c]:claim_indptr[c + 1]]: documents of the same segment, and
    -1 for an exchange that is none of these; claim_far [F, 16] u1 are the ids of the latter, in order.
    """
    cells = list(cells)
    flat = [exchange_id for cell in cells for exchange_id in cell]
    here = [docs.get(exchange_id, -1) for exchange_id in flat]
    far = b"".join(exchange_id for exchange_id, doc in zip(flat, here, strict=True) if doc < 0)
    return {
        "claim_indptr": np.cumsum([0, *map(len, cells)], dtype="<i8"),
        "claim_doc": np.array(here, dtype="<i4"),
        "claim_far": np.frombuffer(far, np.uint8).reshape(-1, ID_BYTES),
    }
