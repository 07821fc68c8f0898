"""Quoted phrases: which documents hold them literally, found by index first and by reading second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from backfill import signals
from backfill.signals import Mask

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.columns import ParquetFile


def phrase_mask(bundle: Bundle, phrases: Sequence[str], mask: Mask) -> Mask:
    """[documents] true where the document passes `mask` and each phrase stands in its user_text or agent_text.

    Case is ignored. Read are the documents that share a token with each phrase; where none of them holds the
    phrases, all that pass the mask are read, for a phrase may begin or end within a word.
    """
    likely = mask.copy()
    if any(segment.has("bm25:verbatim") for segment in bundle.segments):
        from backfill.indexes.tokenizer import tokenize

        for phrase in phrases:
            terms = tokenize(phrase)
            if terms:
                likely &= signals.bm25(bundle, "verbatim", terms) > 0
    found = _read(bundle, phrases, likely)
    return found if found.any() else _read(bundle, phrases, mask & ~likely)


def _read(bundle: Bundle, phrases: Sequence[str], mask: Mask) -> Mask:
    folded = [phrase.casefold() for phrase in phrases]
    found = np.zeros(len(mask), np.bool_)
    base = signals.starts(bundle, "documents")
    for number, segment in enumerate(bundle.segments):
        docs = np.flatnonzero(mask[base[number] : base[number + 1]])
        positions = segment.docs.exchange_row[docs]
        for doc, text in zip(docs, _texts(segment.table("exchanges"), positions.tolist()), strict=True):
            found[base[number] + doc] = all(phrase in text for phrase in folded)
    return found


def _texts(table: ParquetFile, positions: Sequence[int]) -> list[str]:
    """Folded text of the rows; a character that no phrase can hold stands between the two fields."""
    rows = table.rows_at(("user_text", "agent_text"), positions)
    return [f"{rows[at]['user_text']}\0{rows[at]['agent_text']}".casefold() for at in positions]
