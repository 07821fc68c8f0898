"""Turns months of coding-agent transcripts into a small searchable memory, in one bulk run.

`backfill.Bundle` opens such a memory and searches it; it is imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill.bundle import Bundle

__version__ = "0.1.0"

__all__ = ["Bundle", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Bundle":
        from backfill.bundle import Bundle

        return Bundle
    raise AttributeError(f"module 'backfill' has no attribute {name!r}")
